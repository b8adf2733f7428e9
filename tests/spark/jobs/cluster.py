"""A stream on a standalone cluster: ``python cluster.py MASTER SERVERS TOPIC DIRECTORY``.

Each task leaves a file ``task-PARTITION-ATTEMPT`` at its first row and stops there until the file ``go`` is there, so
that the test can end a worker in the middle of the query.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from kadence.spark import session

master, servers, topic, directory = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])


@udf(StringType())
def held(value: bytes) -> str:
    task = TaskContext.get()
    assert task is not None
    mark = directory / f"task-{task.partitionId()}-{task.attemptNumber()}"
    if not mark.exists():
        mark.touch()
        while not (directory / "go").exists():
            time.sleep(0.05)
    return value.decode()


spark = session(
    master=master,
    conf={
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    },
)
query = (
    spark.readStream.format("kadence")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("minPartitions", "6")
    .load()
    .select(held("value").alias("value"))
    .writeStream.format("parquet")
    .option("path", str(directory / "table"))
    .option("checkpointLocation", str(directory / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
rows = spark.read.parquet(str(directory / "table")).collect()
print(json.dumps(sorted(int(row.value) for row in rows)))
spark.stop()
