"""A program as in docs/spark.md: a stream until Ctrl-C. Its arguments: brokers, topic, checkpoint.

It prints "running" once its main thread waits for Java, so that the signal finds it there.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import FrameType

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


def waits_for_java(frame: FrameType | None) -> bool:
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[0] == "readinto" and "awaitTermination" in names


def tell() -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not waits_for_java(sys._current_frames().get(main)):
        time.sleep(0.01)
    print("running", flush=True)


query.processAllAvailable()
threading.Thread(target=tell, daemon=True).start()
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
    print("stopped")
