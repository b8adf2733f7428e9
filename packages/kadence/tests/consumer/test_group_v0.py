"""Brokers that know the first group protocol only: JoinGroup v0 carries no rebalance timeout: the session is it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, numbers, partitions, poll_until, read

from kadence import Broker, Consumer
from kadence.errors import UnsupportedVersionError
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.leave_group import LeaveGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest
from kadence.protocol.sync_group import SyncGroupRequest

OLD: dict[type[Any], int] = {
    OffsetCommitRequest: 2,
    OffsetFetchRequest: 1,
    FindCoordinatorRequest: 0,
    JoinGroupRequest: 0,
    HeartbeatRequest: 0,
    LeaveGroupRequest: 0,
    SyncGroupRequest: 0,
}
"""Highest versions of the group's requests in Kafka 0.9."""


pytestmark = [pytest.mark.needs("groups"), pytest.mark.brokers("virtual")]


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """The broker, old where groups are concerned."""
    assert cluster.broker is not None
    for request, version in OLD.items():
        cluster.broker.faults.limit(request, version)
    return cluster.broker


def member(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    defaults = {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000, "max_poll_interval_ms": 300_000}
    return cluster.consumer(group_id=group, group_protocol="classic", **{**defaults, **settings})


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_group_works_in_the_first_versions(cluster: Cluster, broker: Broker, strategy: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    with broker.faults.observe(JoinGroupRequest) as joins:
        one = member(cluster, group, partition_assignment_strategy=strategy)
        two = member(cluster, group, partition_assignment_strategy=strategy)
        one.subscribe(topic)
        seen = numbers(read(one, 40))
        one.commit()
        two.subscribe(topic)
        poll_until(one, lambda: not two.poll(0) and len(one.assignment()) == len(two.assignment()) == 2)
    assert {call.version for call in joins.calls} == {0}
    one.close()
    poll_until(two, lambda: len(two.assignment()) == 4)
    cluster.produce(topic, 8, start=40)
    seen += numbers(read(two, 8))
    assert set(seen) == set(range(48))


@pytest.mark.usefixtures("broker")
def test_b8_the_session_timeout_is_the_rebalance_timeout(cluster: Cluster) -> None:
    """An eager member that does not let go in time is out, long before max.poll.interval.ms.

    The newcomer need not have all four partitions in between: whoever is out joins again as soon as it hears of it,
    maybe before the newcomer's SyncGroup, and then they share from the beginning.
    """
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    stuck = member(cluster, group, partition_assignment_strategy="range")
    stuck.subscribe(topic)
    read(stuck, 4)
    newcomer = member(cluster, group, partition_assignment_strategy="range")
    newcomer.subscribe(topic)
    poll_until(newcomer, lambda: bool(newcomer.assignment()))
    # It hears that it is out; the application, which comes back now, loses what it had.
    poll_until(
        stuck,
        lambda: (
            not newcomer.poll(0)
            and has_settled(stuck)
            and len(stuck.assignment()) == len(newcomer.assignment()) == 2
        ),
    )
    assert "session lost: UNKNOWN_MEMBER_ID" in [each.cause for each in stuck.rebalances()]
    assert stuck.rebalances()[-1].assigned
    assert stuck.assignment() | newcomer.assignment() == set(partitions(topic))


@pytest.mark.usefixtures("broker")
def test_static_membership_is_refused_with_the_way_out(cluster: Cluster) -> None:
    topic = cluster.topic()
    one = member(cluster, cluster.name("g"), group_instance_id="one")
    one.subscribe(topic)
    with pytest.raises(UnsupportedVersionError, match=r"unset group\.instance\.id"):
        poll_until(one, lambda: False)
