"""Kadence's Spark source beside Spark's own Kafka connector, on the same topics, in one run.

    python bench/spark.py
    python bench/spark.py --records 1000000 --rounds 2
    python bench/spark.py --write bench/NOTES.md

The connector's jars resolve for Spark 4.2.0 only, and one of them (the token provider, which does nothing
without security) does not resolve at all. So both sources run in an environment of their own with pyspark
4.2.0, and three small classes under bench/stand_in take the place of the missing jar. Needs a JDK and Maven.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.flights import COLUMNS, departures
from harness.table import write_section
from harness.topics import benchmark_kafka, fill, fill_with
from kadence import Admin
from kadence.admin import NewTopic
from kadence_testing.kafka import KAFKA_VERSION
from kadence_testing.maven import maven_jars

SPARK_VERSION = "4.2.0"
ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-bench-spark"
SOURCES = sorted(ROOT.glob("packages/*/src"))
STAND_IN = ROOT / "bench" / "stand_in"
# Spark brings the rest of the connector's dependencies itself.
NEEDED_JARS = ("spark-sql-kafka", "kafka-clients", "commons-pool2")
# Values of JSON that are made columns: by from_json after the connector, in the source by Kadence.
FLIGHTS = "flights-json"
ENGINES = {"Kadence": "kadence", "Spark's JVM connector": "kafka"}
# What a source in Python can reach at best: the same batches from memory (spark_memory.py).
FLOOR = "from memory"
# The topic of single records, and how many sources the queries that wait for them have.
LIVE = "live"
SOURCES_OF_A_QUERY = (1, 2, 5)
# Runs of work that fails, for each one that counts.
ATTEMPTS = 3


@dataclass(frozen=True)
class Work:
    """A row of the table: work that `spark_worker.batch_cases` knows, and how many times as fast it has to be.

    Attributes:
        label: in the table. topic, case: for the worker. goal: the least ratio of rows/s.
    """

    label: str
    topic: str
    case: str
    goal: float


WORKS = (
    Work("count, 100 B", "values-100", "count", 4.0),
    Work("to noop, 100 B", "values-100", "noop", 4.0),
    Work("to Parquet, 100 B", "values-100", "parquet", 2.0),
    Work("count, 1 KiB", "values-1024", "count", 3.5),
    Work("to noop, 1 KiB", "values-1024", "noop", 3.5),
    Work("to Parquet, 1 KiB", "values-1024", "parquet", 1.5),
    Work("written, 100 B", "values-100", "write", 1.5),
    Work("written, 1 KiB", "values-1024", "write", 1.5),
    # The connector has no transactions: what it does is what it does without.
    Work("written in transactions, 100 B", "values-100", "write-transactions", 1.0),
    Work("written in transactions, 1 KiB", "values-1024", "write-transactions", 1.0),
    Work("JSON to columns", FLIGHTS, "json", 5.0),
)


def environment() -> Path:
    """The Python of the benchmark's own environment, made at the first call."""
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / "ready"
    if not ready.exists():
        print(f"installing pyspark {SPARK_VERSION} into {ENVIRONMENT.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        packages = [f"pyspark=={SPARK_VERSION}", "pandas", "pyarrow", "cramjam"]
        install = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*install, *packages], check=True)
        # Kadence comes from this tree as it stands there: building it again would replace what this process has loaded.
        [site] = ENVIRONMENT.glob("lib/python*/site-packages")
        (site / "kadence.pth").write_text("".join(f"{each}\n" for each in SOURCES), encoding="utf-8")
        ready.touch()
    # As pip leaves what it installs. Where PYTHONDONTWRITEBYTECODE is set each of Spark's processes would compile anew.
    subprocess.run([str(python), "-m", "compileall", "-q", *map(str, SOURCES)], check=True)
    return python


def connector_jars(scratch: Path, spark_jars: Path | None = None) -> list[str]:
    """The connector as Maven has it, and the stand-in compiled against Spark's own jars.

    Args:
        spark_jars: where those are; None: in the benchmark's environment.
    """
    javac = shutil.which("javac")
    if javac is None:
        raise SystemExit("javac is needed to compile three small classes: install a JDK, 17 or newer")
    resolved = maven_jars(
        f"spark-kafka-{SPARK_VERSION}",
        [
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.12.1",
        ],
        excluded=["org.apache.spark:spark-token-provider-kafka-0-10_2.13"],
    )
    if spark_jars is None:
        spark_jars = next(ENVIRONMENT.glob("lib/python*/site-packages/pyspark/jars"))
    classes = scratch / "classes"
    sources = [str(path) for path in STAND_IN.rglob("*.java")]
    subprocess.run([javac, "-cp", f"{spark_jars}/*", "-d", str(classes), *sources], check=True)
    stand_in = scratch / "stand-in.jar"
    shutil.make_archive(str(stand_in.with_suffix("")), "zip", classes)
    stand_in.with_suffix(".zip").rename(stand_in)
    return [str(path) for path in resolved.iterdir() if path.name.startswith(NEEDED_JARS)] + [str(stand_in)]


