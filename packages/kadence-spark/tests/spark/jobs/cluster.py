"""Two streams on a standalone cluster: ``python cluster.py MASTER SERVERS TOPIC DIRECTORY``.

Tasks leave files ``NAME-TASK-ATTEMPT`` at their first row. In the first stream, ``uneven``, the first attempt of task 0
stops there for good, and the first attempt of task 1 fails. In the second one, ``held``, each task stops there until
the file ``go`` is there, so that the test can end a worker in the middle.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from kadence_spark import session

master, servers, topic, directory = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])


def uneven(task: int, attempt: int) -> None:
    if (task, attempt) == (1, 0):
        raise RuntimeError("not at the first attempt")
    while (task, attempt) == (0, 0):
        time.sleep(0.05)


def held(task: int, attempt: int) -> None:
    while not (directory / "go").exists():
        time.sleep(0.05)


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
        # A second attempt for what takes longer than half of the tasks took.
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    },
)


def rows(at_first_row: Callable[[int, int], None]) -> list[int]:
    """What a stream of the whole topic puts into another one, in transactions."""
    name = at_first_row.__name__

    @udf(StringType())
    def passed(value: bytes) -> str:
        task = TaskContext.get()
        assert task is not None
        number, attempt = task.partitionId(), task.attemptNumber()
        mark = directory / f"{name}-{number}-{attempt}"
        if not mark.exists():
            mark.touch()
            at_first_row(number, attempt)
        return value.decode()

    query = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("minPartitions", "6")
        .load()
        .select(passed("value").alias("value"))
        .writeStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{topic}-{name}")
        .option("transactions", "true")
        .option("checkpointLocation", str(directory / name / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = (
        spark.read.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", f"{topic}-{name}")
        .load()
    )
    return sorted(int(row.value) for row in written.select("value").collect())


print(json.dumps({each.__name__: rows(each) for each in (uneven, held)}))
spark.stop()
