"""Transactional producers that others wrote, on our broker: what they commit is read, what they abort is not."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Callable

import aiokafka
import confluent_kafka
import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, Broker, Consumer, TopicPartition

with warnings.catch_warnings():
    # It reads its own schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as kafka_python


def read(servers: str, topic: str) -> list[bytes | None]:
    """What our consumer reads of what is committed, up to the end that it is shown."""
    tp = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        end = reader.end_offsets([tp])[tp]
        reader.assign({tp: (0, end)})
        values: list[bytes | None] = []
        while reader.position(tp) < end:
            values += [record.value for record in reader.poll(PATIENCE)]
        return values


def by_confluent(servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(topic, 0, number + 1)],
            confluent_kafka.Consumer(
                {"bootstrap.servers": servers, "group.id": topic}
            ).consumer_group_metadata(),
            PATIENCE,
        )
        producer.flush(PATIENCE)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE)


def by_kafka_python(servers: str, topic: str) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        offsets = {kafka_python.TopicPartition(topic, 0): kafka_python.OffsetAndMetadata(number + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, topic)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.close()


def by_aiokafka(servers: str, topic: str) -> None:
    async def run() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction(
                    {aiokafka.TopicPartition(topic, 0): number + 1}, topic
                )
                await (producer.abort_transaction if number % 2 else producer.commit_transaction)()

    asyncio.run(run())


@pytest.mark.parametrize("produce", [by_confluent, by_kafka_python, by_aiokafka])
def test_what_they_commit_is_read(broker: Broker, produce: Callable[[str, str], None]) -> None:
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic)
    produce(broker.bootstrap_servers, topic)
    until(lambda: read(broker.bootstrap_servers, topic) == [b"0", b"2"], what="what was committed is read")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_consumer_group_offsets(topic)[TopicPartition(topic, 0)].offset == 3, (
            "offsets of the last commit"
        )
