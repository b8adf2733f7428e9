"""ShareGroupHeartbeat: joining, living, fencing, leaving, initialisation; as Apache Kafka 4.4.0 does it (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.coordinator import id_of
from tests.worlds.share_group import SESSION, ShareHeartbeats, ShareWorld, topic

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataKey as TargetKey,
)
from kadence_broker.coordinator.java_tables import string_hash
from kadence_broker.coordinator.share import epochs
from kadence_broker.coordinator.share.state import NO_STATE, StateAction

JOIN: dict[str, Any] = {"member_id": "a", "member_epoch": 0, "subscribed_topic_names": ["t"]}
ALL = frozenset(range(4))


@pytest.fixture
def world() -> Iterator[ShareWorld]:
    world = ShareWorld()
    yield world
    world.check_replay()


# ------------------------------------------------------------ joining


def test_the_first_assignment_is_empty_and_the_next_has_what_was_initialised(world: ShareWorld) -> None:
    """The first heartbeat only asks for the partitions to be initialised; the next bumps the group epoch again."""
    member = world.member("a")
    assert (member.epoch, member.reads, member.said.heartbeat_interval_ms) == (2, {}, 1_000)
    assert member.said.assignment is not None, "a full request gets it, though it is empty"

    world.advance(1_000)
    member.beat()
    assert (member.epoch, member.reads) == (3, {"t": ALL})
    assert member.beat().assignment is None, "nothing has changed"
    assert (world.share_group.epoch, world.share_group.state_name) == (3, "Stable")


def test_partitions_are_initialised_after_the_heartbeat_is_stored(world: ShareWorld) -> None:
    world.share_state.is_slow = True
    member = world.member("a")
    world.advance(1_000)
    assert (member.beat().member_epoch, member.reads) == (2, {}), "not initialised yet"
    (request,) = world.asked
    assert (request.action, request.state_epoch) == (StateAction.INITIALISE, 2)
    assert request.partitions == {id_of("t"): dict.fromkeys(range(4), NO_STATE)}

    world.change_state(request)
    member.beat()
    assert (member.epoch, member.reads) == (3, {"t": ALL})


def test_an_initialisation_that_failed_is_asked_for_again_with_the_next_heartbeat(world: ShareWorld) -> None:
    world.share_state.code = codes.COORDINATOR_NOT_AVAILABLE
    member = world.member("a")
    assert member.said.error_code == codes.NONE
    assert world.share_group.initialising == {}

    world.share_state.code = codes.NONE
    member.beat()
    world.advance(1_000)
    member.beat()
    assert member.reads == {"t": ALL}
    assert [set(each.partitions[id_of("t")].values()) for each in world.asked] == [{NO_STATE}, {NO_STATE}]


def test_an_initialisation_without_an_answer_is_repeated_after_30_s(world: ShareWorld) -> None:
    world.share_state.is_slow = True
    member = world.member("a")
    for _ in range(30):
        world.advance(999)
        member.beat()
    assert len(world.asked) == 1
    world.advance(1_000)
    member.beat()
    assert len(world.asked) == 2


def test_a_coordinator_that_loads_a_group_asks_again_at_once(world: ShareWorld) -> None:
    """The one that asked is gone, and with it the answer."""
    world.share_state.is_slow = True
    member = world.member("a")
    world.move()
    world.share_state.is_slow = False
    member.beat()
    world.advance(1_000)
    assert member.beat().assignment is not None
    assert member.reads == {"t": ALL}


def test_new_partitions_of_a_topic_begin_at_0(world: ShareWorld) -> None:
    """Whatever the reset says (reference: §13.1); a topic that is subscribed later begins where the reset says."""
    member = world.member("a")
    world.settle(member)
    world.topics.put(topic("t", 6))
    member.beat()
    member.beat(subscribed_topic_names=["t", "a"])
    world.settle(member)
    assert member.reads == {"t": frozenset(range(6)), "a": frozenset({0, 1})}
    assert [dict(each.partitions) for each in world.asked[1:]] == [
        {id_of("t"): {4: 0, 5: 0}},
        {id_of("a"): {0: NO_STATE, 1: NO_STATE}},
    ]


def test_topics_that_do_not_exist_are_waited_for(world: ShareWorld) -> None:
    member = world.member("a", ["new"])
    world.settle(member)
    assert (member.reads, world.asked) == ({}, [])
    world.topics.put(topic("new", 2))
    member.beat()
    world.settle(member)
    assert member.reads == {"new": frozenset({0, 1})}


def test_the_target_is_made_once_in_an_assignment_interval(world: ShareWorld) -> None:
    first = world.member("a")
    world.advance(999)
    assert (first.beat().member_epoch, first.reads) == (2, {}), "the interval is not over"
    world.advance(1)
    assert (first.beat().member_epoch, first.reads) == (3, {"t": ALL})


def test_a_group_that_was_empty_does_not_wait_for_the_interval(world: ShareWorld) -> None:
    first = world.member("a")
    world.settle(first)
    first.leave()
    assert world.member("b").reads == {"t": ALL}, "all is initialised, and nobody else is there"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"member_id": ""}, None),
        ({"member_id": "x" * 37}, None),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        (
            {"subscribed_topic_names": ["t"] * 10_001},
            "SubscribedTopicNames has 10001 names. A member can subscribe to 10000 here.",
        ),
    ],
)
def test_nonsense_is_refused(world: ShareWorld, changes: dict[str, Any], words: str | None) -> None:
    answer = world.raw(**{**JOIN, **changes}).response
    assert (answer.error_code, answer.error_message) == (codes.INVALID_REQUEST, words)
    assert not world.coordinator.groups


def test_names_of_topics_that_do_not_exist_are_not_ordered(
    world: ShareWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def hash_of(text: str) -> int:
        hashed.append(text)
        return string_hash(text)

    monkeypatch.setattr(epochs, "string_hash", hash_of)
    member = world.member("a", ["t", *(f"missing-{number}" for number in range(9_999))])
    world.settle(member)
    assert member.reads == {"t": ALL}
    assert not [each for each in hashed if each.startswith("missing")]


def test_a_member_id_may_be_any_text(world: ShareWorld) -> None:
    assert world.raw(**{**JOIN, "member_id": "x"}).code == codes.NONE


def test_share_groups_may_be_switched_off() -> None:
    assert ShareWorld(version=0).raw(**JOIN).code == codes.UNSUPPORTED_VERSION
    assert ShareWorld(version=1).raw(**JOIN).code == codes.NONE


def test_a_full_group_refuses_others_and_keeps_its_members() -> None:
    world = ShareWorld(max_size=2)
    first, _ = world.member("a"), world.member("b")
    refused = world.raw(**{**JOIN, "member_id": "c"}).response
    assert refused.error_code == codes.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The share group has reached its maximum capacity of 2 members."
    assert first.beat(member_epoch=0, subscribed_topic_names=["t"]).error_code == codes.NONE


# ------------------------------------------------------------ fencing


def test_an_unknown_group_or_member(world: ShareWorld) -> None:
    answer = world.raw(member_id="a", member_epoch=1).response
    assert (answer.error_code, answer.error_message) == (
        codes.GROUP_ID_NOT_FOUND,
        "Share group g not found.",
    )
    world.member("b")
    answer = world.raw(member_id="a", member_epoch=1).response
    assert (answer.error_code, answer.error_message) == (
        codes.UNKNOWN_MEMBER_ID,
        "Member a is not a member of group g.",
    )


def test_the_present_and_the_previous_epoch_are_valid(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    assert member.epoch == 3
    assert member.beat(member_epoch=2).member_epoch == 3
    for epoch, word in ((1, "smaller"), (4, "greater")):
        answer = member.beat(member_epoch=epoch)
        assert answer.error_code == codes.FENCED_MEMBER_EPOCH
        assert f"a {word} member epoch ({epoch})" in (answer.error_message or "")
    assert "does not match the previous member epoch (2)" in (member.beat(member_epoch=1).error_message or "")


def test_epoch_0_again_keeps_the_place(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    told = member.beat(member_epoch=0, subscribed_topic_names=["t"])
    assert (told.error_code, told.member_epoch, member.reads) == (0, 3, {"t": ALL})
    assert member.beat(member_epoch=0, subscribed_topic_names=None).error_code == codes.INVALID_REQUEST


def test_null_fields_change_nothing(world: ShareWorld) -> None:
    member = world.member("a")
    member.beat(rack_id="r")
    world.settle(member)
    stored = len(world.log)
    member.beat()
    assert len(world.log) == stored
    kept = world.share_group.members["a"]
    assert (kept.rack_id, kept.topics) == ("r", frozenset({"t"}))


def test_naming_the_subscription_gets_the_whole_assignment(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    assert member.beat().assignment is None
    assert member.beat(subscribed_topic_names=["t"]).assignment is not None
    assert member.reads == {"t": ALL}


def test_another_subscription_takes_effect_at_once(world: ShareWorld) -> None:
    """Nothing has to be given back first; what is new comes when it is initialised."""
    member = world.member("a")
    world.settle(member)
    told = member.beat(subscribed_topic_names=["a"])
    assert (told.member_epoch, member.reads) == (4, {})
    world.settle(member)
    assert member.reads == {"a": frozenset({0, 1})}
    member.beat(subscribed_topic_names=[])
    world.settle(member)
    assert member.reads == {}, "an empty list is valid after the first heartbeat"


# ------------------------------------------------------------ leaving


def test_leaving(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    told = member.leave()
    assert (told.error_code, told.member_epoch, told.member_id) == (0, -1, "a")
    assert (world.share_group.state_name, world.share_group.epoch) == ("Empty", 4)
    assert member.leave().error_code == codes.UNKNOWN_MEMBER_ID
    other = world.raw(group_id="other", member_id="a", member_epoch=-1).response
    assert (other.error_code, other.error_message) == (codes.GROUP_ID_NOT_FOUND, "Group other not found.")


def test_the_others_get_what_a_member_leaves_without_anybody_giving_back(world: ShareWorld) -> None:
    first, second = world.member("a"), world.member("b")
    world.settle(first, second)
    assert first.reads["t"] | second.reads["t"] == ALL
    assert not first.reads["t"] & second.reads["t"]
    first.leave()
    world.advance(1_000)
    second.beat()
    assert second.reads == {"t": ALL}


def test_a_silent_member_is_removed_after_its_session(world: ShareWorld) -> None:
    silent, alive = world.member("a"), world.member("b")
    for _ in range(SESSION // 5_000 - 1):
        world.advance(5_000)
        alive.beat()
    world.advance(4_999)
    assert "a" in world.share_group.members
    world.advance(1)
    assert "a" not in world.share_group.members
    assert silent.beat().error_code == codes.UNKNOWN_MEMBER_ID
    silent.epoch = 0
    assert silent.beat().error_code == codes.NONE, "it joins again with the same id"


def test_a_group_may_have_settings_of_its_own(world: ShareWorld) -> None:
    own = {
        "share.heartbeat.interval.ms": "7000",
        "share.session.timeout.ms": "50000",
        "share.assignment.interval.ms": "0",
    }
    world.coordinator.set_group_configs("g", own)
    member = world.member("a")
    assert member.said.heartbeat_interval_ms == 7_000
    assert (member.beat().member_epoch, member.reads) == (3, {"t": ALL}), "no interval between assignments"
    world.advance(49_999)
    assert world.share_group.members
    world.advance(1)
    assert not world.share_group.members


# ------------------------------------------------------------ several members


def test_one_partition_and_five_members_all_read_it() -> None:
    world = ShareWorld({"t": 1})
    members = [world.member(name) for name in "abcde"]
    world.settle(*members)
    assert [each.reads for each in members] == [{"t": frozenset({0})}] * 5


def test_five_partitions_and_two_members_have_one_reader_each() -> None:
    world = ShareWorld({"t": 5})
    members = [world.member(name) for name in "ab"]
    world.settle(*members)
    assert sorted(len(each.reads["t"]) for each in members) == [2, 3]
    assert members[0].reads["t"] | members[1].reads["t"] == frozenset(range(5))


def test_members_with_different_subscriptions_are_balanced_topic_by_topic() -> None:
    world = ShareWorld({"t": 3, "u": 2})
    first, second = world.member("a", ["t", "u"]), world.member("b", ["u"])
    world.settle(first, second)
    assert first.reads["t"] == frozenset(range(3))
    assert sorted(first.reads["u"] | second.reads["u"]) == [0, 1]
    assert len(first.reads["u"]) == len(second.reads["u"]) == 1


# ------------------------------------------------------------ other kinds of groups


def test_a_group_has_one_kind(world: ShareWorld) -> None:
    """Even an empty group of another kind refuses: it has to be deleted first."""
    world.join(version=3)
    answer = world.raw(**JOIN).response
    assert (answer.error_code, answer.error_message) == (
        codes.GROUP_ID_NOT_FOUND,
        "Group g is not a share group.",
    )
    assert world.raw(member_id="a", member_epoch=-1).code == codes.GROUP_ID_NOT_FOUND


def test_other_protocols_on_a_share_group(world: ShareWorld) -> None:
    world.member("a")
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert world.send(consumer, 1).code == codes.GROUP_ID_NOT_FOUND
    joined = world.join().response
    assert (joined.error_code, joined.member_id) == (codes.INCONSISTENT_GROUP_PROTOCOL, "")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")
    assert world.send(beat, 4).code == codes.UNKNOWN_MEMBER_ID
    (described,) = world.send(DescribeGroupsRequest(groups=["g"]), 6).response.groups
    assert (described.error_code, described.error_message) == (
        codes.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
    )
    (committed,) = world.send(commit, 9).response.topics
    assert committed.partitions[0].error_code == codes.GROUP_ID_NOT_FOUND
    assert isinstance(world.share_group.members["a"].epoch, int)


# ------------------------------------------------------------ over a restart


def test_members_and_partitions_are_kept_and_sessions_begin_anew(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    world.advance(SESSION - 1)
    world.move(rewritten=True)
    world.advance(SESSION - 1)
    assert member.beat().error_code == codes.NONE
    assert member.beat(subscribed_topic_names=["t"]).member_epoch == 3
    assert member.reads == {"t": ALL}


def test_an_empty_group_stays(world: ShareWorld) -> None:
    """It does not expire, and keeps what is initialised."""
    member = world.member("a")
    world.settle(member)
    member.leave()
    world.advance(8 * 86_400_000)
    assert world.share_group.initialised[id_of("t")].partitions == ALL
    assert any(isinstance(record.key, TargetKey) for record in world.log)


def test_a_member_of_a_deleted_topic(world: ShareWorld) -> None:
    member = world.member("a")
    world.settle(member)
    world.topics.remove("t")
    world.deliver(world.coordinator.topic_deleted(world.now, "t"))
    assert (world.share_group.initialised, world.share_state.known) == ({}, {})
    member.beat()
    world.settle(member)
    assert member.reads == {}


def test_a_late_answer_for_a_deleted_group_leaves_no_state(world: ShareWorld) -> None:
    world.share_state.is_slow = True
    member = ShareHeartbeats(world, "a", ["t"])
    member.beat()
    (request,) = world.asked
    world.deliver(world.coordinator.unload(world.now, lambda _: True))
    world.log.clear()
    world.share_state.is_slow = False
    world.change_state(request)
    assert world.share_state.known == {}
