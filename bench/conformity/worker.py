"""Both sources in one Spark session: ``python worker.py PLAN``, told on stdin what to read, a line of JSON each.

Runs in the benchmark's own environment (see ../spark.py), so it imports nothing of its neighbours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Row = list[Any]


def row_of(row: Any) -> Row:
    """All columns in a form that JSON carries and that sorts."""
    return [
        row.topic,
        row.partition,
        row.offset,
        row.timestamp.timestamp(),
        row.timestampType,
        # An empty text for null, since null and text do not sort; what is there begins with "x".
        "" if row.key is None else f"x{row.key.hex()}",
        "" if row.value is None else f"x{row.value.hex()}",
        [[each.key, None if each.value is None else each.value.hex()] for each in row.headers or []]
        if "headers" in row
        else [],
    ]


def batch(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    reader = spark.read.format(order["format"]).options(**order["options"])
    if order["schema"]:
        reader = reader.schema(order["schema"])
    frame = reader.load()
    if order["schema"]:
        return {"rows": sorted(list(map(str, row)) for row in frame.collect())}
    return {"rows": sorted(map(row_of, frame.collect()))}


def stream(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    """What the query reads until it ends by itself, and how many rows each of its batches had."""
    rows: list[Row] = []
    batches: list[int] = []

    def take(frame: Any, _: int) -> None:
        found = [row_of(row) for row in frame.collect()]
        rows.extend(found)
        if found:
            batches.append(len(found))

    # A job with the connector has a session of Spark's own, whose checkpoints have Hadoop's checksums.
    if order["format"] == "kafka":
        spark.conf.set("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.LocalFs")
    else:
        spark.conf.unset("fs.AbstractFileSystem.file.impl")
    trigger = {"once": True} if order["trigger"] == "once" else {"availableNow": True}
    query = (
        spark.readStream.format(order["format"])
        .options(**order["options"])
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", order["checkpoint"])
        .trigger(**trigger)
        .start()
    )
    try:
        if not query.awaitTermination(90):
            raise TimeoutError("the query did not end within 90 s")
    finally:
        query.stop()
    return {"rows": sorted(rows), "batches": batches}


def life(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    """An availableNow query, which may die in its first batch with rows: the batches in the sink, and its error."""
    batches: list[tuple[int, list[Row]]] = []

    def take(frame: Any, number: int) -> None:
        found = [row_of(row) for row in frame.collect()]
        if found and order["dies"] == "before":
            raise RuntimeError("the application dies")
        batches.append((number, found))
        if found and order["dies"] == "after":
            raise RuntimeError("the application dies")

    query = (
        spark.readStream.format(order["format"])
        .options(**order["options"])
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", order["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    error = ""
    try:
        if not query.awaitTermination(180):
            error = "the query did not end within 180 s"
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is the answer
        error = " ".join(str(problem).split())[:3000]
    finally:
        query.stop()
    return {"batches": batches, "error": error}


def write(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Rows with all columns that the sink takes, keys and values null now and then; as a batch or as a stream.

    A stream copies them from the topic that the batch wrote, each partition to its own.
    """
    if order["of"]:
        reader = spark.readStream.format(order["format"]).options(**order["options"], subscribe=order["of"])
        frame = reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()
        query = (
            frame.select("key", "value", "headers", "partition")
            .writeStream.format(order["format"])
            .options(**order["options"], topic=order["topic"], checkpointLocation=order["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {}
    columns = (
        "IF(id % 7 = 6, NULL, CAST(CONCAT('key-', id % 9) AS BINARY)) AS key",
        "IF(id % 11 = 10, NULL, CAST(CONCAT('value-', id) AS BINARY)) AS value",
        "ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
        "CAST(id % 3 AS INT) AS partition",
        f"'{order['topic']}' AS topic",
    )
    spark.range(order["rows"]).selectExpr(*columns).write.format(order["format"]).options(
        **order["options"]
    ).save()
    return {}


WORK: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    "batch": batch,
    "stream": stream,
    "life": life,
    "write": write,
}


def main() -> None:
    plan = json.loads(sys.argv[1])
    from kadence_spark import session

    spark = session(
        "kadence-parity",
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
            # Short queries: a fast start is worth more than the second compiler.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.jars": ",".join(plan["jars"]),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "OFF",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": f"{plan['scratch']}/warehouse",
        },
    )
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = WORK[order["kind"]](spark, order)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is the answer
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
