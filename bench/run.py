"""Kadence beside the other clients on one real Kafka, in one run: ``make bench``.

    python bench/run.py                                       every row, about ten minutes
    python bench/run.py --rows iteration latency --lines kadence confluent
    python bench/run.py --quick                               every row, small and rough, about four minutes
    python bench/run.py --rows polls --against ../before/src  two checkouts of Kadence, taking turns
    python bench/run.py --rows latency --lines kadence --python build/pythons/3.14t/bin/python
    python bench/run.py --write bench/NOTES.md            and the tables go into the notes

Broker and clients share one machine: read ratios, not absolutes. A row that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
import traceback
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.ground import Ground, real_kafka
from harness.plan import Options, Row, beside_another, beside_other_pythons
from harness.table import Goal, Table, goals_table, write_section
from kadence_testing.kafka import KAFKA_VERSION

ROWS = (
    "polls",
    "iteration",
    "iteration_async",
    "iteration_settings",
    "single",
    "commits",
    "roundtrips",
    "arrow",
    "latency",
    "hold",
    "idle",
    "partitions",
    "produce",
    "many_topics",
    "work",
    "share",
    "start",
)
QUICK = Options(records=1_000_000, seconds=1.0, rounds=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Options()
    parser.add_argument(
        "--rows", nargs="*", choices=ROWS, default=list(ROWS), help="what to measure; all by default"
    )
    parser.add_argument("--lines", nargs="*", default=[], help="only clients whose names begin so")
    parser.add_argument("--quick", action="store_true", help="fewer records, shorter runs, one round")
    parser.add_argument(
        "--records", type=int, help=f"records of 100 B, a fifth as many of 1 KiB ({usual.records:,})"
    )
    parser.add_argument("--seconds", type=float, help=f"longest run of one client ({usual.seconds:g})")
    parser.add_argument(
        "--rounds", type=int, help=f"runs of each client, of which the best counts ({usual.rounds})"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this Markdown file")
    parser.add_argument(
        "--against", type=Path, metavar="SRC", help="run Kadence once more, from another checkout's src"
    )
    parser.add_argument(
        "--python",
        nargs="*",
        default=[],
        metavar="PYTHON",
        help="run Kadence once more with each of these, the environments of `make test-pythons` for example",
    )
    chosen = parser.parse_args()
    options = replace(QUICK if chosen.quick else usual, lines=tuple(chosen.lines))
    given = {name: getattr(chosen, name) for name in ("records", "seconds", "rounds")}
    options = replace(options, **{name: value for name, value in given.items() if value is not None})
    for name in chosen.rows:
        lines = importlib.import_module(f"rows.{name}").ROW.lines
        if chosen.against:
            beside_another(lines, chosen.against.resolve())
        beside_other_pythons(lines, chosen.python)
    with real_kafka() as ground:
        failed = measure(ground, options, chosen.rows, chosen.write)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def measure(ground: Ground, options: Options, rows: list[str], write: Path | None) -> list[str]:
    """Run the rows, print their tables, write them where asked; the names of those that failed."""
    about = conditions(options)
    print(about, flush=True)
    goals: list[Goal] = []
    failed = []
    for number, name in enumerate(rows, 1):
        began = time.perf_counter()
        print(f"\n{name} ({number} of {len(rows)})", flush=True)
        row: Row = importlib.import_module(f"rows.{name}").ROW
        try:
            tables, reached = row.measure(ground, options)
        except Exception:  # noqa: BLE001  (the other rows are still worth measuring)
            traceback.print_exc()
            failed.append(name)
            continue
        goals += reached
        show(tables)
        print(f"{name} took {time.perf_counter() - began:.0f} s", flush=True)
        if write:
            command = f"make bench ARGS='--rows {name}'"
            write_section(write, name, command, [table.markdown() for table in tables])
    if goals:
        show([goals_table(goals)])
    if write and set(rows) == set(ROWS):
        write_section(write, "goals", "make bench", [about, goals_table(goals).markdown()])
    return failed


def show(tables: list[Table]) -> None:
    for table in tables:
        print(f"\n{table.text()}", flush=True)
        for note in table.notes:
            print(note, flush=True)


def conditions(options: Options) -> str:
    """What was measured with what, for the reader of the tables."""
    names = ("kadence", "confluent-kafka", "aiokafka", "kafka-python", "crc32c")
    clients = ", ".join(installed(name) for name in names)
    return (
        f"Apache Kafka {KAFKA_VERSION} on the same machine ({os.cpu_count()} processors), 8 partitions, uncompressed, "
        f"16-byte keys; {options.records:,} records of 100 B and {options.records // 5:,} of 1 KiB; fresh group, from "
        f"the start, every client with its defaults where nothing is said; key, value and offset of each record "
        f"touched; best of {options.rounds} runs (one of the slow peers), {options.seconds:g} s each at most. "
        f"CPython {platform.python_version()}, {platform.machine()}; {clients}; Kadence "
        "checks CRCs. Work of 3 µs is calibrated in each client's own process."
    )


def installed(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution} (absent)"


if __name__ == "__main__":
    main()
