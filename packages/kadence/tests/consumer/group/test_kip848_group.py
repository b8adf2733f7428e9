"""Whole KIP-848 groups in virtual time: who waits for whom. No partition is ever in two hands: `Simulation` looks.

Random trouble is in tests/testing/simulation/test_story.py.
"""

from __future__ import annotations

from typing import Any

from tests.simulated import Group, causes, flowing, partitions, revoked, work

from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence_testing.simulation import Program

INTERVAL_S = 5
PACE = {"group.consumer.heartbeat.interval.ms": 5_000}
SESSION_S = 45
ALL = partitions("t", 0, 1, 2, 3)


def settled(count: int, *names: str, **config: Any) -> tuple[Group, list[Program]]:
    """A settled group."""
    group = Group({"t": count}, protocol="consumer", config=PACE)
    members = [group.member(name, **config) for name in names]
    group.settle()
    group.run(1)
    return group, members


def test_two_members_share_and_the_one_that_stays_takes_all() -> None:
    group, (one, two) = settled(4, "a", "b")
    with group:
        assert (len(one.owned), len(two.owned)) == (2, 2)
        one.stop()
        assert group.until(lambda: two.held == ALL) <= 1 + INTERVAL_S + 1
        group.run(1)
        assert causes(two)[-1] == "the coordinator made a new assignment"


def test_kip_1263_who_joins_asks_every_second_for_what_the_broker_did_not_have_at_once() -> None:
    """Group assignments may be delayed (KIP-1263): what is computed later is heard of within a second."""
    group, (one,) = settled(2, "a")
    with group:
        one.stop()
        group.until(lambda: one.is_done)
        member = group.member("b")
        assert group.until(lambda: member.held == partitions("t", 0, 1)) <= 1.1, "and not an interval later"
        beats = group.observe(ConsumerGroupHeartbeatRequest, member)
        group.run(10 * INTERVAL_S)
        assert len(beats) <= 10 + INTERVAL_S + 2, "for an interval and a bit, then at the broker's pace"
        before = len(beats)
        group.run(10 * INTERVAL_S)
        assert len(beats) - before == 10


# ---------------------------------------------------------------- a member that is stuck


def test_c5_a_member_stuck_for_60_s_delays_no_join_that_moves_nothing_of_its_own() -> None:
    group, (stuck, other) = settled(3, "a", "b")
    with group:
        if len(stuck.owned) == 2:
            stuck, other = other, stuck
        kept, rebalances, had = stuck.owned, len(causes(stuck)), other.owned
        assert (len(kept), len(had)) == (1, 2)
        work(group, stuck, 60)
        newcomer = group.member("c")

        def moved() -> bool:
            assert flowing(stuck) == kept, "what it works on stays"
            assert had & flowing(other), "and what the other keeps goes on"
            return len(newcomer.held) == 1

        assert group.until(moved) <= INTERVAL_S + 1
        assert len(other.held) == 1
        for _ in range(100):
            group.run(0.5)
            assert flowing(stuck) == kept
            assert len(group.coordinated.members) == 3, "its heartbeats go on"
        group.settle()
        assert len(causes(stuck)) == rebalances, "it saw no rebalance at all"


def test_c5_only_the_partition_that_has_to_move_waits_for_the_stuck_member() -> None:
    group, (stuck, other) = settled(6, "a", "b")
    with group:
        work(group, stuck, 60)
        newcomer = group.member("c")
        assert group.until(lambda: len(newcomer.held) == 1) <= INTERVAL_S + 1, "what the other one gave"
        group.run(50)
        (waiting,) = stuck.owned - flowing(stuck)
        assert [len(flowing(each)) for each in (stuck, other, newcomer)] == [2, 2, 1]
        told = len(revoked(stuck))
        group.until(lambda: len(revoked(stuck)) > told, 10)
        assert revoked(stuck)[-1] == {waiting}
        assert group.until(lambda: waiting in newcomer.held) <= INTERVAL_S + 1


def test_c5_records_of_partitions_that_stay_keep_flowing_while_the_stuck_one_is_waited_for() -> None:
    group, (stuck,) = settled(4, "a")
    with group:
        work(group, stuck, 70)
        newcomer = group.member("b")
        group.run(60)
        assert stuck.owned == ALL
        assert len(flowing(stuck)) == 2, "the two that stay are handed out as soon as it polls"
        assert newcomer.owned == frozenset()
        assert [told.partitions for told in newcomer.told] == [()], "it is a member, and has nothing yet"
        group.until(lambda: bool(revoked(stuck)), 15)
        assert group.until(lambda: len(newcomer.held) == 2) <= INTERVAL_S + 1


def test_b4_a_member_stuck_for_longer_than_it_may_loses_all_and_comes_back() -> None:
    group, (stuck, other) = settled(4, "a", "b", max_poll_interval_ms=60_000)
    with group:
        work(group, stuck, 100)
        group.run(58.9)
        assert len(stuck.owned) == 2
        assert group.until(lambda: other.held == ALL) <= 1.1 + INTERVAL_S + 1
        assert stuck.owned == frozenset()
        group.settle(60)
        group.run(1)
        assert "lost" in [told.kind for told in stuck.told]
        assert "poll interval exceeded" in causes(stuck)


def test_a_dead_member_is_missed_after_its_session() -> None:
    group, (one, two) = settled(4, "a", "b")
    with group:
        one.kill(silently=True)
        took = group.until(lambda: two.held == ALL)
        assert SESSION_S - INTERVAL_S <= took <= SESSION_S + INTERVAL_S + 1


# ---------------------------------------------------------------- static members


def test_kip_345_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance_of_others() -> None:
    with Group({"t": 4}, protocol="consumer", config=PACE) as group:
        one, two = (group.member(name, group_instance_id=f"i{name}") for name in "ab")
        group.settle()
        group.run(1)
        owned, told = two.owned, causes(one)
        two.stop()
        group.until(lambda: two.is_done)
        group.run(3)
        two.restart()
        group.until(lambda: two.held == owned, 10)
        group.run(20)
        assert causes(one) == told


def test_kip_848_the_second_process_of_an_instance_is_the_one_refused() -> None:
    with Group({"t": 2}, protocol="consumer") as group:
        one = group.member("a", group_instance_id="i")
        group.settle()
        two = group.member("b", group_instance_id="i")
        group.run(2)
        assert len(one.held) == 2
        assert two.owned == frozenset()
        one.kill()
        group.until(lambda: len(two.held) == 2, SESSION_S + 20)
