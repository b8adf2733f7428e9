"""A user's job from its beginning to its end: ``python plain.py SERVERS TOPIC DIRECTORY``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.errors import PySparkException

from kadence_spark import session

servers, topic, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])

# Bound to this machine and quick to start; nothing else is set.
spark = session(
    master="local[2]",
    conf={
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    },
)
options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
said: dict[str, object] = {}

batch = spark.read.format("kadence").options(**options).load()
said["rows"] = batch.count()
# A limit gives a task up in its middle.
said["some"] = len(batch.limit(1).collect())
try:
    spark.read.format("kadence").option("subscribe", topic).load()
except PySparkException as problem:
    said["no servers"] = str(problem)

stream = spark.readStream.format("kadence").options(**options, startingOffsets="earliest").load()
sink = stream.writeStream.format("noop")
query = sink.option("checkpointLocation", str(directory / "all")).trigger(availableNow=True).start()
query.awaitTermination()
said["available now"] = sum(progress.numInputRows for progress in query.recentProgress)

# Still busy when it is stopped: each micro-batch takes a few of the rows.
bit_by_bit = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
stream = spark.readStream.format("kadence").options(**bit_by_bit).load()
query = stream.writeStream.format("noop").option("checkpointLocation", str(directory / "on")).start()
while query.isActive and not (query.lastProgress and query.lastProgress["numInputRows"]):
    time.sleep(0.05)
said["stopped while busy"] = query.isActive
query.stop()
spark.stop()
print(json.dumps(said))