class Worker:
    """A Spark session with one source, in a process of its own, that does one thing at a time when told."""

    def __init__(self, python: Path, plan: dict[str, object]) -> None:
        self._command = [str(python), str(ROOT / "bench" / "spark_worker.py"), json.dumps(plan)]
        self._form = plan["format"]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"the worker of format {self._form} ended with {process.wait()}")
        return process

    def seconds(self, topic: str, case: str) -> list[float]:
        """Of each run; none where the work failed. A process that has ended is started anew."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(topic, case, file=self._process.stdin, flush=True)
        if line := self._process.stdout.readline():
            answer: list[float] = json.loads(line)
            return answer
        print(f"the worker of format {self._form} ended with {self._process.wait()} at {case} of {topic}")
        self.close()
        self._process = self._started()
        return []

    def close(self) -> None:
        self._process.communicate()


def compare(
    workers: dict[str, Worker], topics: dict[str, int], rounds: int, failures: Counter[str]
) -> list[str]:
    """The lines of the table: the two sources take turns at each kind of work, and each one's best counts.

    The first round is the warm-up: a JVM is at its full speed after two or three. Work that fails does not count and is
    done again.

    Args:
        failures: gets the runs that have failed, by work and engine.
    """
    lines = [
        f"| work | {' | '.join(ENGINES)} | ratio | goal | {FLOOR} | share of that |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for work in WORKS:
        if work.topic not in topics:
            continue
        count = topics[work.topic]
        turns = {
            name: worker
            for name, worker in workers.items()
            if name != FLOOR or not work.case.startswith("write")
        }
        best = dict.fromkeys(turns, math.inf)
        for turn in range(rounds + 1):
            for name, worker in turns.items():
                for seconds in _done(worker, work.topic, work.case, f"{work.label}, {name}", failures):
                    if turn:
                        best[name] = min(best[name], seconds)
                    print(f"  {work.label}, {name}: {count / seconds:,.0f} rows/s", flush=True)
        ours, theirs = (best[name] for name in ENGINES)
        cells = [
            "failed" if best[name] == math.inf else f"{count / best[name] / 1000:,.0f} k" for name in ENGINES
        ]
        ratio = "" if math.inf in (ours, theirs) else f"{theirs / ours:.2f} ×"
        cells += [ratio, f"≥ {work.goal:g} ×"]
        cells += (
            [f"{count / best[FLOOR] / 1000:,.0f} k", f"{best[FLOOR] / ours:.0%}"]
            if FLOOR in best
            else ["", ""]
        )
        lines.append(f"| {work.label}, rows/s | {' | '.join(cells)} |")
    return lines


def _done(worker: Worker, topic: str, case: str, label: str, failures: Counter[str]) -> list[float]:
    """The seconds of one run; none where it has failed again and again."""
    for _ in range(ATTEMPTS):
        if seconds := worker.seconds(topic, case):
            return seconds
        failures[label] += 1
    return []


def compare_batches(workers: dict[str, Worker], topic: str, failures: Counter[str]) -> list[str]:
    """The table's lines of micro-batches."""
    lines = []
    batches = {
        name: _done(workers[name], topic, "micro-batches", f"micro-batches, {name}", failures)
        for name in ENGINES
    }
    for label, share, goal in (("p50", 50, "≤ 0.8 ×"), ("p95", 95, "")):
        ours, theirs = (
            statistics.quantiles(seconds, n=100)[share - 1] * 1000 if seconds else math.nan
            for seconds in batches.values()
        )
        figures = " | ".join(["failed" if math.isnan(each) else f"{each:.0f}" for each in (ours, theirs)])
        ratio = "" if math.isnan(ours + theirs) else f"{ours / theirs:.2f} ×"
        lines.append(f"| micro-batch of 8,000 rows, {label}, ms | {figures} | {ratio} | {goal} | | |")
    return lines


