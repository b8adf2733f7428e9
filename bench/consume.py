"""Catch-up read: Kadence beside the other clients, on one real Kafka topic, in one run.

    python bench/consume.py                     everything, about ten minutes
    python bench/consume.py --clients kadence confluent-best --cases 100B --rounds 1
    python bench/consume.py --write docs/benchmarks.md

Prints records per second, the ratio to confluent-kafka's best settings, CPU per record and peak memory.
The broker shares the machine with the client: read ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import clients
from kadence.testing.kafka import KAFKA_VERSION, Kafka
from report import Row, markdown, text_table, write_section
from topics import benchmark_kafka, fill

WORK_MICROSECONDS = 3.0
YARDSTICK = "confluent-best"
PYTHON_CLIENTS = ("kadence", "confluent-best", "confluent-default", "aiokafka", "kafka-python")
JAVA_CLASS = "org.apache.kafka.tools.ConsumerPerformance"

DESCRIPTIONS = {
    "kadence": "Kadence, objects (`poll`, defaults)",
    "kadence-plain": "Kadence, objects, no extension",
    "kadence-arrow": "Kadence, Arrow (`poll_arrow`, 20,000 at most)",
    "kadence-arrow-best": "Kadence, Arrow, 128 MiB of buffer, fetches of 8 MiB",
    "confluent-best": "confluent-kafka, queues raised, `consume(500)`, no CRC check",
    "confluent-default": "confluent-kafka, defaults, `consume(500)`, no CRC check",
    "aiokafka": "aiokafka, `getmany(500)`",
    "kafka-python": "kafka-python with crc32c, `poll(500)`",
    "java-classic": "Java, classic protocol (ConsumerPerformance; CPU with JVM start)",
    "java-new": "Java, new protocol (ConsumerPerformance; CPU with JVM start)",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One column of the comparison: a record size, and whether work is done and TLS is used."""

    name: str
    title: str
    size: int
    work: bool
    tls: bool
    clients: tuple[str, ...]


CASES = (
    Case("100B", "100 B values", 100, False, False, tuple(clients.CLIENTS)),
    Case("1KiB", "1 KiB values", 1024, False, False, tuple(clients.CLIENTS)),
    Case("100B-work", "100 B values, 3 µs of Python per record", 100, True, False, PYTHON_CLIENTS),
    Case("100B-work-tls", "100 B values, 3 µs of Python per record, TLS", 100, True, True, PYTHON_CLIENTS),
    Case("1KiB-work", "1 KiB values, 3 µs of Python per record", 1024, True, False, PYTHON_CLIENTS),
    Case("1KiB-work-tls", "1 KiB values, 3 µs of Python per record, TLS", 1024, True, True, PYTHON_CLIENTS),
)


def turns_for(microseconds: float) -> int:
    """Turns of the empty loop for which one call of `clients.spin` takes so long on this machine.

    Found by calls of that very length: CPython keeps small integers, so a short loop's turns are cheaper
    than a long one's. The best of several, so that noise does not shrink the work.
    """
    calls, turns = 1000, 100
    for _ in range(6):
        best = float("inf")
        for _ in range(50):
            started = time.perf_counter()
            for _ in range(calls):
                clients.spin(turns)
            best = min(best, time.perf_counter() - started)
        turns = round(turns * microseconds * 1e-6 / (best / calls))
    return turns


def measure(kafka: Kafka, case: Case, options: argparse.Namespace, work: int, certificate: Path) -> list[Row]:
    """All clients of a case, the rounds interleaved so that a slow minute of the machine hits all alike."""
    total = options.records if case.size == 100 else options.records // 5
    results: dict[str, list[clients.Result]] = {}
    failures: dict[str, str] = {}
    names = [name for name in case.clients if not options.clients or name in options.clients]
    for turn in range(options.rounds):
        for name in names:
            plan = clients.Plan(
                bootstrap=kafka.addresses["TLS" if case.tls else "PLAINTEXT"],
                topic=f"values-{case.size}",
                # The last records are left: a tail shorter than one batch would time the timeout.
                count=total - total // 10,
                seconds=options.seconds,
                group=f"bench-{case.name}-{name}-{turn}",
                work=work if case.work else 0,
                ca=str(certificate) if case.tls else "",
                java=tuple(kafka.tool_command(JAVA_CLASS)) if name.startswith("java") else (),
            )
            outcome = clients.run(name, plan)
            if isinstance(outcome, str):
                failures[name] = outcome
                print(f"  {case.name} {name}: FAILED: {outcome}", flush=True)
                continue
            results.setdefault(name, []).append(outcome)
            print(f"  {case.name} {name}: {outcome.records / outcome.seconds:,.0f} records/s", flush=True)
    best = {name: max(runs, key=lambda run: run.records / run.seconds) for name, runs in results.items()}
    yardstick = best.get(YARDSTICK)
    reference = yardstick.records / yardstick.seconds if yardstick else None
    return [row(DESCRIPTIONS[name], best.get(name), failures.get(name, ""), reference) for name in names]


def row(title: str, run: clients.Result | None, failure: str, reference: float | None) -> Row:
    if run is None:
        return Row(title, failure, None, None, None, reference)
    cpu = run.cpu_seconds / run.records * 1e6
    return Row(title, "", run.records / run.seconds, cpu, run.peak_rss_mb, reference)


def installed(distribution: str) -> str:
    try:
        return f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        return f"{distribution} (absent)"


def conditions(options: argparse.Namespace, work: int) -> str:
    """What was measured with what, for the reader of the table."""
    import kadence.records

    peers = ", ".join(installed(name) for name in ("confluent-kafka", "aiokafka", "kafka-python", "crc32c"))
    return (
        f"Apache Kafka {KAFKA_VERSION} on the same machine, 8 partitions, uncompressed, 16-byte keys; "
        f"{options.records:,} records of 100 B and {options.records // 5:,} of 1 KiB; fresh group, from the start; "
        f"key, value and offset of each record touched; best of {options.rounds}; at most {options.seconds:g} s each. "
        f"CPython {platform.python_version()}, {platform.machine()}; {installed('kadence')} "
        f"({kadence.records.IMPLEMENTATION} decoder, CRC checked), {peers}. "
        f"Work is {work} turns of an empty loop, {WORK_MICROSECONDS:g} µs alone."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--records", type=int, default=5_000_000, help="100 B records; a fifth as many of 1 KiB"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="longest time for one client in one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES], default=[])
    parser.add_argument("--clients", nargs="*", choices=list(clients.CLIENTS), default=[])
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this Markdown file")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    work = turns_for(WORK_MICROSECONDS)
    sections = []
    with tempfile.TemporaryDirectory() as scratch, benchmark_kafka(Path(scratch)) as kafka:
        for size in sorted({case.size for case in cases}):
            print(f"filling a topic with values of {size} B", flush=True)
            count = options.records if size == 100 else options.records // 5
            fill(kafka.bootstrap_servers, f"values-{size}", size, count)
        for case in cases:
            rows = measure(kafka, case, options, work, Path(scratch) / "certificate.pem")
            print(f"\n{case.title}\n{text_table(rows)}\n", flush=True)
            sections.append(f"### {case.title}\n\n{markdown(rows)}")
    about = conditions(options, work)
    print(about)
    if options.write:
        write_section(options.write, "consume", "make bench", [about, *sections])


if __name__ == "__main__":
    main()
