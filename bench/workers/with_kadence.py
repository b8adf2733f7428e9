"""A worker as Kadence has it: ``Consumer.process``, its handlers on threads, on an event loop or in processes."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import told
from kadence import Consumer, Record

COMMIT_MS = 500
SECONDS = float(sys.argv[4])
handled = told.Counter()


def handle(record: Record) -> None:
    if SECONDS:
        time.sleep(SECONDS)
    handled.add()


async def handle_on_loop(record: Record) -> None:
    if SECONDS:
        await asyncio.sleep(SECONDS)
    handled.add()


def main() -> None:
    order: Any
    executor: Any
    bootstrap, topic, group, _wait, workers, order, executor = sys.argv[1:]
    with Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
    ) as consumer:
        consumer.subscribe(topic)
        if executor != "processes":
            # What a handler counts in another process stays there.
            handled.tell()
        consumer.process(
            handle_on_loop if executor == "loop" else handle,
            workers=int(workers),
            order=order,
            executor=executor,
        )


if __name__ == "__main__":
    main()
