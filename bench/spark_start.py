"""How long a fresh Spark application takes to the first batch of its first stream: Kadence and Spark's JVM connector.

    python bench/spark_start.py
    python bench/spark_start.py --rounds 5 --warm

Each figure is an application of its own: ``session()``, then the time from ``spark.readStream`` to the first batch's
commit, and the processor time of Java and Python in it. The two take turns, so that a slow minute of the machine hits
both. With ``--warm`` a stream of Spark's own (``rate``) has run in the session before, and what the JVM loads for any
stream does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from harness.topics import PARTITIONS, benchmark_kafka, fill
from kadence_testing.kafka import KAFKA_VERSION
from spark import ATTEMPTS, ENGINES, ROOT, SPARK_VERSION, connector_jars, environment

RECORDS = 8_000
FIGURES = ("session", "load", "first batch", "in all", "processor")


def application(python: Path, plan: dict[str, object]) -> dict[str, float]:
    """The seconds of one application; nothing where it has failed."""
    command = [str(python), str(ROOT / "bench" / "spark_first_batch.py"), json.dumps(plan)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode:
        print(f"the application of format {plan['format']} ended with {run.returncode}", flush=True)
        return {}
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    if figures["rows"] != RECORDS:
        raise SystemExit(f"the first batch has {figures['rows']} rows, and there are {RECORDS}")
    figures["in all"] = figures["session"] + figures["first batch"]
    return figures


def fresh_starts(
    python: Path,
    bootstrap: str,
    jars: list[str],
    scratch: Path,
    rounds: int,
    failures: Counter[str],
    *,
    is_warm: bool = False,
) -> dict[str, list[dict[str, float]]]:
    """The figures of each engine's applications, which take turns.

    Args:
        failures: gets how many have failed; each is started up to `ATTEMPTS` times.
    """
    topic = "first"
    fill(bootstrap, topic, 100, RECORDS)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ENGINES}
    for turn in range(rounds):
        for name, form in ENGINES.items():
            for attempt in range(ATTEMPTS):
                plan = {
                    "format": form,
                    "bootstrap": bootstrap,
                    "topic": topic,
                    "jars": jars if form == "kafka" else [],
                    "scratch": f"{scratch}/{form}-{turn}-{attempt}",
                    "warm": is_warm,
                }
                if figures := application(python, plan):
                    found[name].append(figures)
                    told = ", ".join(f"{key} {figures[key]:.2f} s" for key in FIGURES)
                    print(f"  {name}: {told}", flush=True)
                    break
                failures[f"fresh start, {name}"] += 1
        if not all(found.values()):
            raise SystemExit(f"no application has come to its first batch in {ATTEMPTS} attempts")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="applications of each source")
    parser.add_argument(
        "--warm", action="store_true", help="after a stream of Spark's own in the same session"
    )
    options = parser.parse_args()
    python = environment()
    with tempfile.TemporaryDirectory() as scratch, benchmark_kafka(Path(scratch)) as kafka:
        jars = connector_jars(Path(scratch))
        found = fresh_starts(
            python,
            kafka.bootstrap_servers,
            jars,
            Path(scratch),
            options.rounds,
            Counter(),
            is_warm=options.warm,
        )
    print(f"\n| seconds, median of {options.rounds} | {' | '.join(FIGURES)} |")
    print(f"|---|{'---:|' * len(FIGURES)}")
    for name, runs in found.items():
        cells = [f"{statistics.median(run[key] for run in runs):.2f}" for key in FIGURES]
        print(f"| {name} | {' | '.join(cells)} |")
    print(
        f"\npyspark {SPARK_VERSION}, local[2], Apache Kafka {KAFKA_VERSION} on the same machine, {PARTITIONS} "
        f"partitions, {RECORDS:,} records of 100 B, into the noop sink; "
        f"{'after a stream of rate' if options.warm else 'the first work of the session'}."
    )


if __name__ == "__main__":
    main()
