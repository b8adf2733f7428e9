"""The values of the fixtures: factories of names, topics and clients, and tools that write and read records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from kadence_testing.pytest_plugin.brokers import embedded
from kadence_testing.pytest_plugin.space import Space

if TYPE_CHECKING:
    from kadence.consumer.async_consumer import AsyncConsumer
    from kadence.consumer.consumer import Consumer
    from kadence.producer import RecordMetadata
    from kadence.producer.async_producer import AsyncProducer
    from kadence.records import Record
    from kadence_broker import Broker
    from kadence_testing.simulation import Simulation

__all__ = [
    "AsyncConsumers",
    "AsyncProducers",
    "Brokers",
    "Consumers",
    "Names",
    "RecordTools",
    "Simulations",
    "Topics",
    "Written",
]

_LOOK_AGAIN_S: Final = 0.05

Written: TypeAlias = "bytes | str | None | tuple[bytes | str | None, bytes | str | None]"
"""A record to write: its value, or a pair of key and value. Text becomes UTF-8."""


class Names:
    """`kadence_name`: makes names of topics and groups unique to the test."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, base: str) -> str:
        """``base`` with the test's name and a random suffix. Within a test the name is the same each time."""
        return self._space.name(base)


class Topics:
    """`kadence_topics`: creates topics, and deletes them after the test."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(
        self, base: str = "topic", partitions: int = 1, *, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic.

        Args:
            base: the beginning of its name; `Names` makes the same name of it.
            partitions: how many.
            config: topic settings under Kafka's keys, such as ``cleanup.policy``.

        Returns:
            Its name.

        Raises:
            BrokerError: the broker refused, for example because this test already has a topic of that base.
        """
        return self._space.create_topic(base, partitions, config or {})


class Consumers:
    """`kadence_consumer`: makes consumers, and closes them after the test."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, *topics: str, **settings: Any) -> Consumer:
        """Make a consumer.

        Args:
            topics: the topics to subscribe to. Without any the test calls `subscribe` or `assign`.
            settings: as for `Consumer`. By default ``group_id`` is the test's own group, and ``auto_offset_reset``
                is "earliest".

        Raises:
            ConfigError: a setting cannot be used.
        """
        from kadence.consumer.consumer import Consumer

        space = self._space
        consumer = space.clients.enter_context(
            Consumer(space.broker.settings, **space.consumer_settings(settings))
        )
        if topics:
            consumer.subscribe(topics)
        return consumer


class AsyncConsumers:
    """`kadence_async_consumer`: makes consumers for asyncio tests, one for each ``async with``."""

    def __init__(self, space: Space) -> None:
        self._space = space

    @asynccontextmanager
    async def __call__(self, *topics: str, **settings: Any) -> AsyncIterator[AsyncConsumer]:
        """A consumer for one ``async with``, which closes it. The arguments are those of `Consumers`."""
        from kadence.consumer.async_consumer import AsyncConsumer

        space = self._space
        async with AsyncConsumer(space.broker.settings, **space.consumer_settings(settings)) as consumer:
            if topics:
                await consumer.subscribe(topics)
            yield consumer


class AsyncProducers:
    """`kadence_async_producer`: makes producers for asyncio tests, one for each ``async with``."""

    def __init__(self, space: Space) -> None:
        self._space = space

    @asynccontextmanager
    async def __call__(self, **settings: Any) -> AsyncIterator[AsyncProducer]:
        """A producer for one ``async with``, which closes it. ``settings`` are those of `AsyncProducer`."""
        from kadence.producer.async_producer import AsyncProducer

        async with AsyncProducer(self._space.broker.settings, **settings) as producer:
            yield producer


class Brokers:
    """`kadence_new_broker`: embedded brokers for this test alone, closed after it."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, **options: Any) -> Broker:
        """Start a broker.

        ``options`` are the arguments of `kadence.Broker`; group timeouts are short, as in the run's broker.
        """
        return self._space.clients.enter_context(embedded(options))


