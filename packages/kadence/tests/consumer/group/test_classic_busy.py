"""C5 in virtual time: a member that processes for a minute holds up nobody who does not need its partitions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulated import Group, flowing, partitions, rebalances, revoked, work

from kadence_testing.simulation import Program

HEARTBEAT = 3_000
BOUND_S = 4
MINUTE_S = 60


def first_told_after(group: Group, program: Program) -> float:
    """How many seconds the member took to get its first assignment, which may be empty."""
    return group.until(lambda: bool(program.told))


def busy_group(topics: dict[str, int], phase_s: float) -> tuple[Group, Program, Program]:
    """Two members, of which the first has begun to process for a minute, so long ago."""
    group = Group(topics)
    group.read_topics.pop("u", None)
    busy, other = group.member("busy"), group.member("other")
    group.settle()
    group.run(10)
    work(group, busy, MINUTE_S)
    group.run(phase_s)
    return group, busy, other


@pytest.mark.parametrize("phase", range(0, HEARTBEAT, 500))
def test_c5_a_member_of_another_topic_joins_within_a_heartbeat_and_owns_all_of_it(phase: int) -> None:
    group, busy, other = busy_group({"t": 4, "u": 2}, phase / 1_000)
    with group:
        told = len(revoked(busy))
        newcomer = group.member("new", ("u",))
        assert first_told_after(group, newcomer) <= BOUND_S
        assert newcomer.held == partitions("u", 0, 1)
        group.run(MINUTE_S)
        assert newcomer.held == partitions("u", 0, 1)
        assert [len(each.held) for each in (busy, other)] == [2, 2]
        assert len(revoked(busy)) == told


@pytest.mark.parametrize("phase", range(0, HEARTBEAT, 500))
def test_c5_only_what_the_busy_member_holds_and_must_move_waits_for_it(phase: int) -> None:
    """Six partitions of three members: the newcomer's share comes from the busy one and the other one."""
    group, busy, other = busy_group({"t": 6}, phase / 1_000)
    with group:
        newcomer = group.member("new")
        assert first_told_after(group, newcomer) <= BOUND_S
        group.run(MINUTE_S - 10)
        # From the one that polls it has its partition; from the busy one it waits for the other.
        assert [len(each.held) for each in (other, newcomer)] == [2, 1]
        assert (len(busy.owned), len(flowing(busy))) == (3, 2)
        group.settle()
        assert [len(each.owned) for each in (busy, other, newcomer)] == [2, 2, 2]


def test_c5_partitions_that_stay_flow_at_every_moment_of_a_rebalance() -> None:
    with Group({"t": 6}) as group:
        one, two = group.member("one"), group.member("two")
        group.settle()
        three = group.member("three")
        always = {each.name: each.owned for each in (one, two)}
        for _ in range(1_000):
            group.run(0.01)
            for each in (one, two):
                always[each.name] &= flowing(each)
        assert [always[each.name] for each in (one, two)] == [one.owned, two.owned]
        assert [len(each.owned) for each in (one, two, three)] == [2, 2, 2]


def test_c5_an_eager_member_that_is_busy_holds_the_group_up_that_is_what_eager_means() -> None:
    with Group({"t": 4}) as group:
        eager: dict[str, Any] = {
            "partition_assignment_strategy": "range",
            "max_poll_interval_ms": MINUTE_S * 1_000,
        }
        busy = group.member("busy", **eager)
        group.settle()
        work(group, busy, 2 * MINUTE_S)
        newcomer = group.member("new", **eager)
        took = first_told_after(group, newcomer)
        assert BOUND_S < took <= MINUTE_S + BOUND_S, "until the busy one leaves the group for it (B4)"
        assert frozenset(rebalances(newcomer)[0].assigned) == partitions("t", 0, 1, 2, 3)
