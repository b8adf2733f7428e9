"""The two phases of a rebalance and their timers (KIP-62's broker side, rule B8; KIP-134)."""

from __future__ import annotations

from collections.abc import ValuesView

import pytest
from tests.worlds.coordinator import World
from tests.worlds.hand import START

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.classic.group import Member


def test_a_second_member_starts_a_rebalance_and_the_first_learns_it_by_heartbeat() -> None:
    world = World()
    (first,) = world.stable(1)
    joining = world.join(world.new_id())
    assert joining.is_parked
    assert world.heartbeat(first.member_id) == codes.REBALANCE_IN_PROGRESS
    again = world.join(first.member_id)
    assert again.response.generation_id == joining.response.generation_id == 2
    world.settle([again, joining])


def test_a_given_id_holds_up_the_join_phase_until_it_joins() -> None:
    world = World()
    (first,) = world.stable(1)
    pending = world.new_id()
    again = world.join(first.member_id)
    assert again.is_parked
    joined = world.join(pending)
    assert {again.code, joined.code} == {codes.NONE}


def test_a_given_id_holds_up_the_join_phase_until_it_expires() -> None:
    world = World()
    (first,) = world.stable(1)
    world.new_id(session=6_000)
    again = world.join(first.member_id)
    world.advance(5_999)
    assert again.is_parked
    world.advance(1)
    assert again.code == codes.NONE


def test_an_id_that_never_joins_does_not_hold_up_the_first_generation() -> None:
    world = World()
    world.new_id(session=30_000)
    assert world.join(world.new_id()).code == codes.NONE


def test_b8_the_rebalance_timeout_is_the_longest_over_the_members() -> None:
    world = World()
    slow, quick = world.new_id(), world.new_id()
    joins = [world.join(slow, rebalance=40_000), world.join(quick, rebalance=5_000)]
    world.settle(joins)
    newcomer = world.join(world.new_id(), rebalance=1_000)
    for _ in range(39):
        world.advance(1_000)
        assert world.heartbeat(slow) == codes.REBALANCE_IN_PROGRESS
        assert world.heartbeat(quick) == codes.REBALANCE_IN_PROGRESS
        assert newcomer.is_parked
    world.advance(1_000)
    assert newcomer.code == codes.NONE
    assert newcomer.answered_at == START + 40_000
    assert list(world.group.members) == [newcomer.response.member_id]


def test_b8_a_member_whose_session_lives_is_kept_until_the_rebalance_timeout() -> None:
    """A busy member heartbeats and does not rejoin: only the rebalance timeout may take it out."""
    world = World()
    (busy,) = world.stable(1, rebalance=300_000)
    newcomer = world.join(world.new_id())
    for _ in range(50):
        world.advance(5_000)
        assert world.heartbeat(busy.member_id) == codes.REBALANCE_IN_PROGRESS
    assert newcomer.is_parked
    back = world.join(busy.member_id)
    assert back.code == codes.NONE
    assert len(world.group.members) == 2


def test_b8_a_crash_during_a_rebalance_delays_it_by_the_session_timeout_at_most() -> None:
    world = World()
    (_crashed,) = world.stable(1, session=10_000, rebalance=300_000)
    world.advance(4_000)
    newcomer = world.join(world.new_id())
    assert newcomer.is_parked
    world.advance(6_000)
    assert newcomer.code == codes.NONE
    assert newcomer.answered_at == START + 10_000


def test_b8_join_v0_uses_the_session_timeout_for_both() -> None:
    world = World()
    old = world.join(version=0, session=7_000).response
    world.sync(old, {old.member_id: b""}, version=0, protocol_type=None, protocol_name=None)
    assert world.group.rebalance_timeout_ms == 7_000
    newcomer = world.join(version=0, session=6_500)
    world.advance(6_999)
    assert newcomer.is_parked
    assert world.heartbeat(old.member_id) == codes.REBALANCE_IN_PROGRESS
    world.advance(1)
    assert newcomer.code == codes.NONE
    assert list(world.group.members) == [newcomer.response.member_id]


def test_b8_a_parked_member_is_not_expired_by_its_session() -> None:
    """A member that waits for the coordinator's answer does not expire."""
    world = World()
    slow, waiting = world.stable(2, session=6_000, rebalance=60_000)
    parked = world.join(waiting.member_id, protocols={"range": b"changed"}, session=6_000)
    for _ in range(11):
        world.advance(5_000)
        world.heartbeat(slow.member_id)
    assert parked.is_parked
    world.join(slow.member_id, session=6_000)
    assert parked.code == codes.NONE


def test_b8_the_session_starts_anew_when_the_join_is_answered() -> None:
    world = World()
    joined = world.join(world.new_id(session=6_000), session=6_000).response
    world.advance(5_999)
    assert list(world.group.members) == [joined.member_id]
    world.advance(1)
    assert world.group.members == {}
    assert world.state == "Empty"


