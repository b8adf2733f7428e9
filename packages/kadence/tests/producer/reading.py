"""Reads a topic back with somebody else's consumer, so that what the producer wrote is judged by others."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition
from tests.patience import PATIENCE


def read_all(bootstrap_servers: str, topic: str, partitions: int, count: int) -> list[Message]:
    """``count`` records of a topic, partition by partition in order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Message] = []
        while len(found) < count:
            batch = consumer.consume(count - len(found), timeout=PATIENCE)
            assert batch, f"{len(found)} of {count} records came"
            for message in batch:
                assert message.error() is None, message.error()
            found += batch
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()