def compare_arrivals(workers: dict[str, Worker], failures: Counter[str]) -> list[str]:
    """The table's lines of single records, by how many sources a query has: all but one are quiet."""
    lines = []
    for sources in SOURCES_OF_A_QUERY:
        case = f"arrivals-{sources}"
        ours, theirs = (
            statistics.median(seconds) * 1000 if seconds else math.nan
            for seconds in (_done(workers[name], LIVE, case, f"{case}, {name}", failures) for name in ENGINES)
        )
        figures = " | ".join(["failed" if math.isnan(each) else f"{each:.0f}" for each in (ours, theirs)])
        ratio = "" if math.isnan(ours + theirs) else f"{ours / theirs:.2f} ×"
        label = "one source" if sources == 1 else f"{sources} sources, all but one quiet"
        lines.append(f"| record to `foreachBatch`, {label}, p50, ms | {figures} | {ratio} | ≤ 0.6 × | | |")
    return lines


def compare_starts(starts: dict[str, list[dict[str, float]]]) -> list[str]:
    """The table's lines of fresh applications."""
    lines = []
    for label, figure in (
        ("fresh start to the first batch", "first batch"),
        ("the same with the session's own start", "in all"),
    ):
        ours, theirs = (statistics.median(run[figure] for run in starts[name]) for name in ENGINES)
        lines.append(f"| {label}, s | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} × | | | |")
    return lines


def main() -> None:
    from spark_start import fresh_starts

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--records",
        type=int,
        default=10_000_000,
        help="100 B records; a fifth as many of 1 KiB, a third of JSON",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed runs of each kind, after one that is not"
    )
    parser.add_argument("--batches", type=int, default=40, help="warm micro-batches to time")
    parser.add_argument("--starts", type=int, default=5, help="fresh applications of each source")
    parser.add_argument(
        "--only",
        metavar="TOPIC",
        help=f"values-100, values-1024 or {FLIGHTS}; {LIVE}: single records; no micro-batches",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this Markdown file")
    options = parser.parse_args()
    python = environment()
    topics = {
        "values-100": options.records,
        "values-1024": options.records // 5,
        FLIGHTS: options.records // 3,
    }
    if options.only:
        topics = {topic: count for topic, count in topics.items() if topic == options.only}
    with (
        tempfile.TemporaryDirectory() as scratch,
        benchmark_kafka(Path(scratch)) as kafka,
        ExitStack() as stack,
    ):
        jars = connector_jars(Path(scratch))
        for topic, count in topics.items():
            if topic == FLIGHTS:
                fill_with(kafka.bootstrap_servers, topic, departures(5_000), count)
            else:
                fill(kafka.bootstrap_servers, topic, int(topic.rpartition("-")[2]), count)
        if not options.only or options.only == LIVE:
            with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
                quiet = [f"quiet-{each}" for each in range(1, max(SOURCES_OF_A_QUERY))]
                admin.create_topics([NewTopic(each, 8, 1) for each in (LIVE, *quiet)])
        workers = {}
        for name, form in {**ENGINES, FLOOR: "memory"}.items():
            plan = {
                "format": form,
                "bootstrap": kafka.bootstrap_servers,
                "topics": topics,
                "columns": COLUMNS,
                "batches": options.batches,
                "jars": jars if form == "kafka" else [],
                "scratch": f"{scratch}/{form}",
            }
            workers[name] = Worker(python, plan)
            stack.callback(workers[name].close)
        failures: Counter[str] = Counter()
        lines = compare(workers, topics, options.rounds, failures)
        if options.only == LIVE:
            lines += compare_arrivals(workers, failures)
        if not options.only:
            lines += compare_batches(workers, next(iter(topics)), failures)
            lines += compare_arrivals(workers, failures)
            stack.close()  # nothing runs beside a fresh application
            lines += compare_starts(
                fresh_starts(python, kafka.bootstrap_servers, jars, Path(scratch), options.starts, failures)
            )
    rows = "\n".join(lines)
    about = (
        f"pyspark {SPARK_VERSION}, local[2], Apache Kafka {KAFKA_VERSION} on the same machine, 8 partitions, "
        f"uncompressed, 16-byte keys, {options.records:,} records of 100 B and {options.records // 5:,} of 1 KiB, "
        f"{options.records // 3:,} of JSON (345 B, 19 columns; from_json after the connector, decoded in the source by "
        "Kadence, into the noop sink); "
        f"best of {options.rounds}; micro-batches of 8,000 rows back to back into the noop sink; fresh starts to a "
        f"first batch of 8,000 rows, median of {options.starts} applications. The connector writes without "
        "transactions. From memory: a source in Python that gives Spark the same Arrow batch again and again, faster "
        "than which none can be."
    )
    if failures:
        told = "; ".join(f"{label}: {count}" for label, count in failures.items())
        about += f" Runs that failed, and were done again up to {ATTEMPTS} times: {told}."
    print(f"\n{rows}\n\n{about}")
    if options.write:
        write_section(options.write, "spark", "make bench-spark", [about, rows])


if __name__ == "__main__":
    main()