def test_a_parked_newcomer_is_given_up_after_five_minutes() -> None:
    world = World(new_member_join_timeout_ms=300_000)
    (holder,) = world.stable(1, session=6_000, rebalance=1_000_000)
    newcomer = world.join(world.new_id(), rebalance=1_000_000)
    while newcomer.is_parked and world.now < START + 400_000:
        world.advance(5_000)
        world.heartbeat(holder.member_id)
    assert newcomer.code == codes.UNKNOWN_MEMBER_ID
    assert newcomer.answered_at == START + 300_000


def test_members_that_do_not_sync_in_time_are_dropped_and_the_rest_go_on() -> None:
    world = World()
    ids = [world.new_id() for _ in range(3)]
    joined = [each.response for each in [world.join(each, rebalance=20_000) for each in ids]]
    leader = next(each for each in joined if each.leader == each.member_id)
    silent, follower = (each for each in joined if each is not leader)
    assert world.sync(follower).is_parked
    assert world.sync(leader, {}).code == codes.NONE
    for _ in range(4):
        world.advance(5_000)
        for each in (leader, silent, follower):
            world.heartbeat(each.member_id, leader.generation_id)
    assert silent.member_id not in world.group.members
    assert world.state == "PreparingRebalance"


def test_the_sync_timer_stops_when_all_have_synced() -> None:
    world = World()
    members = world.stable(2, rebalance=10_000)
    for _ in range(10):
        world.advance(5_000)
        assert [world.heartbeat(each.member_id) for each in members] == [0, 0]
    assert world.state == "Stable"


def test_a_leader_that_does_not_rejoin_is_replaced_by_one_that_did() -> None:
    world = World()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols={"range": b"changed"})
    world.leave(leader.member_id)
    assert again.response.leader == follower.member_id


def test_the_initial_delay_collects_members_and_is_extended_by_newcomers() -> None:
    world = World(initial_rebalance_delay_ms=3_000)
    first = world.join(world.new_id())
    assert first.is_parked
    world.advance(2_000)
    second = world.join(world.new_id())
    world.advance(1_000)
    assert first.is_parked, "a newcomer extends the delay"
    world.advance(3_000)
    assert first.answered_at == second.answered_at == START + 6_000
    assert len(world.group.members) == 2


def test_the_initial_delay_never_passes_the_rebalance_timeout() -> None:
    world = World(initial_rebalance_delay_ms=3_000)
    joins = [world.join(world.new_id(), rebalance=10_000)]
    while joins[0].is_parked:
        world.advance(1_000)
        joins.append(world.join(world.new_id(), rebalance=10_000))
        assert world.now <= START + 10_000
    assert joins[0].answered_at is not None
    assert joins[0].answered_at <= START + 10_000


def test_the_initial_delay_ends_an_empty_group_if_all_have_left() -> None:
    world = World(initial_rebalance_delay_ms=3_000)
    member_id = world.new_id()
    joined = world.join(member_id)
    world.leave(member_id)
    assert joined.code == codes.UNKNOWN_MEMBER_ID
    world.advance(3_000)
    assert world.state == "Empty"


def test_a_rebalance_timeout_of_zero_does_not_spin() -> None:
    world = World()
    member_id = world.join(instance="i", rebalance=0).response.member_id
    world.sync(world.join(member_id, instance="i", rebalance=0).response, {}, group_instance_id="i")
    world.advance(60_000)
    assert world.group.members == {}


def test_generations_only_rise() -> None:
    world = World()
    seen = []
    for _ in range(3):
        (member,) = world.stable(1)
        seen.append(member.generation_id)
        world.leave(member.member_id)
    assert seen == sorted(set(seen))


class Members(dict[str, Member]):
    """A group's members; counts how often somebody looks at all of them."""

    looks = 0

    def values(self) -> ValuesView[Member]:  # type: ignore[override]
        self.looks += 1
        return super().values()


@pytest.mark.parametrize("last_first", [False, True])
def test_a_rejoin_does_not_look_at_all_members(last_first: bool) -> None:
    """Else the rejoins of a thousand members would cost a million looks."""
    world = World()
    leader, *others = [each.member_id for each in world.stable(100)]
    members = world.group.members = Members(world.group.members)
    joins = [world.join(each) for each in (leader, *(reversed(others) if last_first else others))]
    assert members.looks < 20
    assert [each.code for each in joins] == [codes.NONE] * 100
    assert world.group.generation_id == 2


def test_who_takes_the_place_of_a_member_that_had_joined_is_waited_for() -> None:
    world = World()
    first, second = world.stable(2)
    rejoined = world.join(first.member_id)
    assert world.leave(first.member_id).code == codes.NONE
    pending = world.new_id()
    last = world.join(second.member_id)
    assert rejoined.code == codes.UNKNOWN_MEMBER_ID
    assert last.is_parked
    joined = world.join(pending)
    assert [last.code, joined.code] == [codes.NONE] * 2
