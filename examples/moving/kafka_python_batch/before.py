"""A daily report with kafka-python: sales since a time, summed by shop, written to a topic that it creates.

    python examples/moving/kafka_python_batch/before.py 1767225600000

``after.py`` is the same report with Kadence.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


def create(topic: str) -> None:
    """Create the topic of reports, unless it is there."""
    admin = KafkaAdminClient(bootstrap_servers=SERVERS)
    try:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    except TopicAlreadyExistsError:
        pass
    finally:
        admin.close()


def sums_since(since_ms: int) -> Counter[str]:
    """The cents of each shop, from the first sale at or after a time."""
    sums: Counter[str] = Counter()
    consumer = KafkaConsumer(
        bootstrap_servers=SERVERS,
        enable_auto_commit=False,
        consumer_timeout_ms=3000,
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
    )
    try:
        found = consumer.partitions_for_topic("sales")
        if not found:
            sys.exit("there is no topic sales")
        partitions = [TopicPartition("sales", number) for number in sorted(found)]
        consumer.assign(partitions)
        starts = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        for partition in partitions:
            start = starts[partition]
            if start is None:
                consumer.seek_to_end(partition)
            else:
                consumer.seek(partition, start.offset)
        for record in consumer:
            sums[record.key] += record.value["cents"]
    finally:
        consumer.close()
    return sums


def write(topic: str, sums: Counter[str]) -> None:
    """Write a record for each shop, and wait for all of them."""
    producer = KafkaProducer(
        bootstrap_servers=SERVERS,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
    )
    futures = [producer.send(topic, {"cents": cents}, key=shop) for shop, cents in sorted(sums.items())]
    for future in futures:
        future.get(timeout=30)
    producer.close()


def main(since_ms: str) -> None:
    """Make the report."""
    create("reports")
    sums = sums_since(int(since_ms))
    write("reports", sums)
    for shop, cents in sorted(sums.items()):
        print(shop, cents)


if __name__ == "__main__":
    main(*sys.argv[1:])
