"""Where the time of a ``send`` goes: each thread's processor time for a record, and the steps alone.

    python bench/send.py                 records of 100 B and 1 KiB with keys of 16 B, real Kafka, defaults
    python bench/send.py --profile       and the functions of the network thread that take most, under cProfile

A step alone is repeated on data that the processor's cache holds: it is the least that the step costs.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from itertools import cycle, islice

from harness.ground import real_kafka
from kadence import Producer
from kadence._native.append import murmur2
from kadence.client.network_thread import NetworkThread
from kadence.records import BatchBuilder

SECONDS = 3.0
KEYS = [b"%016d" % number for number in range(10_000)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", action="store_true", help="profile the network thread, which slows it")
    profile = cProfile.Profile() if parser.parse_args().profile else None
    with real_kafka() as ground:
        for size in (100, 1024):
            topic = ground.empty(f"sent-{size}", 8)
            for way in ("send", "send_arrow"):
                stages(ground.bootstrap, topic, size, way, profile)
            steps(size)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def stages(bootstrap: str, topic: str, size: int, way: str, profile: cProfile.Profile | None) -> None:
    """Both threads of a producer that writes for some seconds."""
    network: list[float] = []
    run = NetworkThread._run

    def timed(thread: NetworkThread) -> None:
        began = time.thread_time()
        if profile is not None:
            profile.enable()
        run(thread)
        if profile is not None:
            profile.disable()
        network.append(time.thread_time() - began)

    NetworkThread._run = timed  # type: ignore[method-assign, assignment]
    try:
        with Producer(bootstrap_servers=bootstrap) as producer:
            hand_over = {"send": sender, "send_arrow": table_sender}[way](producer, topic, b"x" * size)
            hand_over()
            producer.flush()
            began, own, records = time.perf_counter(), time.thread_time(), 0
            while time.perf_counter() - began < SECONDS:
                records += hand_over()
            producer.flush()
            seconds, own = time.perf_counter() - began, time.thread_time() - own
    finally:
        NetworkThread._run = run  # type: ignore[method-assign]
    print(
        f"{way}, {size} B: {records / seconds:,.0f} records/s; application {own / records * 1e6:.3f} µs, "
        f"network {network[0] / records * 1e6:.3f} µs"
    )


def sender(producer: Producer, topic: str, value: bytes) -> Callable[[], int]:
    send, keys = producer.send, cycle(KEYS)

    def hand_over() -> int:
        for key in islice(keys, 1000):
            send(topic, value, key)
        return 1000

    return hand_over


def table_sender(producer: Producer, topic: str, value: bytes) -> Callable[[], int]:
    import pyarrow as pa

    table = pa.table(
        {"key": pa.array(KEYS, pa.binary()), "value": pa.array([value] * len(KEYS), pa.binary())}
    )

    def hand_over() -> int:
        producer.send_arrow(table, topic)
        return len(KEYS)

    return hand_over


def steps(size: int) -> None:
    """What the steps of a record cost alone."""
    value, key = b"x" * size, KEYS[0]
    builder = BatchBuilder()
    many = 1_000_000 // (size + 37)
    for _ in range(many):
        builder.append(0, key, value)

    def fill() -> None:
        fresh = BatchBuilder()
        for _ in range(many):
            fresh.append(0, key, value)

    def seal() -> None:
        builder.build_in_place(
            compression="none",
            level=None,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            transactional=False,
        )

    for name, step, records in (
        ("the key's hash", lambda: murmur2(key), 1),
        ("a record encoded, called from Python", fill, many),
        ("a batch sealed (its checksum), for a record", seal, many),
    ):
        count = max(1, 200_000 // records)
        best = float("inf")
        for _ in range(5):
            began = time.thread_time()
            for _ in range(count):
                step()
            best = min(best, (time.thread_time() - began) / count / records)
        print(f"  {name}: {best * 1e6:.3f} µs")


if __name__ == "__main__":
    main()
