"""Whole KIP-848 groups under virtual time: who waits for whom, and that no partition is ever in two hands (C5)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.luck import seeds
from tests.worlds.cluster import partitions
from tests.worlds.kip848_group import INTERVAL, SESSION, World
from tests.worlds.members import Member

from kadence.protocol import error_codes


def group(count: int, *names: str, **config: Any) -> tuple[World, list[Member]]:
    """A settled group."""
    world = World({"t": count})
    members = [world.member(name, **config) for name in names]
    world.until(lambda: world.settled)
    return world, members


def test_two_members_share_and_the_one_that_stays_takes_all() -> None:
    world, (one, two) = group(4, "a", "b")
    assert (len(one.owned), len(two.owned)) == (2, 2)
    one.membership.leave(world.now, reason="test")
    one.subscription.unsubscribe()
    assert world.until(lambda: len(two.owned) == 4) <= INTERVAL + 1_000
    assert two.causes[-1] == "the coordinator assigned anew"


def test_kip_1263_who_joins_asks_every_second_for_what_the_broker_did_not_have_at_once() -> None:
    world, (before_it,) = group(2, "a")
    before_it.membership.leave(world.now, reason="test")
    before_it.subscription.unsubscribe()
    member = world.member("b")
    assert world.until(lambda: len(member.owned) == 2) <= 1_100, "and not an interval later"
    beats = member.heartbeat.heartbeats_sent
    world.advance(10 * INTERVAL)
    asked = member.heartbeat.heartbeats_sent - beats
    assert asked <= 10 + (INTERVAL + 2_000) // 1_000, "for an interval and a bit, then at the broker's pace"
    before = member.heartbeat.heartbeats_sent
    world.advance(10 * INTERVAL)
    assert member.heartbeat.heartbeats_sent - before == 10


# ---------------------------------------------------------------- a member that is stuck


def test_c5_a_member_stuck_for_60_s_delays_no_join_that_moves_nothing_of_its_own() -> None:
    world, (stuck, other) = group(3, "a", "b")
    assert (len(stuck.owned), len(other.owned)) in ((1, 2), (2, 1))
    if len(stuck.owned) == 2:
        stuck, other = other, stuck
    kept = stuck.owned
    stuck.work(world.now)
    rebalances = len(stuck.causes)
    newcomer = world.member("c")
    flowing = other.flowing

    def moved() -> bool:
        assert stuck.flowing == kept, "what it works on stays"
        assert set(flowing) & set(other.flowing), "and what the other keeps goes on"
        return len(newcomer.flowing) == 1

    assert world.until(moved) <= INTERVAL + 1_000
    assert len(other.flowing) == 1
    start = world.now
    while world.now < start + 60_000:
        world.advance(500)
        assert stuck.flowing == kept
        assert stuck.membership.group.member_id in world.group.members, "its heartbeats go on"
    stuck.poll(world.now)
    world.until(lambda: world.settled)
    assert len(stuck.causes) == rebalances, "it saw no rebalance at all"


def test_c5_only_the_partition_that_has_to_move_waits_for_the_stuck_member() -> None:
    world, (stuck, other) = group(6, "a", "b")
    stuck.work(world.now)
    newcomer = world.member("c")
    assert world.until(lambda: len(newcomer.flowing) == 1) <= INTERVAL + 1_000, "what the other one gave"
    world.advance(50_000)
    (waiting,) = set(stuck.owned) - set(stuck.flowing)
    assert (len(stuck.flowing), len(other.flowing), len(newcomer.flowing)) == (2, 2, 1)
    stuck.poll(world.now)
    assert world.until(lambda: waiting in newcomer.owned) <= INTERVAL + 1_000
    assert ("RevokePartitions", (waiting,)) in stuck.history


def test_c5_records_of_partitions_that_stay_keep_flowing_while_the_stuck_one_is_waited_for() -> None:
    world, (stuck,) = group(4, "a")
    stuck.work(world.now)
    newcomer = world.member("b")
    world.advance(60_000)
    assert stuck.owned == partitions("t", 0, 1, 2, 3)
    assert len(stuck.flowing) == 2, "the two that stay are handed out as soon as it polls"
    assert newcomer.owned == []
    assert newcomer.membership.state.name == "STABLE"
    stuck.poll(world.now)
    assert world.until(lambda: len(newcomer.owned) == 2) <= INTERVAL + 1_000


def test_b4_a_member_stuck_for_longer_than_it_may_loses_all_and_comes_back() -> None:
    world, (stuck, other) = group(4, "a", "b", max_poll_interval_ms=60_000)
    stuck.work(world.now)
    world.advance(59_000)
    assert len(stuck.owned) == 2
    assert world.until(lambda: len(other.owned) == 4) <= 1_000 + INTERVAL + 1_000
    assert stuck.owned == []
    world.advance(30_000)
    stuck.poll(world.now)
    world.until(lambda: world.settled)
    assert "LosePartitions" in [kind for kind, _ in stuck.history]
    assert "poll interval exceeded" in stuck.causes


def test_a_dead_member_is_missed_after_its_session() -> None:
    world, (one, two) = group(4, "a", "b")
    one.dead = True
    assert SESSION - INTERVAL <= world.until(lambda: len(two.owned) == 4) <= SESSION + INTERVAL + 1_000


# ---------------------------------------------------------------- static members


def test_kip_345_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance_of_others() -> None:
    world = World({"t": 4})
    one = world.member("a", group_instance_id="i1")
    two = world.member("b", group_instance_id="i2")
    world.until(lambda: world.settled)
    owned, causes = two.owned, list(one.causes)
    two.membership.leave(world.now, reason="test")
    world.until(lambda: two.membership.left)
    two.subscription.unsubscribe()
    back = world.member("c", group_instance_id="i2")
    world.until(lambda: back.owned == owned)
    world.advance(20_000)
    assert one.causes == causes


def test_kip_848_the_second_process_of_an_instance_is_the_one_refused() -> None:
    world = World({"t": 2})
    one = world.member("a", group_instance_id="i")
    world.until(lambda: world.settled)
    two = world.member("b", group_instance_id="i")
    world.advance(2_000)
    assert one.membership.state.name == "STABLE"
    assert two.owned == []
    one.dead = True
    world.until(lambda: len(two.owned) == 2, SESSION + 20_000)


# ---------------------------------------------------------------- whatever happens


@pytest.mark.parametrize("seed", seeds(40))
def test_no_partition_is_ever_in_two_hands_and_in_the_end_all_are_in_one(seed: int) -> None:
    """Joins, deaths, departures, stuck applications, lost requests and answers; `World` checks at every turn."""
    luck = random.Random(seed)
    world = World({"t": 6, "u": 3})
    world.delay = lambda: luck.choice([1, 5, 50, 900])
    world.lose = lambda: luck.choice(["request", "answer"]) if luck.random() < 0.1 else None
    codes = [
        error_codes.COORDINATOR_LOAD_IN_PROGRESS,
        error_codes.NOT_COORDINATOR,
        error_codes.FENCED_MEMBER_EPOCH,
        error_codes.UNKNOWN_MEMBER_ID,
    ]
    world.refuse = lambda: luck.choice(codes) if luck.random() < 0.03 else 0
    names = iter("abcdefghijklmnopqrstuvwxyz" * 3)
    for _ in range(40):
        living = [member for member in world.members if not member.dead and member.membership.managed]
        act = luck.randrange(8)
        if act < 2 and len(living) < 5:
            world.member(next(names) + str(len(world.members)), luck.choice([("t",), ("t", "u")]))
        elif living:
            member = luck.choice(living)
            if act == 2:
                member.dead = luck.random() < 0.3
            elif act == 3 and len(living) > 1:
                member.membership.leave(world.now, reason="test")
            elif act in (4, 5):
                member.work(world.now)
            elif act == 6:
                member.poll(world.now)
            elif act == 7:
                member.subscribe(world.now, luck.choice([("t",), ("t", "u")]))
        world.advance(luck.choice([10, 300, 2_000, 7_000]))
    _heal(world)
    assert world.until(lambda: world.settled, 400_000) >= 0


def _heal(world: World) -> None:
    world.lose = lambda: None
    world.refuse = lambda: 0
    world.delay = lambda: 1
    for member in world.members:
        if not member.dead:
            member.poll(world.now)
            member.subscribe(world.now, ("t", "u"))
    if all(member.dead for member in world.members):
        world.member("last", ("t", "u"))
