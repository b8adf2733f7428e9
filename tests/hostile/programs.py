"""What programs of a simulation do before a hostile broker: a little of everything, and then close().

As `tests.hostile.clients`, which has threads and sockets, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from tests.fuzz.target import Tally
from tests.hostile.clients import HASTE, PARTITIONS, READING, TOPIC

from kadence import AsyncConsumer, AsyncProducer, GroupMetadata, KafkaError, Retry, TopicPartition
from kadence.errors import FatalNetworkError
from kadence_testing.simulation import Program

__all__ = ["PROGRAMS", "Main"]

Main = Callable[[Program, Tally], Awaitable[None]]
_READING: Final[dict[str, Any]] = {**READING, "max_batch_bytes": 1 << 20, "default_api_timeout_ms": 5_000}
_ROUNDS: Final = 40
_GROUP: Final[dict[str, Any]] = {"group_id": "g", "auto_commit_interval_ms": 10}


_OFFSETS: Final = {TopicPartition(TOPIC, 0): 5}
_METADATA: Final = GroupMetadata("g")


async def _attempt(tally: Tally, call: Awaitable[object]) -> None:
    """Kadence's own errors may come, but for the one that tells of a bug."""
    try:
        await call
    except FatalNetworkError:
        raise
    except (KafkaError, TimeoutError) as error:
        tally.met(error)


async def _poll(tally: Tally, consumer: AsyncConsumer) -> None:
    """A poll; what cannot be read is passed over, as errors say that it can be."""
    before = tally.errors["CorruptRecordError"]
    await _attempt(tally, consumer.poll(0.2, max_records=17))
    if tally.errors["CorruptRecordError"] > before:
        await _attempt(tally, _pass_over(consumer))


async def _pass_over(consumer: AsyncConsumer) -> None:
    for partition in consumer.assignment():
        await consumer.seek(partition, await consumer.position(partition, timeout=0.2) + 5)


def _reader(**settings: Any) -> Main:
    async def run(program: Program, tally: Tally) -> None:
        consumer = AsyncConsumer(bootstrap_servers=program.bootstrap_servers, **_READING, **HASTE, **settings)
        await _attempt(tally, consumer.assign_topics(TOPIC, start="earliest"))
        partition = TopicPartition(TOPIC, 0)
        for number in range(_ROUNDS):
            await _poll(tally, consumer)
            if number % 5 == 0:
                for call in (
                    consumer.position(partition, timeout=0.5),
                    consumer.end_offsets([partition], timeout=0.5),
                    consumer.offsets_for_times({partition: 1}, timeout=0.5),
                    consumer.list_topics(timeout=0.5),
                    consumer.seek(partition, number),
                    consumer.poll_arrow(0.05),
                ):
                    await _attempt(tally, call)
        await _attempt(tally, consumer.close(5))

    return run


def _member(**settings: Any) -> Main:
    async def run(program: Program, tally: Tally) -> None:
        consumer = AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, **_READING, **HASTE, **_GROUP, **settings
        )
        await consumer.subscribe(TOPIC)
        for _ in range(_ROUNDS):
            await _poll(tally, consumer)
        await _attempt(tally, consumer.commit(timeout=1))
        await _attempt(tally, consumer.committed([TopicPartition(TOPIC, 0)], timeout=1))
        await _attempt(tally, consumer.close(5))

    return run


def _worker(**settings: Any) -> Main:
    async def run(program: Program, tally: Tally) -> None:
        consumer = AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers, **_READING, **HASTE, **_GROUP, **settings
        )
        await consumer.subscribe(TOPIC)
        asyncio.get_running_loop().call_later(20, consumer.stop)
        await _attempt(tally, consumer.process(_handle, retry=Retry(attempts=2), dead_letter="u", drain=1))
        await _attempt(tally, consumer.close(5))

    return run


async def _handle(record: Any) -> None:
    if record.offset % 7 == 3:
        raise ValueError("it cannot be handled")


def _producer(**settings: Any) -> Main:
    async def run(program: Program, tally: Tally) -> None:
        producer = AsyncProducer(
            bootstrap_servers=program.bootstrap_servers,
            max_block_ms=500,
            delivery_timeout_ms=1_000,
            linger_ms=0,
            **HASTE,
            **settings,
        )
        for number in range(_ROUNDS):
            await _attempt(tally, producer.send_and_wait(TOPIC, b"more", partition=number % PARTITIONS))
        await _attempt(tally, producer.partitions_for(TOPIC))
        await _attempt(tally, producer.close(5))

    return run


async def _transactions(program: Program, tally: Tally) -> None:
    for _ in range(2):
        producer = AsyncProducer(
            bootstrap_servers=program.bootstrap_servers,
            transactional_id="tx",
            max_block_ms=500,
            delivery_timeout_ms=1_000,
            linger_ms=0,
            **HASTE,
        )
        await _attempt(tally, producer.init_transactions())
        for end in (producer.commit_transaction, producer.abort_transaction) * 10:
            await _attempt(tally, producer.begin_transaction())
            await _attempt(tally, producer.send(TOPIC, b"more"))
            await _attempt(tally, producer.send_offsets_to_transaction(_OFFSETS, _METADATA))
            await _attempt(tally, end())
        with suppress(KafkaError):
            await producer.close(5)


PROGRAMS: Final[dict[str, Main]] = {
    "reader": _reader(),
    "committed": _reader(isolation_level="read_committed"),
    "classic": _member(group_protocol="classic", partition_assignment_strategy="cooperative-sticky"),
    "member": _member(),
    "worker": _worker(),
    "producer": _producer(),
    "plain producer": _producer(enable_idempotence=False, acks=1),
    "transactions": _transactions,
}
