"""One Spark source in one session: ``python bench/spark_worker.py PLAN``, told on stdin what to do next.

Each line of stdin is ``TOPIC CASE``; each answer is a JSON list of seconds, empty where the work failed. So two workers
can take turns, and a slow minute of the machine hits both alike. Runs in the benchmark's own environment (see
spark.py), so of its neighbours it imports spark_memory.py alone, whose source is the floor of what one in Python can
reach.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from queue import Empty, Queue
from random import Random
from typing import Any, Literal

WARM_UP_BATCHES = 5
BATCH_ROWS = 8000
ARRIVALS = "arrivals-"
# Between an arrival and the next record, so that no record meets Spark's triggers in step.
PAUSES = Random(1)


def reader(spark: Any, plan: dict[str, Any], topic: str, *, stream: bool = False) -> Any:
    source = (spark.readStream if stream else spark.read).format(plan["format"])
    if plan["format"] == "memory":
        return source.option("topic", topic).option("rows", plan["topics"][topic])
    for key, value in {
        "kafka.bootstrap.servers": plan["bootstrap"],
        "subscribe": topic,
        "startingOffsets": "earliest",
    }.items():
        source = source.option(key, value)
    return source


def batch_cases(spark: Any, plan: dict[str, Any], topic: str) -> dict[str, Callable[[], Any]]:
    """What is timed for each topic: to count, to read all columns and drop them, to write Parquet."""
    table = str(Path(plan["scratch"]) / "table")

    def parquet() -> None:
        reader(spark, plan, topic).load().write.mode("overwrite").parquet(table)

    def json_columns() -> None:
        rows = reader(spark, plan, topic)
        if plan["format"] == "kafka":
            from pyspark.sql.functions import col, from_json

            parsed = from_json(col("value").cast("string"), plan["columns"])
            rows = rows.load().select(parsed.alias("value")).select("value.*")
        else:
            rows = rows.option("value.format", "json").schema(plan["columns"]).load()
        rows.write.format("noop").mode("overwrite").save()

    return {
        "json": json_columns,
        "count": lambda: reader(spark, plan, topic).load().count(),
        "noop": lambda: reader(spark, plan, topic).load().write.format("noop").mode("overwrite").save(),
        "parquet": parquet,
    }


def written(spark: Any, plan: dict[str, Any], topic: str, *, transactions: bool = False) -> float:
    """Seconds to write rows of the topic's size and number to a topic made for it, with the engine's own defaults.

    Args:
        transactions: in transactions, where the engine has them.
    """
    from kadence import Admin, TopicPartition
    from kadence.admin import NewTopic

    size = int(topic.rpartition("-")[2])
    # What makes the rows must cost little beside what writes them: rpad to 1,008 characters took Java 6.4 µs for a row,
    # as much as all the rest.
    key = "lpad(cast(id as string), 16, '0')"
    rows = spark.range(plan["topics"][topic], numPartitions=8).selectExpr(
        f"{key} as key", f"concat({key}, '{'x' * (size - 32)}') as value"
    )
    target = f"{topic}-by-{plan['format']}-{uuid.uuid4().hex[:6]}"
    sink = rows.write.format(plan["format"]).option("kafka.bootstrap.servers", plan["bootstrap"])
    if transactions and plan["format"] == "kadence":
        sink = sink.option("transactions", "true")
    with Admin(bootstrap_servers=plan["bootstrap"]) as admin:
        admin.create_topics([NewTopic(target, 8, 1)])
        # The controller has answered; this waits until the broker leads each partition. One that refuses the first
        # batch of a producer and begins to lead before the second arrives takes the second, as it accepts any sequence
        # number of a producer that it does not know. Kafka's producer repeats the first one until it expires.
        latest: dict[TopicPartition, Literal["latest"]] = {
            TopicPartition(target, partition): "latest" for partition in range(8)
        }
        admin.list_offsets(latest)
        seconds = timed(sink.option("topic", target).mode("append").save, 0)
        ends = admin.list_offsets(latest)
        admin.delete_topics([target])
    count = sum(end.offset for end in ends.values() if end is not None)
    # The end of a transaction is an offset of its own.
    markers = count - plan["topics"][topic]
    if markers < 0 or (markers and not transactions):
        raise SystemExit(f"{plan['topics'][topic]} rows were written, and {count} are there")
    return seconds


def timed(run: Callable[[], Any], rows: int) -> float:
    """Seconds of one run; a count that is wrong is no result."""
    started = time.perf_counter()
    counted = run()
    seconds = time.perf_counter() - started
    if counted not in (None, rows):
        raise SystemExit(f"there are {rows} rows, and {counted} were counted")
    return seconds


def micro_batches(spark: Any, plan: dict[str, Any], topic: str) -> list[float]:
    """Seconds of each warm micro-batch of 8,000 rows, back to back."""
    checkpoint = Path(plan["scratch"]) / "checkpoint"
    rows = reader(spark, plan, topic, stream=True).option("maxOffsetsPerTrigger", BATCH_ROWS).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    seen: dict[int, float] = {}
    try:
        while len(seen) < plan["batches"] + WARM_UP_BATCHES:
            if not query.isActive:
                raise SystemExit(f"the stream ended: {query.exception()}")
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
            time.sleep(0.2)
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return [seen[batch] for batch in sorted(seen)][WARM_UP_BATCHES:]


def arrivals(spark: Any, plan: dict[str, Any], topic: str, sources: int) -> list[float]:
    """Seconds from the send of a record to ``foreachBatch``, one record after another, in a union of so many sources.

    The other sources' topics are quiet.
    """
    from kadence import Producer

    checkpoint = Path(plan["scratch"]) / "checkpoint"
    topics = [topic, *(f"quiet-{each}" for each in range(1, sources))]
    streams = [
        reader(spark, plan, each, stream=True).option("startingOffsets", "latest").load() for each in topics
    ]
    arrived: Queue[float] = Queue()

    def arrive(batch: Any, _: int) -> None:
        for row in batch.select("value").collect():
            arrived.put(time.time() - float(row.value))

    rows = reduce(lambda left, right: left.union(right), (each.select("value") for each in streams))
    query = rows.writeStream.foreachBatch(arrive).option("checkpointLocation", str(checkpoint)).start()
    seconds: list[float] = []
    try:
        # What is sent before the first batch is planned would be before `latest`.
        while not query.recentProgress and query.isActive:
            time.sleep(0.1)
        with Producer(bootstrap_servers=plan["bootstrap"]) as producer:
            while len(seconds) < plan["batches"] + WARM_UP_BATCHES:
                producer.send(topic, str(time.time()).encode()).result()
                try:
                    seconds.append(arrived.get(timeout=60))
                except Empty:
                    raise SystemExit(f"no record arrived: {query.exception()}") from None
                time.sleep(PAUSES.uniform(0.05, 0.15))
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return seconds[WARM_UP_BATCHES:]


def done(spark: Any, plan: dict[str, Any], topic: str, case: str) -> list[float]:
    """Do it, and say how many seconds each run took."""
    if case.startswith(ARRIVALS):
        return arrivals(spark, plan, topic, int(case.removeprefix(ARRIVALS)))
    if case == "micro-batches":
        return micro_batches(spark, plan, topic)
    if case.startswith("write"):
        return [written(spark, plan, topic, transactions=case == "write-transactions")]
    return [timed(batch_cases(spark, plan, topic)[case], plan["topics"][topic])]


def main() -> None:
    plan = json.loads(sys.argv[1])
    from py4j.protocol import Py4JJavaError

    from kadence_spark.session import session

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "3g", "spark.log.level": "ERROR"}
    if plan["jars"]:
        settings["spark.jars"] = ",".join(plan["jars"])
    settings["spark.ui.showConsoleProgress"] = "false"
    if plan["format"] == "kafka":
        # As in a session of Spark's own, where jobs with the connector run.
        settings["spark.hadoop.fs.AbstractFileSystem.file.impl"] = "org.apache.hadoop.fs.local.LocalFs"
    spark = session("bench", master="local[2]", conf=settings)
    if plan["format"] == "memory":
        from spark_memory import register

        register(spark)
    print("[]", flush=True)
    for line in sys.stdin:
        topic, case = line.split()
        try:
            seconds = done(spark, plan, topic, case)
        except Py4JJavaError as problem:
            print(f"{case} of {topic} by {plan['format']} failed: {problem.java_exception}", file=sys.stderr)
            seconds = []
        print(json.dumps(seconds), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
