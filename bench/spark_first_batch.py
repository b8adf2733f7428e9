"""One fresh Spark application whose first stream is timed: ``python bench/spark_first_batch.py PLAN``.

Prints JSON: seconds of the session's start, of ``load()``, from before ``readStream`` to the end of the first batch,
and of processor time meanwhile. Runs in the benchmark's own environment (see spark.py), so it imports nothing of its
neighbours but spark_worker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from spark_worker import reader

DEADLINE_S = 120


def first_batch(spark: Any, rows: Any, checkpoint: Path) -> float:
    """Start a stream of these rows into the noop sink; when its first batch was done."""
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    started = time.perf_counter()
    committed = checkpoint / "commits" / "0"
    while not committed.exists():
        if not query.isActive or time.perf_counter() - started > DEADLINE_S:
            raise SystemExit(f"there is no first batch: {query.exception()}")
        # A call of Java each millisecond would be work of its own; a look at a directory is not.
        for _ in range(200):
            time.sleep(0.001)
            if committed.exists():
                break
    return time.perf_counter()


def processor_seconds() -> float:
    """Of this process and all that it has started: Java, and the Python processes of Spark. Linux tells."""
    times: dict[int, float] = {}
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(status.parent.name)
        parents[process] = int(fields[1])
        # Its own, and that of children that have ended.
        times[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(times[process] for process in family)


def rows_of_first_batch(query: Any) -> int:
    """What it read, from the progress that comes after its commit."""
    while not query.recentProgress:
        time.sleep(0.01)
    query.stop()
    rows: int = query.recentProgress[0]["numInputRows"]
    return rows


def main() -> None:
    plan = json.loads(sys.argv[1])
    scratch = Path(plan["scratch"])
    from kadence_spark.session import session

    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    settings["spark.ui.showConsoleProgress"] = "false"
    if plan["jars"]:
        settings["spark.jars"] = ",".join(plan["jars"])
    begun = time.perf_counter()
    spark = session("bench", master="local[2]", conf=settings)
    ready = time.perf_counter()
    figures = {"session": ready - begun}
    if plan["warm"]:
        # A stream of Spark's own: what the JVM loads and compiles for any stream is there then.
        first_batch(spark, spark.readStream.format("rate").load(), scratch / "warm")
        for query in spark.streams.active:
            query.stop()
        ready = time.perf_counter()
    spent = processor_seconds()
    rows = reader(spark, plan, plan["topic"], stream=True).load()
    figures["load"] = time.perf_counter() - ready
    figures["first batch"] = first_batch(spark, rows, scratch / "checkpoint") - ready
    figures["processor"] = processor_seconds() - spent
    figures["rows"] = rows_of_first_batch(spark.streams.active[0])
    print(json.dumps(figures), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
