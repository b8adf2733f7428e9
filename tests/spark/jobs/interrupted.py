"""A program as in docs/spark.md: a stream until Ctrl-C. Its arguments: brokers, topic, checkpoint."""

from __future__ import annotations

import logging
import sys

from kadence.spark import session

servers, topic, directory = sys.argv[1:]
logging.basicConfig(level=logging.ERROR)
spark = session(
    "interrupted",
    master="local[2]",
    conf={
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.ui.enabled": "false",
    },
)
query = (
    spark.readStream.format("kadence")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
    .writeStream.format("noop")
    .option("checkpointLocation", directory)
    .start()
)
query.processAllAvailable()
print("running", flush=True)
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
    print("stopped")
