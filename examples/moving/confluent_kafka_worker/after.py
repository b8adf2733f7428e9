"""The same worker with Kadence.

    python examples/moving/confluent_kafka_worker/after.py

What became of the old parts:

* `stop_on_signals` replaces the flag and its handlers, and limits the time of the last commit and of leaving the group.
* `poll` raises errors, and there is no event at the end of a partition.
* `send` waits while its buffer is full, and returns a future; here the future's result replaces the delivery report.
* `poll` returns many records, which are committed before the next poll. Partitions are revoked inside `poll`, so the
  listener has nothing to commit and only logs.
* ``partitioner="consistent_random"``: keys go to the same partitions as with librdkafka.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection

from kadence import Consumer, Producer, Record, RecordFuture, TopicPartition, stop_on_signals

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")

log = logging.getLogger("invoicing")


class Told:
    """Logs which partitions this member gets and gives up."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """New partitions."""
        log.info("assigned: %s", [partition.partition for partition in partitions])

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions that this member gives up. Their records are done and committed."""
        log.info("revoked: %s", [partition.partition for partition in partitions])

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions that another member may already have."""
        log.warning("lost: %s", [partition.partition for partition in partitions])


def work(producer: Producer, order: Record) -> RecordFuture:
    """Write the invoice of an order."""
    value = json.loads(order.value)
    invoice = {"customer": value["customer"], "total": value["price"] * value["count"]}
    return producer.send("invoices", json.dumps(invoice).encode(), key=order.key)


def main() -> None:
    """Run a worker that ends on SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    with (
        stop_on_signals(grace=25),
        Producer(bootstrap_servers=SERVERS, partitioner="consistent_random") as producer,
        Consumer(
            bootstrap_servers=SERVERS,
            group_id="invoicing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        consumer.subscribe("orders", listener=Told())
        while not consumer.stopping:
            orders = consumer.poll(0.5)
            written = [(order, work(producer, order)) for order in orders]
            for order, future in written:
                future.result(timeout=30)
                print("invoice", order.key.decode(), flush=True)
            if orders:
                consumer.commit(orders)


if __name__ == "__main__":
    main()
