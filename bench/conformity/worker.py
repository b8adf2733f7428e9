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


WORK: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {"batch": batch, "stream": stream}


def main() -> None:
    plan = json.loads(sys.argv[1])
    from kadence.spark import session

    spark = session(
        "kadence-parity",
        master="local[2]",
        conf={
            "spark.driver.memory": "1g",
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
