"""Classic groups change their assignor while they work: the two bounces of KIP-429."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.support import Cluster, numbers, poll_until
from tests.patience import PATIENCE

from kadence import Assignor, Consumer, RebalanceListener, TopicPartition
from kadence.errors import AssignorError, InconsistentGroupProtocolError

pytestmark = [pytest.mark.needs("groups", "classic rebalances"), pytest.mark.brokers("virtual")]

PARTITIONS = 6


class Team:
    """The members of one group, all driven by this thread, and what they own and read together."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic, self.group = cluster.topic(PARTITIONS), cluster.name("g")
        self.members: list[Consumer] = []
        self.owner: dict[TopicPartition, Consumer] = {}
        self.seen: list[int] = []
        self.produced = 0

    def produce(self, count: int) -> None:
        self.cluster.produce(self.topic, count, partitions=PARTITIONS, start=self.produced)
        self.produced += count

    def add(self, strategy: str) -> Consumer:
        member = self.cluster.consumer(
            group_id=self.group,
            partition_assignment_strategy=strategy,
            heartbeat_interval_ms=100,
            session_timeout_ms=30_000,
        )
        member.subscribe(self.topic, listener=Ownership(self, member))
        self.members.append(member)
        return member

    def stop(self, member: Consumer) -> None:
        member.close()
        self.members.remove(member)

    def until(self, done: Callable[[], bool], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, [sorted(member.assignment()) for member in self.members]
            for member in self.members:
                self.seen += numbers(member.poll(0.02))

    def settle(self) -> None:
        """Everybody has a share, and all is read."""
        self.until(
            lambda: (
                len(self.owner) == PARTITIONS
                and set(self.owner.values()) == set(self.members)
                and set(self.seen) == set(range(self.produced))
            )
        )


class Ownership(RebalanceListener):
    """Nobody is told of a partition before whoever had it was told to give it up."""

    def __init__(self, team: Team, member: Consumer) -> None:
        self._team = team
        self._member = member

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert self._team.owner.setdefault(partition, self._member) is self._member, partition

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert self._team.owner.pop(partition) is self._member

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        raise AssertionError(f"lost: {partitions}")


@pytest.mark.parametrize(
    "road",
    [
        ["range", "cooperative-sticky,range", "cooperative-sticky"],
        ["sticky", "cooperative-sticky,sticky", "cooperative-sticky"],
        ["roundrobin", "sticky,roundrobin", "sticky"],
    ],
    ids=lambda road: f"{road[0]} to {road[-1]}",
)
def test_kip_429_rolling_upgrade_loses_nothing_and_nothing_has_two_owners(
    cluster: Cluster, road: list[str]
) -> None:
    team = Team(cluster)
    for _ in range(2):
        team.add(road[0])
    team.produce(30)
    team.settle()
    for strategy in road[1:]:
        for member in list(team.members):
            team.stop(member)
            team.produce(12)
            team.add(strategy)
            team.settle()
    # Each was read by a member that committed it on its way out: once.
    assert sorted(team.seen) == list(range(team.produced))


@pytest.mark.brokers("virtual", "kafka")
def test_a_direct_change_is_refused_with_the_way_to_do_it(cluster: Cluster) -> None:
    team = Team(cluster)
    team.add("range")
    team.produce(6)
    team.settle()
    new = cluster.consumer(group_id=team.group, partition_assignment_strategy="cooperative-sticky")
    new.subscribe(team.topic)
    with pytest.raises(InconsistentGroupProtocolError, match="first with both"):
        poll_until(new, lambda: False)
    team.produce(6)
    team.settle()


class Leftmost(Assignor):
    """Gives everything to the member of the smallest id; with ``broken`` it fails instead."""

    name = "leftmost"

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def assign(self, partitions: Any, members: Any) -> Any:
        if self.broken:
            raise LookupError("my bug")
        return {min(members): [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]}


def test_an_assignor_of_ones_own(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    settings: dict[str, Any] = {"group_id": group, "heartbeat_interval_ms": 100}
    one, two = (
        cluster.consumer(partition_assignment_strategy=[Leftmost()], client_id=name, **settings)
        for name in ("a", "b")
    )
    one.subscribe(topic)
    two.subscribe(topic)
    poll_until(one, lambda: not two.poll(0) and len(one.assignment()) == 4 and len(two.rebalances()) > 0)
    assert two.assignment() == frozenset()


def test_an_assignor_that_fails_surfaces_where_it_runs_and_leaves_the_group_to_others(
    cluster: Cluster,
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    settings: dict[str, Any] = {"group_id": group, "heartbeat_interval_ms": 100}
    bad = cluster.consumer(partition_assignment_strategy=[Leftmost(broken=True)], **settings)
    bad.subscribe(topic)
    with pytest.raises(AssignorError, match=r"leftmost.*my bug") as told:
        poll_until(bad, lambda: False)
    assert isinstance(told.value.__cause__, LookupError)
    good = cluster.consumer(partition_assignment_strategy=[Leftmost()], **settings)
    good.subscribe(topic)
    poll_until(good, lambda: len(good.assignment()) == 4)


@pytest.mark.parametrize("strategy", ["roundrobin", "sticky"])
def test_members_share_by_java_class_name_too(cluster: Cluster, strategy: str) -> None:
    java = {"roundrobin": "RoundRobinAssignor", "sticky": "StickyAssignor"}[strategy]
    team = Team(cluster)
    team.add(strategy)
    team.add(f"org.apache.kafka.clients.consumer.{java}")
    team.produce(12)
    team.settle()
    assert [len(member.assignment()) for member in team.members] == [3, 3]