class Simulations:
    """`kadence_simulation`: whole groups in virtual time, ended after the test."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def __call__(self, *, seed: int | None = None, **options: Any) -> Simulation:
        """Begin one.

        Args:
            seed: the seed of all randomness; None: that of ``--kadence-seed``, 0 by default.
            options: as `kadence_testing.simulation.Simulation` takes them.
        """
        from kadence_testing.simulation import Simulation

        chosen = self._seed if seed is None else seed
        return self._space.clients.enter_context(Simulation(chosen, **options))


class RecordTools:
    """`kadence_records`: writes records and waits until the broker has them, and reads the records of a topic."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def write(
        self, topic: str, records: Iterable[Written], *, partition: int | None = None, timeout: float = 30.0
    ) -> list[RecordMetadata]:
        """Write records, and wait until the broker has them.

        Args:
            records: values, or pairs of key and value; text becomes UTF-8.
            partition: the partition; None: chosen by the key.
            timeout: seconds to wait for each record.

        Returns:
            The partition and offset of each record, in the order of ``records``.

        Raises:
            KafkaError: one was not written.
        """
        producer = self._space.producer()
        pairs = [each if isinstance(each, tuple) else (None, each) for each in records]
        futures = [
            producer.send(topic, _encoded(value), key=_encoded(key), partition=partition)
            for key, value in pairs
        ]
        return [future.result(timeout) for future in futures]

    def read(
        self, topic: str, count: int | None = None, *, timeout: float = 10.0, **settings: Any
    ) -> list[Record]:
        """Read a topic from its first record, without a group.

        Args:
            count: wait for this many records, and fail the test if there are fewer after ``timeout``. None: the
                records that the topic has now.
            timeout: seconds.
            settings: settings of the consumer, such as ``value_deserializer`` or ``isolation_level``.

        Returns:
            The records, ordered by partition and offset. With ``count`` there may be more than that.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist after ``timeout``. Reading does not create it.
        """
        from kadence.clock import SystemClock
        from kadence.consumer.consumer import Consumer
        from kadence.errors import UnknownTopicOrPartitionError
        from kadence.types import TopicPartition

        __tracebackhide__ = True  # pytest shows the line of the test instead
        now_ms = SystemClock().now_ms  # which freezegun does not stop
        deadline = now_ms() + timeout * 1000
        found: list[Record] = []
        settings = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **settings}
        with Consumer(self._space.broker.settings, **settings) as consumer:
            # The program under test may be about to create the topic, or the asked node does not know it yet.
            while not (infos := consumer.partitions_for(topic, timeout=timeout)):
                if now_ms() >= deadline:
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
                time.sleep(_LOOK_AGAIN_S)
            parts = [TopicPartition(topic, each.partition) for each in infos]
            if count is None:
                starts = consumer.beginning_offsets(parts, timeout=timeout)
                ends = consumer.end_offsets(parts, timeout=timeout)
                consumer.assign({each: (starts[each], ends[each]) for each in parts})
            else:
                consumer.assign(parts)
            while len(consumer.finished()) < len(parts) if count is None else len(found) < count:
                left = (deadline - now_ms()) / 1000
                if left <= 0:
                    wanted = "all that it had" if count is None else f"{count} of them"
                    pytest.fail(f"{len(found)} records of {topic} came within {timeout} s, not {wanted}")
                found += consumer.poll(min(left, 0.1))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def write_async(
        self, topic: str, records: Iterable[Written], *, partition: int | None = None, timeout: float = 30.0
    ) -> list[RecordMetadata]:
        """`write` for asyncio tests: the event loop goes on."""
        return await asyncio.to_thread(self.write, topic, list(records), partition=partition, timeout=timeout)

    async def read_async(
        self, topic: str, count: int | None = None, *, timeout: float = 10.0, **settings: Any
    ) -> list[Record]:
        """`read` for asyncio tests: the event loop goes on."""
        return await asyncio.to_thread(self.read, topic, count, timeout=timeout, **settings)


def _encoded(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
