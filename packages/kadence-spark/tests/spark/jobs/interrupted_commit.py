"""A stream into a table whose commits are held while a file "hold" is there, until it is done or Ctrl-C comes.

It says "started", and then how it ended. Its arguments: brokers, topic, directory, delta or iceberg, where a commit is
held (before, after, nowhere), and the sink's options as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from kadence_spark import session
from kadence_spark.lakehouse.datasource import DeltaSource, IcebergSource
from kadence_spark.lakehouse.options import parse
from kadence_spark.lakehouse.writers import StreamWriter

servers, topic, place, kind, where, options = sys.argv[1:]


class Held(StreamWriter):
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        if where == "before":
            self._hold()
        super().commit(messages, batchId)
        if where == "after":
            self._hold()

    def _hold(self) -> None:
        Path(place, "held").touch()
        while Path(place, "hold").exists():
            time.sleep(0.01)


class HeldSource(DeltaSource if kind == "delta" else IcebergSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "held"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return Held(kind, parse(self.options, kind, streaming=True), schema, overwrite=overwrite)


logging.basicConfig(level=logging.CRITICAL)
spark = session(
    "interrupted commit",
    master="local[1]",
    conf={
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
    },
)
spark.dataSource.register(HeldSource)
query = (
    spark.readStream.format("kadence")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr("cast(value as string) as value")
    .writeStream.format("held")
    .options(**json.loads(options))
    .option("checkpointLocation", str(Path(place, "checkpoint")))
    .trigger(availableNow=True)
    .start()
)
print("started", flush=True)
try:
    query.awaitTermination()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    query.stop()
else:
    print("done", flush=True)
