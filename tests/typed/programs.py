"""Programs as users write them, for type checkers alone: tests/typed/test_programs.py has mypy and pyright read them.

A line that ends with ``# error: WORDS`` must be reported, in words that have these; no other line may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_type

from kadence import (
    AcknowledgeType,
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncRebalanceListener,
    AsyncShareConsumer,
    Consumer,
    ConsumerSettings,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    Record,
    RecordMetadata,
    Records,
    ShareConsumer,
    ShareConsumerSettings,
    Stall,
    SubscriptionPattern,
    Token,
    TopicPartition,
    deserializers,
)


@dataclass
class Order:
    number: int

    @classmethod
    def parse(cls, data: bytes) -> Order:
        return cls(int(data))


class Numbers:
    def deserialize(self, topic: str, headers: object, data: bytes) -> int:
        return int(data)


PARTITION = TopicPartition("orders", 0)


# ------------------------------------------------------------ settings as keywords


def stalled(stall: Stall) -> None:
    print(stall.in_hand)


class Audit:
    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        print(offsets)


def settings() -> None:
    Consumer(bootstrap_servers="a:9092,b:9092", group_id="g", session_timeout_ms=10_000)
    Consumer(bootstrap_servers=["a:9092", "b:9092"], session_timeout_ms="10000", check_crcs="false")
    Consumer(max_poll_records="auto", max_poll_records_ratio=0.3, stall_report_ratio="0.25")
    Consumer(auto_offset_reset="by_duration:PT1H", isolation_level="READ_COMMITTED", group_id=None)
    Consumer(partition_assignment_strategy="range,sticky", stall_report_callback=stalled)
    Consumer(partition_assignment_strategy=["range", "sticky"], interceptors=[Audit(), Audit])
    Consumer(sasl_oauthbearer_token_provider=lambda: Token("abc", 1_000))
    Consumer({"bootstrap.servers": "a:9092"}, group_id="g")
    Producer(bootstrap_servers="a:9092", acks=1, linger_ms="5", enable_idempotence=False)
    Admin(bootstrap_servers=("a:9092",), client_id="tool")
    common: ConsumerSettings = {"bootstrap_servers": "a:9092", "group_id": "g"}
    Consumer(**common)
    Consumer(group_idd="g")  # error: group_idd
    Consumer(group_id=5)  # error: group_id
    Consumer(session_timeout_ms=b"5")  # error: session_timeout_ms
    Consumer(enable_auto_commit=None)  # error: enable_auto_commit
    Consumer(interceptors=[5])  # error: int
    Consumer(stall_report_callback=len)  # error: stall_report_callback
    Consumer(acks="all")  # error: acks
    Consumer("orders")  # error: Mapping[str, Any]
    AsyncConsumer(group_idd="g")  # error: group_idd
    Producer(group_id="g")  # error: group_id
    AsyncProducer(linger=5)  # error: linger
    Admin(transactional_id="t")  # error: transactional_id
    wrong: ConsumerSettings = {"groupid": "g"}  # error: groupid
    print(wrong)


# ------------------------------------------------------------ records follow their deserialisers


def types_of_records() -> None:
    plain = Consumer(bootstrap_servers="a:9092")
    assert_type(plain, Consumer[bytes, bytes])
    for record in plain:
        print(record.value.decode(), record.key is None)
        text: str = record.value  # error: str
        print(text)
    orders = Consumer(bootstrap_servers="a:9092", value_deserializer=Order.parse)
    assert_type(orders, Consumer[bytes, Order])
    for found in orders.poll(1.0):
        print(found.value.number)
        print(found.value.amount)  # error: amount
    assert_type(Consumer(key_deserializer=deserializers.string), Consumer[str, bytes])
    assert_type(Consumer(key_deserializer=str, value_deserializer=int), Consumer[str, int])
    assert_type(Consumer(value_deserializer=Numbers()), Consumer[bytes, int])
    assert_type(Consumer(value_deserializer=Numbers), Consumer[bytes, int])
    assert_type(Consumer(value_deserializer=json.loads), Consumer[bytes, Any])
    assert_type(Consumer(value_deserializer="json", key_deserializer="string"), Consumer[Any, Any])
    assert_type(Consumer(value_deserializer=lambda data: data.decode()), Consumer[bytes, str])
    Consumer(value_deserializer=5)  # error: value_deserializer
    Consumer(value_deserializer=lambda: 5)  # error: value_deserializer
    annotated: Consumer[str, Order] = Consumer(
        {"value.deserializer": Order.parse, "key.deserializer": "string"}
    )
    wanted: Consumer[str, Order] = Consumer(value_deserializer=int)  # error: Order
    print(wanted)
    assert_type(annotated.poll(), Records[str, Order])
    made = Consumer[str, Order]({"bootstrap.servers": "a:9092"})
    assert_type(next(made), Record[str, Order])
    work(plain)
    work(orders)  # error: Order
    anything(orders)


def work(consumer: Consumer) -> None:
    assert_type(next(consumer), Record[bytes, bytes])


def anything(consumer: Consumer[Any, Any]) -> list[Record[Any, Any]]:
    return list(consumer.records(idle_timeout=1))


async def types_of_records_for_asyncio() -> None:
    async with AsyncConsumer(value_deserializer=Order.parse) as consumer:
        assert_type(consumer, AsyncConsumer[bytes, Order])
        async for record in consumer:
            assert_type(record, Record[bytes, Order])
        async for record in consumer.records(idle_timeout=1.5):
            print(record.value.number)
        assert_type(await consumer.poll(1), Records[bytes, Order])


# ------------------------------------------------------------ listeners and callbacks


class Told(RebalanceListener):
    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        print(partitions)


class ToldLater(AsyncRebalanceListener):
    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        print(partitions)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        print(partitions)


class Whole:
    """No subclass, but all the methods."""

    def on_partitions_revoked(self, gone: list[TopicPartition]) -> None: ...

    def on_partitions_assigned(self, new: list[TopicPartition]) -> None: ...

    def on_partitions_lost(self, gone: list[TopicPartition]) -> None: ...


class Half:
    def on_partitions_revoked(self, gone: list[TopicPartition]) -> None: ...


def committed(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    print(offsets, error)


async def committed_later(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None
) -> None:
    print(offsets, error)


def listeners(consumer: Consumer) -> None:
    consumer.subscribe("orders", listener=Told())
    consumer.subscribe(["orders"], listener=Whole())
    consumer.subscribe(re.compile("orders-.*"), listener=None)
    consumer.subscribe(SubscriptionPattern("orders-.*"))
    consumer.commit_async(callback=committed)
    consumer.subscribe("orders", listener=ToldLater())  # error: ToldLater
    consumer.subscribe("orders", listener=Half())  # error: Half
    consumer.subscribe("orders", listener=Told)  # error: Told
    consumer.subscribe(5)  # error: subscribe
    consumer.commit_async(callback=5)  # error: commit_async


async def listeners_for_asyncio(consumer: AsyncConsumer) -> None:
    await consumer.subscribe("orders", listener=ToldLater())
    await consumer.subscribe("orders", listener=Told())
    await consumer.subscribe("orders", listener=Whole())
    consumer.commit_async({PARTITION: 5}, committed_later)
    consumer.commit_async(callback=committed)
    await consumer.subscribe("orders", listener=Half())  # error: Half


# ------------------------------------------------------------ what calls take


def calls(consumer: Consumer, records: Records, offset: OffsetAndMetadata) -> None:
    consumer.assign(PARTITION)
    consumer.assign([PARTITION, ("orders", 1)])
    consumer.assign({PARTITION: 5, TopicPartition("orders", 1): (5, 10)})
    consumer.assign({("orders", 0): offset})
    consumer.incremental_unassign(PARTITION)
    consumer.pause({PARTITION})
    consumer.seek(PARTITION, 5)
    consumer.seek(("orders", 0), offset)
    consumer.commit()
    consumer.commit({PARTITION: 5})
    consumer.commit({("orders", 0): offset})
    consumer.commit(records)
    consumer.commit(next(consumer))
    consumer.commit(list(records))
    ends: dict[TopicPartition, int] = consumer.end_offsets([PARTITION])
    consumer.commit(ends)
    consumer.offsets_for_times({PARTITION: 1_700_000_000_000})
    consumer.offsets_for_times({("orders", 0): 1_700_000_000_000})
    consumer.assign(["orders"])  # error: str
    consumer.assign(5)  # error: assign
    consumer.seek("orders", 5)  # error: seek
    consumer.commit(5)  # error: commit
    consumer.commit({"orders": 5})  # error: commit
    consumer.poll("1")  # error: poll
    for record in records:
        print(record.offset + record.partition, record.topic.upper())


def admin_calls(admin: Admin) -> None:
    admin.create_topics("orders")
    admin.create_topics({"orders": 3})
    admin.create_topics([NewTopic("orders", 3), "others"])
    admin.delete_topics("orders")
    admin.describe_consumer_groups(["g", "h"])
    admin.list_offsets(dict.fromkeys([PARTITION], "latest"))
    admin.list_offsets({("orders", 0): "earliest", ("orders", 1): 1_700_000_000_000})
    admin.alter_consumer_group_offsets("g", {PARTITION: 5})
    admin.log_ranges(PARTITION)
    admin.list_offsets({PARTITION: "newest"})  # error: newest
    admin.delete_topics(5)  # error: delete_topics


def producing(producer: Producer) -> None:
    future = producer.send("orders", b"1", key=b"k", headers={"trace": b"x"})
    assert_type(future.result(5), RecordMetadata)
    producer.send("orders", value=None, headers=[("trace", None)])
    producer.send(b"orders")  # error: send
    producer.flush("5")  # error: flush


# ------------------------------------------------------------ queues


def told(partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
    print(partition, offsets, error)


async def told_later(partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
    print(partition, offsets, error)


def queue() -> None:
    settings: ShareConsumerSettings = {"bootstrap_servers": "a:9092", "share_acquire_mode": "record_limit"}
    ShareConsumer(**settings)
    ShareConsumer(group_id="q", share_acknowledgement_mode="explicit", share_lock_renewal="false")
    ShareConsumer(group_id="q", auto_offset_reset="latest")  # error: auto_offset_reset
    consumer = ShareConsumer({"group.id": "q"}, value_deserializer=Order.parse)
    assert_type(consumer, ShareConsumer[bytes, Order])
    for record in consumer:
        assert_type(record, Record[bytes, Order])
        assert_type(record.delivery_count, int | None)
        consumer.acknowledge(record)
        consumer.acknowledge(record, AcknowledgeType.RELEASE)
        consumer.acknowledge(record, type=AcknowledgeType.REJECT)
        consumer.acknowledge(record.topic, record.partition, record.offset, AcknowledgeType.RENEW)
    consumer.acknowledge(consumer.poll(1.5, max_records=5))
    consumer.set_acknowledgement_commit_callback(told)
    consumer.set_acknowledgement_commit_callback(None)
    consumer.set_acknowledgement_commit_callback(len)  # error: set_acknowledgement_commit_callback
    assert_type(consumer.commit(timeout=1), dict[TopicPartition, KafkaError | None])
    assert_type(consumer.lock_timeout, float | None)
    consumer.seek(PARTITION, 5)  # error: seek


async def queue_for_asyncio() -> None:
    async with AsyncShareConsumer(group_id="q", value_deserializer=Order.parse) as consumer:
        await consumer.subscribe(["jobs"])
        consumer.set_acknowledgement_commit_callback(told_later)
        async for record in consumer:
            assert_type(record, Record[bytes, Order])
            consumer.acknowledge(record)
        assert_type(await consumer.poll(1), Records[bytes, Order])
        assert_type(await consumer.commit(), dict[TopicPartition, KafkaError | None])
