"""JoinGroup: the doors of a group (java-like rules, KIP-394, KIP-345, KIP-814)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.worlds.coordinator import World

from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence_broker.coordinator.classic.group import ClassicGroup, Member


def test_a_first_join_is_told_its_member_id_and_comes_back_with_it() -> None:
    world = World()
    first = world.join(client_id="app")
    assert first.code == codes.MEMBER_ID_REQUIRED
    assert first.response.member_id == "app-1"
    assert world.group.pending_joins == {"app-1"}
    second = world.join("app-1")
    assert second.code == codes.NONE
    assert second.response.leader == "app-1"
    assert second.response.generation_id == 1
    assert second.response.protocol_name == "range"
    assert [each.member_id for each in second.response.members] == ["app-1"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_v4_a_first_join_is_a_member_at_once(version: int) -> None:
    world = World()
    joined = world.join(version=version)
    assert joined.code == codes.NONE
    assert joined.response.member_id == joined.response.leader


def test_a_given_id_expires_if_nobody_comes_back_with_it() -> None:
    world = World()
    member_id = world.new_id()
    world.advance(10_000)
    assert world.group.pending_joins == set()
    assert world.join(member_id).code == codes.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session", [5_999, 1_800_001, 0, -1])
def test_b8_a_session_timeout_out_of_bounds_is_refused(session: int) -> None:
    world = World()
    assert world.join(session=session).code == codes.INVALID_SESSION_TIMEOUT
    assert world.coordinator.groups == {}


def test_an_id_is_unknown_in_a_group_that_does_not_exist() -> None:
    world = World()
    assert world.join("who").code == codes.UNKNOWN_MEMBER_ID
    assert world.coordinator.groups == {}


def test_an_id_is_unknown_in_an_empty_group() -> None:
    world = World()
    (member,) = world.stable(1)
    world.leave(member.member_id)
    assert world.state == "Empty"
    assert world.join(member.member_id).code == codes.UNKNOWN_MEMBER_ID


def test_an_empty_group_id_is_invalid() -> None:
    assert World(group="").join().code == codes.INVALID_GROUP_ID


def test_protocols_must_have_something_in_common() -> None:
    world = World()
    world.stable(1)
    assert world.join(protocols={"sticky": b""}).code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="").code == codes.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_the_one_most_members_put_first_among_the_common() -> None:
    world = World()
    preferences: list[dict[str, bytes]] = [
        {"range": b"1r", "sticky": b"1s"},
        {"sticky": b"2s", "range": b"2r"},
        {"exotic": b"3e", "sticky": b"3s", "range": b"3r"},
    ]
    ids = [world.new_id(protocols=each) for each in preferences]
    joins = [world.join(member_id, protocols=each) for member_id, each in zip(ids, preferences, strict=True)]
    leader = next(each.response for each in joins if each.response.leader == each.response.member_id)
    assert leader.protocol_name == "sticky"
    assert {each.metadata for each in leader.members} == {b"1s", b"2s", b"3s"}


def test_a_protocol_named_twice_counts_once() -> None:
    world = World()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=each) for each in (b"1", b"2")],
    )
    joined = world.send(request, 3)
    assert (joined.code, joined.response.protocol_name) == (codes.NONE, "range")
    assert joined.response.members[0].metadata == b"1"


def test_only_the_leader_sees_the_members() -> None:
    leader, follower = World().stable(2)
    assert len(leader.members) == 2
    assert follower.members == []
    assert follower.leader == leader.member_id


def test_a_follower_that_joins_again_unchanged_is_told_the_present_generation() -> None:
    world = World()
    _, follower = world.stable(2)
    again = world.join(follower.member_id)
    assert again.code == codes.NONE
    assert again.response.generation_id == follower.generation_id
    assert world.state == "Stable"


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    again = world.join(follower.member_id, protocols={"range": b"other"})
    assert again.is_parked
    assert world.state == "PreparingRebalance"
    assert world.heartbeat(leader.member_id) == codes.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_again_starts_a_rebalance_even_unchanged() -> None:
    world = World()
    leader, _ = world.stable(2)
    assert world.join(leader.member_id).is_parked
    assert world.state == "PreparingRebalance"


def test_while_completing_an_unchanged_member_is_answered_again() -> None:
    world = World()
    joined = world.join(world.new_id()).response
    assert world.state == "CompletingRebalance"
    again = world.join(joined.member_id)
    assert again.response.generation_id == joined.generation_id
    assert [each.member_id for each in again.response.members] == [joined.member_id]


def test_while_completing_a_changed_member_starts_over_and_parked_syncs_are_told() -> None:
    world = World()
    ids = [world.new_id(), world.new_id()]
    joined = [each.response for each in [world.join(each) for each in ids]]
    follower = next(each for each in joined if each.member_id != each.leader)
    leader = next(each for each in joined if each.member_id == each.leader)
    parked = world.sync(follower)
    assert parked.is_parked
    assert world.join(leader.member_id, protocols={"range": b"new"}).is_parked
    assert parked.code == codes.REBALANCE_IN_PROGRESS


def test_a_repeated_join_replaces_the_parked_one_which_does_not_hang() -> None:
    world = World()
    leader, _ = world.stable(2)
    first = world.join(leader.member_id)
    second = world.join(leader.member_id)
    assert first.code == codes.REBALANCE_IN_PROGRESS
    assert second.is_parked


def test_a_full_group_refuses_newcomers_but_not_its_members() -> None:
    world = World(max_size=2)
    leader, _ = world.stable(2)
    assert world.join().code == codes.GROUP_MAX_SIZE_REACHED
    assert world.join(leader.member_id).is_parked


def test_a_full_group_that_is_rebalancing_drops_a_member_that_comes_too_late() -> None:
    world = World(max_size=2)
    leader, late = world.stable(2)
    first = world.join(leader.member_id)
    second = world.join(version=3)
    assert world.join(late.member_id).code == codes.GROUP_MAX_SIZE_REACHED
    assert {first.code, second.code} == {codes.NONE}
    assert len(world.group.members) == 2


def test_a_refused_newcomer_is_not_waited_for() -> None:
    world = World(max_size=1)
    (leader,) = world.stable(1, protocols={"range": b"m"})
    world.leave(leader.member_id)
    ids = [world.new_id() for _ in range(2)]
    first = world.join(ids[0])
    assert world.join(ids[1]).code == codes.GROUP_MAX_SIZE_REACHED
    assert first.code == codes.NONE, "the phase ends without the one that was refused"
    assert world.group.pending_joins == set()
    assert len(world.coordinator._shard.timers) == 3, "expiry, a session and the wait for syncs"


def test_before_v7_the_protocol_name_of_an_error_is_not_null() -> None:
    world = World()
    assert world.join(version=6, session=1).response.protocol_name == ""
    assert world.join(version=7, session=1).response.protocol_name is None


def test_what_members_share_follows_those_who_leave_and_those_who_change() -> None:
    world = World()
    both, one = {"range": b"", "sticky": b""}, {"range": b""}
    ids = [world.new_id(protocols=each) for each in (both, one)]
    world.settle([world.join(id_, protocols=each) for id_, each in zip(ids, (both, one), strict=True)])
    assert world.join(protocols={"sticky": b""}).code == codes.INCONSISTENT_GROUP_PROTOCOL
    world.leave(ids[1])
    assert world.join(protocols={"sticky": b""}).code == codes.MEMBER_ID_REQUIRED
    world.join(ids[0], protocols=one)
    assert world.join(protocols={"sticky": b""}).code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=one).code == codes.MEMBER_ID_REQUIRED


def test_a_join_does_not_ask_every_member_for_its_protocols() -> None:
    class Watched(list[tuple[str, bytes]]):
        asked = 0

        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            Watched.asked += 1
            return super().__iter__()

    group, size = ClassicGroup("g"), 100
    for number in range(size):
        assert group.accepts_protocols("consumer", ["range"])
        member = Member(f"m{number}", None, "c", "h", 10_000, 60_000, Watched([("range", b"")]))
        group.add(member, "consumer")
    assert Watched.asked <= 2 * size
