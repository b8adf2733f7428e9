"""What the consumer's tests share: somewhere to produce and consume, and reading with an end."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.mock import MockCluster
from tests.patience import PATIENCE, until

from kadence import AsyncConsumer, Broker, Consumer, Producer, Records, TopicPartition
from kadence.admin import Admin

_numbers = itertools.count(1)


@dataclass
class Cluster:
    """Somewhere to produce to and consume from. Names are unique, so tests share a broker without meeting."""

    kind: str
    bootstrap_servers: str
    mock: MockCluster | None = None
    broker: Broker | None = None
    """The embedded broker, for its faults."""
    consumers: list[Consumer] = field(default_factory=list)

    def name(self, what: str = "t") -> str:
        return f"{what}-{uuid.uuid4().hex[:8]}-{next(_numbers)}"

    def topic(self, partitions: int = 4) -> str:
        """A new topic."""
        name = self.name()
        self.create_topic(name, partitions)
        return name

    def create_topic(self, name: str, partitions: int) -> None:
        if self.mock is not None:
            self.mock.create_topic(name, partitions)
            return
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics({name: partitions})

    def add_partitions(self, topic: str, count: int) -> None:
        """The topic has ``count`` partitions from now on (a test that needs "admin")."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_partitions({topic: count})

    def delete_topic(self, topic: str) -> None:
        """Delete it (a test that needs "topic deletion")."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.delete_topics([topic])

    def group_type(self, group: str) -> str:
        """``classic`` or ``consumer`` (a test that needs "admin")."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            (kind,) = (each.group_type for each in admin.list_groups() if each.group_id == group)
        return str(kind)

    def members(self, group: str) -> int:
        """How many members the group has (a test that needs "admin")."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return len(admin.describe_consumer_groups([group])[group].members)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def until(self, done: Callable[[], object], *, what: str = "") -> None:
        """Wait until ``done()``, and do nothing meanwhile."""
        until(done, what=what)

    def move_leader(self, partition: TopicPartition, node: int) -> None:
        """Make ``node`` the leader (a test that needs "leader moves")."""
        if self.mock is not None:
            self.mock.move_leader(partition.topic, partition.partition, node)
        else:
            assert self.broker is not None
            self.broker.move_leader(partition.topic, partition.partition, node)

    def produce(self, topic: str, count: int, *, partitions: int = 4, start: int = 0, size: int = 0) -> None:
        """``count`` records, round robin over the partitions; values are their numbers, padded to ``size``.

        Batches end where they are full, never where the machine was slow: librdkafka's mock answers a fetch with one.
        """
        with Producer(bootstrap_servers=self.bootstrap_servers, linger_ms=int(PATIENCE * 1_000)) as producer:
            sent = [
                producer.send(topic, b"%d" % i + b"." * max(size - 8, 0), b"key", partition=i % partitions)
                for i in range(start, start + count)
            ]
            producer.flush(PATIENCE)
            for future in sent:
                future.result(PATIENCE)

    def producer(self, **settings: Any) -> Any:
        """A `Producer`, which the caller closes."""
        return Producer(bootstrap_servers=self.bootstrap_servers, **settings)

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer that the fixture closes."""
        defaults: dict[str, Any] = {"auto_offset_reset": "earliest"}
        if self.mock is not None and settings.get("group_protocol") != "consumer":
            # The mock ends every rebalance a session timeout, less a second, after it began.
            defaults |= {"session_timeout_ms": 1_200, "heartbeat_interval_ms": 200}
        consumer = Consumer(bootstrap_servers=self.bootstrap_servers, **{**defaults, **settings})
        self.consumers.append(consumer)
        return consumer


class Shell:
    """One way to make calls: plain ones, or each awaited on one loop."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.runner = asyncio.Runner() if kind == "asyncio" else None

    def make(self, **settings: Any) -> Any:
        if self.runner is None:
            return Consumer(**settings)

        async def make() -> AsyncConsumer:
            return AsyncConsumer(**settings)

        return self.runner.run(make())

    def do(self, call: Callable[[], Any]) -> Any:
        if self.runner is None:
            return call()

        async def awaited() -> Any:
            result = call()
            return await result if inspect.isawaitable(result) else result

        return self.runner.run(awaited())


def member_settings(protocol: str, **settings: Any) -> dict[str, Any]:
    """Settings of a member; with KIP-848 the broker decides what these would."""
    if protocol == "consumer":
        for key in ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"):
            settings.pop(key, None)
    return {"group_protocol": protocol, **settings}


def poll_until(
    consumer: Consumer, done: Callable[[], bool], *, seconds: float = PATIENCE, **settings: Any
) -> list[Any]:
    """Poll until ``done``; everything that came. Fails rather than waits for ever."""
    found: list[Any] = []
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"nothing happened for {seconds} s: {consumer!r}, {len(found)} records"
        found.extend(consumer.poll(0.1, **settings))
    return found


def has_settled(consumer: Consumer) -> bool:
    """Whether its history tells already of how it came by what it owns.

    ``assignment()`` is what the network thread has; the history, and callbacks, come with the poll after that.
    """
    history = consumer.rebalances()
    return bool(history) and set(history[-1].assigned) == consumer.assignment()


def read(consumer: Consumer, count: int, *, seconds: float = PATIENCE, **settings: Any) -> list[Any]:
    """At least ``count`` records."""
    found: list[Any] = []
    end = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < end, f"only {len(found)} of {count} records came: {consumer!r}"
        found.extend(consumer.poll(0.2, **settings))
    return found


def partitions(topic: str, count: int = 4) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def numbers(records: Records | list[Any]) -> list[int]:
    """The numbers that `Cluster.produce` wrote."""
    return [int(record.value.rstrip(b".")) for record in records]
