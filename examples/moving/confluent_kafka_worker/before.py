"""An invoicing worker with confluent-kafka: orders in, invoices out, offsets committed by hand.

    python examples/moving/confluent_kafka_worker/before.py

``after.py`` is the same worker with Kadence.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")
COMMIT_EVERY = 10

log = logging.getLogger("invoicing")


class Worker:
    """Reads orders and writes invoices until it is stopped."""

    def __init__(self) -> None:
        self.running = True
        self.uncommitted = 0
        self.failed: KafkaError | None = None
        self.consumer = Consumer(
            {
                "bootstrap.servers": SERVERS,
                "group.id": "invoicing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.producer = Producer({"bootstrap.servers": SERVERS, "acks": "all", "enable.idempotence": True})

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT."""
        self.running = False

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Log what this member got."""
        log.info("assigned: %s", [partition.partition for partition in partitions])

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit what is done before another member gets the partitions."""
        log.info("revoked: %s", [partition.partition for partition in partitions])
        self.commit()

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Look at a delivery report."""
        if error is not None:
            self.failed = error
        else:
            print("invoice", (message.key() or b"").decode(), flush=True)

    def work(self, message: Message) -> None:
        """Write the invoice of an order."""
        order = json.loads(message.value() or b"")
        invoice = {"customer": order["customer"], "total": order["price"] * order["count"]}
        while True:
            try:
                self.producer.produce(
                    "invoices", json.dumps(invoice), key=message.key(), on_delivery=self.delivered
                )
                break
            except BufferError:
                self.producer.poll(1.0)
        self.producer.poll(0)
        self.uncommitted += 1

    def commit(self) -> None:
        """Wait until the invoices are written, and commit their orders."""
        if not self.uncommitted:
            return
        self.producer.flush(30)
        if self.failed is not None:
            raise KafkaException(self.failed)
        self.consumer.commit(asynchronous=False)
        self.uncommitted = 0

    def run(self) -> None:
        """Poll until stopped."""
        self.consumer.subscribe(["orders"], on_assign=self.on_assign, on_revoke=self.on_revoke)
        try:
            while self.running:
                message = self.consumer.poll(0.5)
                if message is None:
                    self.commit()
                    continue
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        continue
                    raise KafkaException(error)
                self.work(message)
                if self.uncommitted >= COMMIT_EVERY:
                    self.commit()
            self.commit()
        finally:
            self.consumer.close()


def main() -> None:
    """Run a worker that ends on SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    worker = Worker()
    signal.signal(signal.SIGTERM, worker.stop)
    signal.signal(signal.SIGINT, worker.stop)
    worker.run()


if __name__ == "__main__":
    main()
