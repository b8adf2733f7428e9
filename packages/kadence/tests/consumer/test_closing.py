"""How a membership ends: who is told that a member goes (KIP-1092), and who is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Cluster, member_settings, poll_until, read
from tests.virtual import VirtualCluster

from kadence import AsyncConsumer, Consumer
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


ENDS: dict[str, Callable[[Consumer], None]] = {
    "close": lambda consumer: consumer.close(timeout=600),
    "unsubscribe": lambda consumer: consumer.unsubscribe(timeout=600),
}


def with_something_to_commit(cluster: Cluster, **settings: Any) -> Consumer:
    """A member that has offsets to commit when it goes."""
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(group_id="g", auto_commit_interval_ms=100_000, **settings)
    consumer.subscribe(topic)
    read(consumer, 10)
    consumer.poll(0)
    return consumer


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("how", ENDS)
def test_b7_where_every_broker_is_gone_nobody_is_waited_for(cluster: VirtualCluster, how: str) -> None:
    consumer = with_something_to_commit(cluster, request_timeout_ms=600_000)
    cluster.simulation.broker.crash()
    began = cluster.now()
    ENDS[how](consumer)
    assert (cluster.now() - began).total_seconds() < 1
    assert consumer.assignment() == frozenset()


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("how", ENDS)
def test_b7_a_silent_coordinator_is_waited_for_no_longer_than_for_one_request(
    cluster: VirtualCluster, how: str
) -> None:
    consumer = with_something_to_commit(cluster, request_timeout_ms=20_000)
    for request in (OffsetCommitRequest, LeaveGroupRequest, HeartbeatRequest, FindCoordinatorRequest):
        cluster.virtual_broker.faults.drop(request)
    began = cluster.now()
    ENDS[how](consumer)
    assert (cluster.now() - began).total_seconds() <= 21
    assert consumer.assignment() == frozenset()
