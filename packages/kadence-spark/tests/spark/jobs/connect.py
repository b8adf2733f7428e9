"""A job on a Spark Connect server: ``SPARK_REMOTE=sc://… python connect.py SERVERS TOPIC GROUP DIRECTORY``."""

from __future__ import annotations

import json
import sys

from kadence_spark import lag, session

servers, topic, group, directory = sys.argv[1:]
spark = session()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
batch = spark.read.format("kadence").options(**options).load()
rows = batch.selectExpr("cast(value as string) as value").collect()

committing = {**options, "kafka.group.id": group, "commitOffsets": "true"}
stream = spark.readStream.format("kadence").options(**committing).load()
query = (
    stream.writeStream.format("parquet")
    .option("path", f"{directory}/table")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
left = lag(query.lastProgress)
landed = spark.read.parquet(f"{directory}/table").selectExpr("cast(value as string) as value").collect()
print(
    json.dumps(
        {
            "session": type(spark).__module__,
            "batch": sorted(int(row.value) for row in rows),
            "stream": sorted(int(row.value) for row in landed),
            "lag": {str(partition): offsets for partition, offsets in left.items()},
        }
    )
)
spark.stop()
