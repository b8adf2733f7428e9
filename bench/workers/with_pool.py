"""The worker that everybody writes first: confluent-kafka polls, a thread pool works, and auto-commit commits.

It keeps no order, and it loses records in a crash, for it commits what has begun. So it does less than the others do.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Consumer, Message

import told

COMMIT_MS = 500


def main() -> None:
    bootstrap, topic, group, wait, workers, _order, _executor = sys.argv[1:]
    seconds, most = float(wait), int(workers)
    handled = told.Counter()
    # A pool takes any number of tasks; without a bound the whole topic would lie in it.
    room = threading.Semaphore(2 * most)

    def handle(message: Message) -> None:
        if seconds:
            time.sleep(seconds)
        handled.add()

    def end(_: Future[None]) -> None:
        room.release()

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
        }
    )
    consumer.subscribe([topic])
    handled.tell()
    with ThreadPoolExecutor(most) as pool:
        while True:
            for message in consumer.consume(500, 0.1):
                room.acquire()
                pool.submit(handle, message).add_done_callback(end)


if __name__ == "__main__":
    main()
