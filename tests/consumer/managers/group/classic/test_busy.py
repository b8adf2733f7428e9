"""C5 under virtual time: a member that processes for a minute holds up nobody who does not need its partitions."""

from __future__ import annotations

import pytest
from tests.worlds.classic_group import Group
from tests.worlds.cluster import partitions
from tests.worlds.members import Member

from kadence.consumer.border import messages as m
from kadence.types import TopicPartition

HEARTBEAT = 3_000
BOUND = HEARTBEAT + 1_000
MINUTE = 60_000


def joined_after(member: Member, group: Group, since: int) -> int:
    """How long it took the member to get its first assignment."""
    group.advance(MINUTE)
    return int(member.of(m.RebalanceFinished)[0].rebalance.ended_at) - since


def busy_group() -> tuple[Group, Member, Member]:
    """Two members, of which the first processes for a minute from now on, right after its last heartbeat."""
    group = Group({"t": 4, "u": 2})
    busy = group.member("busy", heartbeat_interval_ms=HEARTBEAT)
    other = group.member("other", heartbeat_interval_ms=HEARTBEAT)
    group.advance(20_000)
    busy.work(group.now)
    return group, busy, other


@pytest.mark.parametrize("phase", range(0, HEARTBEAT, 500))
def test_c5_a_member_of_another_topic_joins_within_a_heartbeat_and_owns_all_of_it(phase: int) -> None:
    group, busy, other = busy_group()
    group.advance(phase)
    since = group.now
    newcomer = group.member("new", ("u",))
    assert joined_after(newcomer, group, since) <= BOUND
    assert newcomer.owned == partitions("u", 0, 1)
    assert busy.owned
    assert not [fact for fact in busy.unread if isinstance(fact, m.RevokePartitions)]
    assert len(other.flowing) == 2


@pytest.mark.parametrize("phase", range(0, HEARTBEAT, 500))
def test_c5_only_what_the_busy_member_holds_and_must_move_waits_for_it(phase: int) -> None:
    """Six partitions of three members: the newcomer's share comes from the busy one and the other one."""
    group = Group({"t": 6})
    busy = group.member("busy", heartbeat_interval_ms=HEARTBEAT)
    other = group.member("other", heartbeat_interval_ms=HEARTBEAT)
    group.advance(20_000)
    busy.work(group.now)
    group.advance(phase)
    since = group.now
    newcomer = group.member("new", heartbeat_interval_ms=HEARTBEAT)
    took = joined_after(newcomer, group, since)
    assert took <= BOUND
    # From the one that polls it has its partition; from the busy one it waits for the other.
    assert len(other.owned) == 2
    assert len(newcomer.owned) == 1
    assert (len(busy.owned), len(busy.flowing)) == (3, 2)
    busy.poll(group.now)
    group.settle()
    assert [len(member.owned) for member in (busy, other, newcomer)] == [2, 2, 2]


def test_c5_partitions_that_stay_flow_at_every_moment_of_a_rebalance() -> None:
    group = Group({"t": 6})
    one = group.member("one", heartbeat_interval_ms=HEARTBEAT)
    two = group.member("two", heartbeat_interval_ms=HEARTBEAT)
    group.settle()
    group.member("three", heartbeat_interval_ms=HEARTBEAT)
    always: dict[str, set[TopicPartition]] = {each.name: set(each.owned) for each in (one, two)}
    for _ in range(2_000):
        group.advance(10)
        for each in (one, two):
            always[each.name] &= set(each.flowing)
    assert [always[each.name] for each in (one, two)] == [set(one.owned), set(two.owned)]
    assert [len(each.owned) for each in group.members] == [2, 2, 2]


def test_c5_an_eager_member_that_is_busy_holds_the_group_up_that_is_what_eager_means() -> None:
    group = Group({"t": 4})
    busy = group.member("busy", partition_assignment_strategy=("range",), max_poll_interval_ms=MINUTE)
    group.advance(20_000)
    busy.work(group.now)
    since = group.now
    newcomer = group.member("new", partition_assignment_strategy=("range",), max_poll_interval_ms=MINUTE)
    group.advance(MINUTE + 10_000)
    took = newcomer.of(m.RebalanceFinished)[0].rebalance.ended_at - since
    assert BOUND < took <= MINUTE + BOUND, "until the busy one leaves the group for it (B4)"
