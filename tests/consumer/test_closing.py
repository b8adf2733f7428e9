"""How a membership ends: who is told that a member goes (KIP-1092), and who is not waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.consumer.support import Cluster, member_settings, poll_until, read
from tests.patience import PATIENCE

from kadence import AsyncConsumer, Broker, Consumer, Producer
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


@pytest.mark.needs("admin", "groups", "static members")
@pytest.mark.parametrize(
    ("instance", "leave", "left"),
    [
        (None, None, 0),
        (None, True, 0),
        (None, False, 1),
        ("static", None, 1),
        ("static", False, 1),
        ("static", True, 0),
    ],
)
def test_b7_close_tells_the_group_what_it_is_asked_to(
    cluster: Cluster, protocol: str, instance: str | None, leave: bool | None, left: int
) -> None:
    topic, group = cluster.topic(1), cluster.name("g")
    subject = cluster.consumer(group_instance_id=instance, **member_settings(protocol, group_id=group))
    subject.subscribe(topic)
    poll_until(subject, lambda: len(subject.assignment()) == 1)
    assert cluster.members(group) == 1
    subject.close(leave=leave)
    assert cluster.members(group) == left


@pytest.mark.needs("admin", "groups")
@pytest.mark.brokers("embedded")
def test_b7_close_tells_the_group_what_it_is_asked_to_with_asyncio(cluster: Cluster) -> None:
    topic, group = cluster.topic(1), cluster.name("g")

    async def work() -> None:
        subject = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group)
        await subject.subscribe(topic)
        while not subject.assignment():
            await subject.poll(0.1)
        await subject.close(leave=False)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert cluster.members(group) == 1


FOR_EVER = 10 * PATIENCE
"""Seconds that a call has which waits for nobody."""

ENDS: dict[str, Callable[[Consumer], None]] = {
    "close": lambda consumer: consumer.close(timeout=FOR_EVER),
    "unsubscribe": lambda consumer: consumer.unsubscribe(timeout=FOR_EVER),
}


@contextmanager
def member_with_something_to_commit(**settings: Any) -> Iterator[tuple[Consumer, Broker, Callable[[], None]]]:
    """A member that has offsets to commit when it goes, its broker, and what stops that."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        broker.create_topic("t", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("t", b"x")
        consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100_000,
            **settings,
        )
        consumer.subscribe("t")
        read(consumer, 10)
        consumer.poll(0)
        yield consumer, broker, stack.close
        consumer.close(timeout=0)


@pytest.mark.parametrize("how", ENDS)
def test_b7_where_every_broker_is_gone_nobody_is_waited_for(how: str) -> None:
    with member_with_something_to_commit(request_timeout_ms=600_000) as (consumer, _, stop):
        stop()
        began = time.monotonic()
        ENDS[how](consumer)
        assert time.monotonic() - began < PATIENCE
        assert consumer.assignment() == frozenset()


@pytest.mark.parametrize("how", ENDS)
def test_b7_a_silent_coordinator_is_waited_for_no_longer_than_for_one_request(how: str) -> None:
    with (
        member_with_something_to_commit(request_timeout_ms=1_000) as (consumer, broker, _),
        ExitStack() as faults,
    ):
        for request in (OffsetCommitRequest, LeaveGroupRequest, HeartbeatRequest, FindCoordinatorRequest):
            faults.enter_context(broker.faults.drop(request))
        began = time.monotonic()
        ENDS[how](consumer)
        assert time.monotonic() - began < PATIENCE
        assert consumer.assignment() == frozenset()
