"""aiokafka, unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.patience import PATIENCE

from kadence_broker import Broker

RECORDS = 300


async def produce(broker: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True)
    async with producer:
        sent = [
            await producer.send("t", b"v%d" % number, key=b"k%d" % (number % 50)) for number in range(RECORDS)
        ]
        await asyncio.gather(*sent)


def consumer(broker: Broker) -> Any:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=100,
    )


async def poll_until(consumers: list[Any], done: Callable[[], bool], seen: dict[bytes, int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not done():
            for each in consumers:
                for records in (await each.getmany(timeout_ms=50)).values():
                    for record in records:
                        seen[record.value] = seen.get(record.value, 0) + 1


async def share_and_commit(broker: Broker) -> dict[bytes, int]:
    await produce(broker)
    seen: dict[bytes, int] = {}
    async with consumer(broker) as first:
        await poll_until([first], lambda: len(seen) == RECORDS, seen)
        await first.commit()
        async with consumer(broker) as second:
            await poll_until(
                [first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2, seen
            )
            committed = [await second.committed(TopicPartition("t", each)) for each in range(4)]
            assert committed == [end for _, end in broker.offsets("t")]
    return seen


def test_two_members_share_and_commit(broker: Broker) -> None:
    seen = asyncio.run(share_and_commit(broker))
    assert len(seen) == RECORDS
    assert set(seen.values()) == {1}
    assert "Empty" in broker.describe_groups()["g"]
