"""A live group moves over: members of another client and ours share its partitions until only ours are left.

As docs/from-*.md say: with the other client's own default assignor given to ours. No record is lost on the way.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest
from tests.patience import PATIENCE

from kadence import Broker, Consumer, Producer

with warnings.catch_warnings(action="ignore"):
    import kafka

GROUP = "moving"


class Member(Protocol):
    """What the test asks of a member, whoever's it is."""

    def poll(self) -> list[int]: ...

    def owned(self) -> int: ...


class Confluent:
    def __init__(self, servers: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 0,
                "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100,
            }
        )  # fmt: skip
        self._consumer.subscribe(["t"])

    def poll(self) -> list[int]:
        return [
            int(message.value() or b"") for message in self._consumer.consume(50, 0.05) if not message.error()
        ]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, servers: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            "t", bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest",
            session_timeout_ms=6_000, heartbeat_interval_ms=100,
        )  # fmt: skip

    def poll(self) -> list[int]:
        found = self._consumer.poll(timeout_ms=50)
        return [int(record.value) for records in found.values() for record in records]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    def __init__(self, servers: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(servers))

    async def _start(self, servers: str) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest",
            session_timeout_ms=6_000, heartbeat_interval_ms=100,
        )  # fmt: skip
        await self._consumer.start()

    def poll(self) -> list[int]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=50))
        return [int(record.value) for records in found.values() for record in records]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class Ours:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[int]:
        return [int(record.value) for record in self._consumer.poll(0.05)]

    def owned(self) -> int:
        return len(self._consumer.assignment())


@contextmanager
def closing(member: Any) -> Iterator[Any]:
    try:
        yield member
    finally:
        member.close()


@pytest.mark.parametrize(
    ("theirs", "strategy"), [(Confluent, "range"), (KafkaPython, "range"), (AioKafka, "roundrobin")]
)
def test_a_live_group_moves_over_without_losing_a_record(theirs: Callable[[str], Any], strategy: str) -> None:
    seen: set[int] = set()
    produced = 0

    def produce() -> None:
        nonlocal produced
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(produced, produced + 40):
                producer.send("t", b"%d" % number, partition=number % 4)
        produced += 40

    def poll_until(done: Callable[[], bool], *members: Member) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, ([member.owned() for member in members], len(seen))
            for member in members:
                seen.update(member.poll())

    # kafka-python joins before it knows the topic's partitions, and without a delay may assign none, for good.
    config = {"group.min.session.timeout.ms": 500, "group.initial.rebalance.delay.ms": 300}
    with Broker(topics={"t": 4}, config=config) as broker:
        produce()
        # `auto` too would join a live classic group as one of its members.
        consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest",
            partition_assignment_strategy=strategy, heartbeat_interval_ms=100,
        )  # fmt: skip
        with consumer:
            ours = Ours(consumer)
            with closing(theirs(broker.bootstrap_servers)) as member:
                poll_until(lambda: len(seen) == produced, member)
                consumer.subscribe("t")
                poll_until(lambda: (member.owned(), ours.owned()) == (2, 2), member, ours)
                produce()
                poll_until(lambda: len(seen) == produced, member, ours)
            produce()
            poll_until(lambda: ours.owned() == 4 and len(seen) == produced, ours)
        assert seen == set(range(produced))
