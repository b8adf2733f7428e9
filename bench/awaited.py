"""What an awaited record and a commit cost in calls of Python functions, on the application's thread and the network's.

    python bench/awaited.py [--records 200] [--interval 0.05] [--tops 20]

An embedded broker and a producer, in a process of their own, send one record at a time to a consumer that waits for it
in ``poll(1)``. The consumer's process counts each call of a Python function (`sys.setprofile`); calls of compiled ones
are no such calls. The counts are those of the code, not of the machine: how busy that is changes only how often the
network thread has something to do meanwhile, by little. Then the member of a group reads the same records again, and
waits for the commit of each. Below the sums stand the functions that were called most often, for each thread.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from itertools import islice
from multiprocessing.connection import Connection

from harness.threads import APPLICATION, NETWORK, CallsByFunction
from kadence import Broker, Consumer, Producer, TopicPartition

TOPIC = "awaited"
WARM_UP = 20


def serve(pipe: Connection, records: int, interval: float) -> None:
    """Sends a record, waits for the interval, and so on, from the first word of the other side on."""
    with (
        Broker(topics={TOPIC: 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
    ):
        pipe.send(broker.bootstrap_servers)
        pipe.recv()
        for _ in range(records):
            producer.send(TOPIC, bytes(100))
            time.sleep(interval)
        # Until the other side has seen them all.
        pipe.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--interval", type=float, default=0.05, help="seconds between two records")
    parser.add_argument("--tops", type=int, default=20, help="how many functions of each thread to name")
    asked = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, WARM_UP + asked.records, asked.interval), daemon=True
    )
    server.start()
    servers = ours.recv()
    calls = CallsByFunction()
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        ours.send("begin")
        read = 0
        while read < WARM_UP:
            read += len(consumer.poll(1))
        before, polls, read = calls.look(), 0, 0
        while read < asked.records:
            found = len(consumer.poll(1))
            read += found
            polls += bool(found)
        awaited = calls.told(calls.look(), before)
    with Consumer(
        bootstrap_servers=servers,
        group_id="committing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(TOPIC)
        for record in islice(consumer, WARM_UP):
            consumer.commit(record)
        before = calls.look()
        for record in islice(consumer, asked.records):
            consumer.commit(record)
        committed = calls.told(calls.look(), before)
    calls.stop()
    ours.send("end")
    server.join(10)
    show(f"{read} records in {polls} polls", awaited, read, asked.tops)
    if polls < read:
        print("(some polls returned several: the machine is busy, and the figures are too low)")
    show(f"\n{asked.records} commits, each waited for", committed, asked.records, asked.tops)


def show(what: str, calls: dict[str, Counter[str]], count: int, tops: int) -> None:
    print(f"{what}; calls of Python functions for each:")
    sums = {kind: sum(calls[kind].values()) / count for kind in (APPLICATION, NETWORK)}
    for kind, total in sums.items():
        print(f"  {kind:12} {total:7.1f}")
    print(f"  {'together':12} {sum(sums.values()):7.1f}")
    for kind in sums:
        print(f"\n{kind}")
        for name, times in calls[kind].most_common(tops):
            print(f"  {times / count:7.2f}  {name}")


if __name__ == "__main__":
    main()
