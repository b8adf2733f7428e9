"""A worker with pyrallel-consumer, which needs Python 3.12 or newer: coroutines, or processes."""

from __future__ import annotations

import asyncio
import sys
import time

from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer
from pyrallel_consumer.dto import ExecutionMode, WorkItem

import told

ORDERS = {"key": "key_hash", "partition": "partition", "none": "unordered"}
handled = told.Counter()


async def handle(item: WorkItem) -> None:
    if wait := float(sys.argv[4]):
        await asyncio.sleep(wait)
    handled.add()


def handle_in_a_process(item: WorkItem) -> None:
    if wait := float(sys.argv[4]):
        time.sleep(wait)


async def main() -> None:
    bootstrap, topic, group, _wait, workers, order, executor = sys.argv[1:]
    config = KafkaConfig(BOOTSTRAP_SERVERS=bootstrap, CONSUMER_GROUP=group, dlq_enabled=False)
    parallel = config.parallel_consumer
    parallel.ordering_mode = ORDERS[order]
    parallel.worker_pool_size = int(workers)
    execution = parallel.execution
    if executor == "processes":
        execution.mode = ExecutionMode.PROCESS
        execution.process_config.process_count = int(workers)
    else:
        # What runs at once is bounded by what is in flight.
        execution.mode = ExecutionMode.ASYNC
        execution.max_in_flight = int(workers)
        handled.tell()
    consumer = PyrallelConsumer(
        config=config, worker=handle_in_a_process if executor == "processes" else handle, topic=topic
    )
    await consumer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
