"""Static membership (KIP-345) and a leader that comes back (KIP-814)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.coordinator import World

from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupResponse
from kadence.protocol.leave_group import MemberIdentity


def static_pair(world: World, **options: Any) -> list[JoinGroupResponse]:
    """A stable group of instances "a" (the leader) and "b"."""
    first = world.join(instance="a", **options)
    world.join(instance="b", **options)
    rejoined = world.join(first.response.member_id, instance="a", **options)
    second = next(each for each in world.group.members.values() if each.group_instance_id == "b")
    assert rejoined.code == codes.NONE
    assert second.joining is None
    joined = rejoined.response
    follower = world.join(second.member_id, instance="b", **options).response
    world.sync(joined, {joined.member_id: b"1", second.member_id: b"2"}, group_instance_id="a")
    world.sync(follower, group_instance_id="b")
    assert world.state == "Stable"
    return [joined, follower]


def test_a_static_member_needs_no_second_join() -> None:
    world = World()
    joined = world.join(instance="a").response
    assert joined.error_code == codes.NONE
    assert joined.member_id == "a-1"
    assert joined.members[0].group_instance_id == "a"


def test_a_restarted_follower_gets_its_place_back_without_a_rebalance() -> None:
    world = World()
    leader, follower = static_pair(world)
    back = world.join(instance="b").response
    assert back.error_code == codes.NONE
    assert back.generation_id == follower.generation_id
    assert back.member_id not in ("", follower.member_id)
    assert back.leader == leader.member_id
    assert world.state == "Stable"
    assert world.sync(back, group_instance_id="b").response.assignment == b"2"


def test_a_restarted_leader_is_told_to_skip_the_assignment_from_v9_on() -> None:
    world = World()
    leader, _ = static_pair(world)
    back = world.join(instance="a").response
    assert back.skip_assignment
    assert back.leader == back.member_id != leader.member_id
    assert len(back.members) == 2
    assert world.sync(back, group_instance_id="a").response.assignment == b"1"


def test_before_v9_a_restarted_leader_is_told_of_its_old_self_so_that_it_does_not_assign() -> None:
    world = World()
    leader, _ = static_pair(world)
    back = world.join(instance="a", version=8).response
    assert not back.skip_assignment
    assert back.leader == leader.member_id
    assert back.members == []


def test_the_old_self_is_fenced() -> None:
    world = World()
    _, follower = static_pair(world)
    world.join(instance="b")
    generation = follower.generation_id
    assert world.heartbeat(follower.member_id, generation, instance="b") == codes.FENCED_INSTANCE_ID
    assert world.join(follower.member_id, instance="b").code == codes.FENCED_INSTANCE_ID
    assert world.sync(follower, group_instance_id="b").code == codes.FENCED_INSTANCE_ID


def test_a_parked_join_of_the_old_self_is_fenced() -> None:
    world = World()
    leader, follower = static_pair(world)
    parked = world.join(follower.member_id, instance="b", protocols={"range": b"changed"})
    assert parked.is_parked
    new = world.join(instance="b")
    assert parked.code == codes.FENCED_INSTANCE_ID
    assert new.is_parked
    world.join(leader.member_id, instance="a")
    assert new.code == codes.NONE


def test_a_parked_sync_of_the_old_self_is_fenced_and_the_group_starts_over() -> None:
    world = World()
    leader, follower = static_pair(world)
    joins = [
        world.join(leader.member_id, instance="a"),
        world.join(follower.member_id, instance="b"),
    ]
    parked = world.sync(joins[1].response, group_instance_id="b")
    assert parked.is_parked
    new = world.join(instance="b")
    assert parked.code == codes.FENCED_INSTANCE_ID
    assert new.is_parked
    assert world.state == "PreparingRebalance"


def test_a_restart_that_changes_the_protocol_starts_a_rebalance() -> None:
    world = World()
    first = world.join(instance="a", protocols={"range": b"", "sticky": b""}).response
    world.sync(first, {first.member_id: b"1"}, group_instance_id="a")
    back = world.join(instance="a", protocols={"sticky": b"", "range": b""})
    assert back.response.protocol_name == "sticky"
    assert back.response.generation_id == first.generation_id + 1


def test_an_instance_that_is_not_known_is_an_unknown_member() -> None:
    world = World()
    (member,) = world.stable(1)
    assert world.heartbeat(member.member_id, instance="who") == codes.UNKNOWN_MEMBER_ID
    assert world.join(member.member_id, instance="who").code == codes.UNKNOWN_MEMBER_ID
    pending = world.new_id()
    assert world.join(pending, instance="who").code == codes.UNKNOWN_MEMBER_ID


def test_a_static_member_keeps_its_place_through_a_rebalance_that_it_misses() -> None:
    world = World()
    leader, follower = static_pair(world, session=600_000, rebalance=10_000)
    again = world.join(leader.member_id, instance="a", session=600_000, rebalance=10_000)
    world.advance(10_000)
    assert again.code == codes.NONE
    assert follower.member_id in world.group.members
    assert len(again.response.members) == 2


def test_static_members_alone_that_miss_a_rebalance_are_waited_for_again() -> None:
    world = World()
    leader, follower = static_pair(world, session=25_000, rebalance=10_000)
    pending = world.join(version=3, session=6_000, rebalance=10_000)
    world.leave(pending.caller.client_id)
    world.leave(next(each for each in world.group.members if each.startswith("c-")))
    assert world.state == "PreparingRebalance"
    world.advance(20_000)
    assert set(world.group.members) == {leader.member_id, follower.member_id}
    assert world.state == "PreparingRebalance"
    world.advance(20_000)
    assert world.state == "Empty"


def test_a_static_member_goes_when_its_session_ends() -> None:
    world = World()
    leader, follower = static_pair(world)
    for _ in range(2):
        world.advance(5_000)
        world.heartbeat(leader.member_id, instance="a")
    assert follower.member_id not in world.group.members
    assert world.group.static_members == {"a": leader.member_id}


@pytest.mark.parametrize("known", [True, False])
def test_an_administrator_removes_an_instance_by_name(known: bool) -> None:
    world = World()
    static_pair(world)
    answer = world.leave(MemberIdentity(member_id="", group_instance_id="b" if known else "z")).response
    assert answer.error_code == codes.NONE
    assert answer.members[0].error_code == (codes.NONE if known else codes.UNKNOWN_MEMBER_ID)
    assert world.state == ("PreparingRebalance" if known else "Stable")


def test_leaving_with_someone_elses_instance_is_fenced() -> None:
    world = World()
    leader, _ = static_pair(world)
    answer = world.leave(MemberIdentity(member_id=leader.member_id, group_instance_id="b")).response
    assert answer.members[0].error_code == codes.FENCED_INSTANCE_ID
    assert world.state == "Stable"
