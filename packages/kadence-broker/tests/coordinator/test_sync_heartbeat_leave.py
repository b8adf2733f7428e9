"""SyncGroup, Heartbeat, LeaveGroup and session expiry of joined members."""

from __future__ import annotations

import pytest
from tests.worlds.coordinator import World

from kadence.protocol import error_codes as codes
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.sync_group import SyncGroupRequest


def test_followers_wait_for_the_leader_and_all_get_their_part() -> None:
    world = World()
    ids = [world.new_id() for _ in range(3)]
    joined = [each.response for each in [world.join(each) for each in ids]]
    leader = next(each for each in joined if each.leader == each.member_id)
    followers = [each for each in joined if each is not leader]
    parked = [world.sync(each) for each in followers]
    assert all(each.is_parked for each in parked)
    given = {leader.member_id: b"lead", followers[0].member_id: b"one"}
    answer = world.sync(leader, given).response
    assert answer.assignment == b"lead"
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [each.response.assignment for each in parked] == [b"one", b""]


def test_a_sync_in_a_stable_group_returns_what_is_stored() -> None:
    world = World()
    _, follower = world.stable(2)
    assert world.sync(follower).response.assignment == follower.member_id.encode()


def test_assignments_that_the_topic_does_not_take_begin_another_rebalance() -> None:
    """As Kafka: all who wait hear of the error, and no generation is stored."""
    world = World(max_batch_bytes=1_000)
    ids = [world.new_id() for _ in range(2)]
    joined = [each.response for each in [world.join(each) for each in ids]]
    leader = next(each for each in joined if each.leader == each.member_id)
    (follower,) = (each for each in joined if each is not leader)
    parked = world.sync(follower)
    before = len(world.log)
    assert world.sync(leader, {follower.member_id: bytes(1_000)}).code == codes.UNKNOWN_SERVER_ERROR
    assert parked.code == codes.UNKNOWN_SERVER_ERROR
    assert (world.state, world.log[before:]) == ("PreparingRebalance", [])
    world.settle([world.join(each) for each in ids])
    assert world.state == "Stable"


def test_sync_errors() -> None:
    world = World()
    (member,) = world.stable(1)
    assert world.sync(member, generation_id=7).code == codes.ILLEGAL_GENERATION
    assert world.sync(member, member_id="who").code == codes.UNKNOWN_MEMBER_ID
    assert world.sync(member, protocol_type="connect").code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, protocol_name="sticky").code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, protocol_name=None).code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, protocol_name=None, version=4).code == codes.NONE
    assert world.sync(member, group_id="").code == codes.INVALID_GROUP_ID
    assert world.sync(member, group_id="other").code == codes.UNKNOWN_MEMBER_ID
    world.join(world.new_id())
    assert world.sync(member).code == codes.REBALANCE_IN_PROGRESS
    world.leave(member.member_id)


def test_a_sync_to_an_empty_group_is_unknown() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member.member_id)
    assert world.send(SyncGroupRequest(group_id="g", member_id=member.member_id), 4).code == (
        codes.UNKNOWN_MEMBER_ID
    )


def test_a_repeated_sync_replaces_the_parked_one_which_does_not_hang() -> None:
    world = World()
    joined = [each.response for each in [world.join(each) for each in [world.new_id(), world.new_id()]]]
    follower = next(each for each in joined if each.leader != each.member_id)
    first, second = world.sync(follower), world.sync(follower)
    assert first.code == codes.REBALANCE_IN_PROGRESS
    assert second.is_parked


def test_heartbeat_errors() -> None:
    world = World()
    (member,) = world.stable(1)
    assert world.heartbeat(member.member_id) == codes.NONE
    assert world.heartbeat(member.member_id, 9) == codes.ILLEGAL_GENERATION
    assert world.heartbeat("who") == codes.UNKNOWN_MEMBER_ID
    for group_id, code in (("", codes.INVALID_GROUP_ID), ("other", codes.UNKNOWN_MEMBER_ID)):
        request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member.member_id)
        assert world.send(request, 4).code == code
    world.leave(member.member_id)
    assert world.heartbeat(member.member_id) == codes.UNKNOWN_MEMBER_ID


