"""A program as in docs/spark.md: a stream until Ctrl-C. Its arguments: brokers, topic, checkpoint.

It prints "running" once its main thread waits for Java, so that the signal finds it there.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

from kadence.whereabouts import frames_of
from kadence_spark import session

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


def waits_for_java(thread: int) -> bool:
    names = [frame.f_code.co_name for frame, _ in frames_of(thread)]
    return names[0] == "readinto" and "awaitTermination" in names


def tell() -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not waits_for_java(main):
        time.sleep(0.01)
    print("running", flush=True)


def ask_java_before_and_after() -> None:
    """On a connection of this thread: does it outlive the interrupted call of another thread?"""
    java, client = context._jvm, context._gateway._gateway_client  # type: ignore[union-attr]
    assert java is not None
    java.java.lang.System.nanoTime()
    before = client.get_thread_connection()
    asked.set()
    stopped.wait()
    java.java.lang.System.nanoTime()
    print(
        "another thread's connection is", "the same" if client.get_thread_connection() is before else "closed"
    )


query.processAllAvailable()
context = spark.sparkContext
asked, stopped = threading.Event(), threading.Event()
other = threading.Thread(target=ask_java_before_and_after)
other.start()
asked.wait()
threading.Thread(target=tell, daemon=True).start()
try:
    query.awaitTermination()
except KeyboardInterrupt:
    query.stop()
    print("stopped")
    stopped.set()
    other.join()
