"""The three prefetch heuristics side by side: ``prefetch.heuristic`` = bytes, total, partition.

    python bench/prefetch.py [--records 400000] [--rounds 3] [--write docs/benchmarks.md]

An embedded broker in a process of its own; each fetch takes the named time, as over a network. Eight partitions: even,
or nine tenths of the records in the first. *Others* is when the seven small ones were read to their end: what a
partition with a mountain of data does to its neighbours. Best of the rounds, which take turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

from harness.table import write_section
from kadence import Broker, Consumer, Producer, TopicPartition
from kadence.protocol.fetch import FetchRequest

HEURISTICS = ("bytes", "total", "partition")
PARTITIONS = 8
SIZE = 100


def serve(pipe: Connection, records: int, delay: float) -> None:
    with Broker(topics={"even": PARTITIONS, "uneven": PARTITIONS}) as broker:
        value = bytes(SIZE)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20) as producer:
            for number in range(records):
                producer.send("even", value, partition=number % PARTITIONS)
                small = number % 10 == 0
                producer.send("uneven", value, partition=1 + number // 10 % (PARTITIONS - 1) if small else 0)
        with broker.faults.delay(FetchRequest, delay) if delay else nullcontext():
            pipe.send(broker.bootstrap_servers)
            pipe.recv()


def read(servers: str, topic: str, heuristic: str, records: int) -> tuple[float, float]:
    """Seconds until everything was read, and until the last record of all partitions but the first."""
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", prefetch_heuristic=heuristic
    ) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        began = time.perf_counter()
        others, left = 0.0, records
        while left:
            polled = consumer.poll(30)
            if not polled:
                raise SystemExit(f"{heuristic}: nothing came for 30 s")
            left -= len(polled)
            if any(partition.partition for partition in polled.by_partition()):
                others = time.perf_counter() - began
        return time.perf_counter() - began, others


def measure(records: int, delay: float, rounds: int) -> list[tuple[str, ...]]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, records, delay))
    server.start()
    try:
        servers = ours.recv()
        rows: list[tuple[str, ...]] = []
        for topic in ("even", "uneven"):
            best = {name: (float("inf"), float("inf")) for name in HEURISTICS}
            for _ in range(rounds):
                for name in HEURISTICS:
                    best[name] = min(best[name], read(servers, topic, name, records))
            for name, (whole, others) in best.items():
                rows.append(
                    (
                        f"{delay * 1000:.0f} ms",
                        topic,
                        name,
                        f"{records / whole / 1000:,.0f} k",
                        f"{others:.2f}",
                    )
                )
        return rows
    finally:
        ours.send(None)
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = [("fetch takes", "records", "heuristic", "records/s", "others, s")]
    for delay in (0.0, 0.02):
        rows += measure(options.records, delay, options.rounds)
    for row in rows:
        print("  ".join(cell.rjust(12) for cell in row))
    if options.write is not None:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|---|---|---|---:|---:|")
        what = f"{options.records:,} records of {SIZE} B in {PARTITIONS} partitions, max.poll.records=500."
        command = f"python bench/prefetch.py --records {options.records} --rounds {options.rounds}"
        write_section(options.write, "prefetch", command, [what, "\n".join(lines)])


if __name__ == "__main__":
    main()