def test_heartbeats_are_accepted_while_the_assignment_is_awaited() -> None:
    world = World()
    joined = world.join(world.new_id()).response
    assert world.state == "CompletingRebalance"
    assert world.heartbeat(joined.member_id) == codes.NONE


def test_heartbeats_keep_a_member_and_silence_loses_it() -> None:
    world = World()
    (member,) = world.stable(1)
    for _ in range(10):
        world.advance(9_999)
        assert world.heartbeat(member.member_id) == codes.NONE
    world.advance(9_999)
    assert world.group.members
    world.advance(1)
    assert world.state == "Empty"
    assert world.group.generation_id == 2


def test_the_session_of_a_member_that_is_silent_rebalances_the_rest() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.advance(6_000)
    world.heartbeat(follower.member_id)
    world.advance(4_000)
    assert list(world.group.members) == [follower.member_id]
    assert world.group.leader_id == follower.member_id
    assert world.heartbeat(follower.member_id) == codes.REBALANCE_IN_PROGRESS
    assert world.heartbeat(leader.member_id) == codes.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_rebalances_the_rest_at_once() -> None:
    world = World()
    leader, follower = world.stable(2)
    assert world.leave(leader.member_id).response.members[0].error_code == codes.NONE
    assert world.heartbeat(follower.member_id) == codes.REBALANCE_IN_PROGRESS
    assert world.join(follower.member_id).response.leader == follower.member_id


def test_the_last_one_out_leaves_an_empty_group() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member.member_id)
    assert world.state == "Empty"
    assert world.group.leader_id is None


def test_a_leaving_member_that_is_parked_is_answered() -> None:
    world = World()
    world.stable(1)
    newcomer = world.new_id()
    parked = world.join(newcomer)
    world.leave(newcomer)
    assert parked.code == codes.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_v3_one_member_leaves_and_its_error_is_the_answers(version: int) -> None:
    world = World()
    (member,) = world.stable(1)
    assert world.leave("who", version=version).code == codes.UNKNOWN_MEMBER_ID
    assert world.leave(member.member_id, version=version).code == codes.NONE
    assert world.state == "Empty"


def test_several_leave_in_one_request_and_each_is_judged_alone() -> None:
    world = World()
    first, second, third = world.stable(3)
    answer = world.leave(first.member_id, "who", second.member_id, first.member_id).response
    assert [each.error_code for each in answer.members] == [
        0,
        codes.UNKNOWN_MEMBER_ID,
        0,
        codes.UNKNOWN_MEMBER_ID,
    ]
    assert list(world.group.members) == [third.member_id]


def test_an_instance_that_is_removed_twice_is_unknown_the_second_time() -> None:
    world = World()
    joined = world.join(instance="i", version=5)
    world.settle([joined])
    twice = [MemberIdentity(member_id="", group_instance_id="i")] * 2
    answer = world.leave(*twice).response
    assert [each.error_code for each in answer.members] == [0, codes.UNKNOWN_MEMBER_ID]


def test_a_given_id_that_leaves_a_stable_group_makes_it_rebalance_as_in_kafka() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(world.new_id())
    assert world.state == "PreparingRebalance"
    assert world.heartbeat(member.member_id) == codes.REBALANCE_IN_PROGRESS


def test_a_given_id_that_leaves_lets_the_join_phase_end() -> None:
    world = World()
    leader, _ = world.stable(2)
    pending = world.new_id()
    joins = [
        world.join(leader.member_id),
        world.join(next(m for m in world.group.members if m != leader.member_id)),
    ]
    assert all(each.is_parked for each in joins)
    world.leave(pending)
    assert all(each.code == codes.NONE for each in joins)


def test_leaving_an_unknown_or_unnamed_group() -> None:
    world = World()
    members = [MemberIdentity(member_id="m")]
    answer = world.send(LeaveGroupRequest(group_id="g", members=members), 5).response
    assert (answer.error_code, answer.members[0].error_code) == (0, codes.UNKNOWN_MEMBER_ID)
    assert world.send(LeaveGroupRequest(group_id="", members=members), 5).code == codes.INVALID_GROUP_ID
