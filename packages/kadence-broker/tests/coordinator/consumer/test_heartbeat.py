"""ConsumerGroupHeartbeat: joining, living, fencing, leaving; as measured on Apache Kafka 4.3.1 (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.worlds.consumer_group import REBALANCE, SESSION, ConsumerWorld, owned, topic
from tests.worlds.coordinator import id_of

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey as TargetKey,
)
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.group_settings import group_configs_fault

FULL: dict[str, Any] = {
    "member_id": "a",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


@pytest.fixture
def world() -> Iterator[ConsumerWorld]:
    world = ConsumerWorld()
    yield world
    world.check_replay()


# ------------------------------------------------------------ joining


def test_the_first_member_gets_everything_at_epoch_2(world: ConsumerWorld) -> None:
    member = world.member("a")

    assert (member.epoch, member.owned) == (2, {"t": frozenset(range(4))})
    assert member.said.heartbeat_interval_ms == 1_000
    assert (world.consumer_group.epoch, world.consumer_group.state_name) == (2, "Stable")


def test_without_topics_the_first_epoch_is_1(world: ConsumerWorld) -> None:
    member = world.member("a", [])

    assert (member.epoch, member.owned, member.said.error_code) == (1, {}, 0)


def test_topics_that_do_not_exist_are_waited_for(world: ConsumerWorld) -> None:
    member = world.member("a", ["new"])
    assert member.owned == {}

    world.topics.put(topic("new", 2))
    world.advance(1_000)
    member.beat()

    assert member.owned == {"new": frozenset({0, 1})}


def test_before_v1_the_coordinator_makes_the_id(world: ConsumerWorld) -> None:
    answer = world.raw(0, **{**FULL, "member_id": ""}).response

    assert (answer.error_code, answer.member_id) == (0, "1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": owned({"t": {0}})}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        (
            {"subscribed_topic_names": ["t"] * 10_001},
            "SubscribedTopicNames has 10001 names. A member can subscribe to 10000 here.",
        ),
    ],
)
def test_what_makes_no_sense_is_invalid(world: ConsumerWorld, changes: dict[str, Any], words: str) -> None:
    answer = world.raw(**{**FULL, **changes}).response

    assert (answer.error_code, answer.error_message) == (codes.INVALID_REQUEST, words)
    assert not world.coordinator.groups


def test_an_assignor_that_is_not_there_is_unsupported(world: ConsumerWorld) -> None:
    answer = world.raw(**FULL, server_assignor="mine").response

    assert answer.error_code == codes.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == (
        "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


def test_a_broker_without_the_protocol_says_so() -> None:
    world = ConsumerWorld(rebalance_protocols=frozenset({"classic"}))

    assert world.raw(**FULL).code == codes.UNSUPPORTED_VERSION


def test_a_full_group_takes_nobody_new(world: ConsumerWorld) -> None:
    world = ConsumerWorld(consumer_max_size=1)
    member = world.member("a")

    assert world.raw(**{**FULL, "member_id": "b"}).code == codes.GROUP_MAX_SIZE_REACHED
    assert member.beat().error_code == 0


def test_only_a_join_makes_a_group(world: ConsumerWorld) -> None:
    answer = world.raw(member_id="a", member_epoch=3).response

    assert (answer.error_code, answer.error_message) == (
        codes.GROUP_ID_NOT_FOUND,
        "Consumer group g not found.",
    )


# ------------------------------------------------------------ sharing


def test_a_second_member_waits_for_the_interval_and_for_what_the_first_gives_up(world: ConsumerWorld) -> None:
    a = world.member("a")
    b = world.member("b")
    assert (b.epoch, b.owned, world.consumer_group.state_name) == (2, {}, "Assigning")

    world.advance(999)
    b.beat()
    assert b.epoch == 2

    world.advance(1)
    a.beat()
    assert (a.epoch, a.owned) == (2, {"t": frozenset({0, 1})})
    b.beat()
    assert (b.epoch, b.owned, world.consumer_group.state_name) == (3, {}, "Reconciling")

    a.report()
    assert a.epoch == 3
    b.beat()
    assert (b.owned, world.consumer_group.state_name) == ({"t": frozenset({2, 3})}, "Stable")


def test_many_joins_within_the_interval_cost_one_assignment(world: ConsumerWorld) -> None:
    members = [world.member(f"m{number}") for number in range(20)]
    world.advance(1_000)
    members[0].report()

    assert world.consumer_group.target_epoch == world.consumer_group.epoch == 21
    targets = [record.value for record in world.log if isinstance(record.key, TargetKey)]
    assert [value.assignment_epoch for value in targets if value is not None] == [2, 21]


def test_a_whole_report_is_answered_with_the_whole_assignment(world: ConsumerWorld) -> None:
    member = world.member("a")
    assert member.beat().assignment is None
    assert member.report().assignment is None

    answer = member.beat(
        rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=owned(member.owned)
    )
    assert answer.assignment is not None


def test_an_assignment_is_told_once_and_again_only_to_a_whole_report(world: ConsumerWorld) -> None:
    """Apache Kafka 4.3.1 does the same: what the answer to a lost heartbeat had is lost to a member that never asks.

    librdkafka 2.16.1 never does; the group waits for its partitions until the rebalance timeout.
    """
    a, b = world.member("a"), world.member("b")
    world.advance(1_000)
    assert a.beat().assignment is not None  # lost on its way: `a` goes on with all four partitions
    for _ in range(3):
        assert a.beat().assignment is None
        b.beat()
    assert (b.owned, world.consumer_group.state_name) == ({}, "Reconciling")

    answer = a.beat(
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=owned({"t": frozenset(range(4))}),
    )
    assert answer.assignment is not None
    assert a.owned == {"t": frozenset({0, 1})}
    a.report()
    b.beat()
    assert (b.owned, world.consumer_group.state_name) == ({"t": frozenset({2, 3})}, "Stable")


def test_a_new_subscription_takes_away_at_once_and_gives_with_the_next_target(world: ConsumerWorld) -> None:
    world.topics.put(topic("u", 2))
    member = world.member("a")
    member.beat(subscribed_topic_names=["u"])
    assert (member.epoch, member.owned) == (2, {})

    world.advance(1_000)
    member.report()
    assert (member.epoch, member.owned) == (3, {"u": frozenset({0, 1})})


def test_topics_that_change_change_the_group(world: ConsumerWorld) -> None:
    member = world.member("a")
    world.topics.put(topic("t", 6))
    world.topics.put(topic("unread", 1))
    world.advance(1_000)
    member.beat()
    assert (member.epoch, member.owned) == (3, {"t": frozenset(range(6))})

    world.topics.put(topic("unread", 2))
    world.advance(1_000)
    member.beat()
    assert member.epoch == 3, "it does not read that one"

    world.topics.remove("t")
    world.advance(1_000)
    member.beat()
    assert (member.epoch, member.owned) == (3, {})
    member.report()
    assert member.epoch == 4


@pytest.mark.parametrize(("assignor", "epoch"), [("range", 3), ("uniform", 2)])
def test_another_assignor_makes_another_target(world: ConsumerWorld, assignor: str, epoch: int) -> None:
    """As in Kafka 4.4; in 4.3 only the next change of the group did. Uniform is the default."""
    member = world.member("a")
    member.beat(server_assignor=assignor)
    world.advance(1_000)
    member.beat()
    group = world.consumer_group
    assert (group.epoch, group.target_epoch) == (epoch, epoch)


def test_the_assignor_that_most_members_name_decides(world: ConsumerWorld) -> None:
    world = ConsumerWorld({"t": 3, "u": 3})
    members = [
        world.member("a", ["t", "u"], server_assignor="range"),
        world.member("b", ["t", "u"], server_assignor="range"),
        world.member("c", ["t", "u"], server_assignor="uniform"),
    ]
    world.settle(*members)

    assert [member.owned for member in members] == [
        {"t": frozenset({number}), "u": frozenset({number})} for number in range(3)
    ]


# ------------------------------------------------------------ epochs


def test_other_epochs_are_fenced(world: ConsumerWorld) -> None:
    member = world.member("a")

    for epoch, size in ((3, "greater"), (1, "smaller")):
        answer = member.beat(member_epoch=epoch)
        assert answer.error_code == codes.FENCED_MEMBER_EPOCH
        assert answer.error_message is not None
        assert size in answer.error_message


def test_an_answer_may_be_lost(world: ConsumerWorld) -> None:
    """The epoch before is good from a member that holds nothing but what it has."""
    member = world.member("a")
    world.topics.put(topic("t", 5))
    world.advance(1_000)
    member.beat()
    assert member.epoch == 3

    assert world.raw(member_id="a", member_epoch=2).code == codes.FENCED_MEMBER_EPOCH
    too_much = owned({"t": {0, 7}})
    assert (
        world.raw(member_id="a", member_epoch=2, topic_partitions=too_much).code == codes.FENCED_MEMBER_EPOCH
    )
    assert world.raw(member_id="a", member_epoch=2, topic_partitions=owned({"t": {0}})).code == 0


def test_a_member_may_join_again_with_epoch_0(world: ConsumerWorld) -> None:
    """KAFKA-19233: no waiting for its own session to end."""
    member = world.member("a")
    member.epoch, member.owned = 0, {}
    member.beat()

    assert (member.epoch, member.owned) == (2, {"t": frozenset(range(4))})


def test_an_unknown_member_is_unknown(world: ConsumerWorld) -> None:
    world.member("a")

    assert world.raw(member_id="x", member_epoch=2).code == codes.UNKNOWN_MEMBER_ID
    assert world.raw(member_id="x", member_epoch=-1).code == codes.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------ leaving, and being silent


def test_when_nobody_is_left_there_is_nothing_to_assign_for_the_last_epoch(world: ConsumerWorld) -> None:
    """As Kafka 4.4 does; in 4.3 the target stayed behind the group."""
    member = world.member("a")
    group = world.consumer_group
    member.beat(member_epoch=-1)
    assert (group.state_name, group.epoch, group.target_epoch, group.target_timestamp) == ("Empty", 3, 3, 0)


def test_what_a_leaver_had_is_for_the_others(world: ConsumerWorld) -> None:
    a, b = world.member("a"), world.member("b")
    world.settle(a, b)

    answer = b.beat(member_epoch=-1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "b", -1)
    world.settle(a)
    assert a.owned == {"t": frozenset(range(4))}
    assert list(world.consumer_group.members) == ["a"]


def test_a_group_outlives_its_last_member(world: ConsumerWorld) -> None:
    member = world.member("a")
    member.beat(member_epoch=-1)

    assert (world.consumer_group.state_name, world.consumer_group.epoch) == ("Empty", 3)
    world.advance(1_000)
    assert world.member("b").epoch == 4


def test_a_silent_member_is_out_after_its_session(world: ConsumerWorld) -> None:
    member = world.member("a")
    world.advance(SESSION - 1)
    member.beat()
    world.advance(SESSION - 1)
    assert world.consumer_group.members
    world.advance(1)
    assert not world.consumer_group.members
    assert member.beat().error_code == codes.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_out(world: ConsumerWorld) -> None:
    a, b = world.member("a"), world.member("b")
    world.advance(1_000)
    a.beat()
    for _ in range(REBALANCE // 1_000 - 1):
        world.advance(1_000)
        a.beat()
        b.beat()
    assert "a" in world.consumer_group.members
    world.advance(1_000)
    assert a.beat().error_code == codes.UNKNOWN_MEMBER_ID

    world.settle(b)
    assert b.owned == {"t": frozenset(range(4))}


# ------------------------------------------------------------ static members


def test_a_static_member_that_said_it_comes_back_has_its_place(world: ConsumerWorld) -> None:
    a, b = world.member("a", instance_id="i"), world.member("b")
    world.settle(a, b)
    had, epoch = a.owned, world.consumer_group.epoch
    answer = a.beat(member_epoch=-2)
    assert (answer.error_code, answer.member_epoch) == (0, -2)

    world.advance(1_000)
    again = world.member("a2", instance_id="i")
    assert again.owned == had
    assert (world.consumer_group.epoch, world.consumer_group.state_name) == (epoch, "Stable")
    assert a.beat(member_epoch=epoch).error_code == codes.FENCED_INSTANCE_ID


def test_an_instance_id_in_use_is_not_released(world: ConsumerWorld) -> None:
    world.member("a", instance_id="i")

    answer = world.raw(**{**FULL, "member_id": "a2", "instance_id": "i"}).response
    assert answer.error_code == codes.UNRELEASED_INSTANCE_ID
    assert list(world.consumer_group.members) == ["a"]


def test_a_static_member_that_stays_away_for_a_session_is_out(world: ConsumerWorld) -> None:
    member = world.member("a", instance_id="i")
    member.beat(member_epoch=-2)
    world.advance(SESSION)

    assert not world.consumer_group.members
    assert world.raw(member_id="a", member_epoch=2, instance_id="i").code == codes.UNKNOWN_MEMBER_ID


def test_a_static_member_may_leave_for_good(world: ConsumerWorld) -> None:
    member = world.member("a", instance_id="i")
    member.beat(member_epoch=-1)

    assert not world.consumer_group.members


def test_who_was_to_give_up_and_left_for_a_while_is_not_fenced_for_it(world: ConsumerWorld) -> None:
    a, b = world.member("a", instance_id="i", rebalance_timeout_ms=2_000), world.member("b")
    world.advance(1_000)
    a.beat()
    a.beat(member_epoch=-2)
    world.advance(5_000)
    b.report()
    assert b.owned == {"t": frozenset({2, 3})}

    assert world.member("a2", instance_id="i").owned == {"t": frozenset({0, 1})}


# ------------------------------------------------------------ a group's own settings


def test_a_group_may_have_settings_of_its_own(world: ConsumerWorld) -> None:
    own = {
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "50000",
        "consumer.assignment.interval.ms": "0",
    }
    world.coordinator.set_group_configs("g", own)
    member = world.member("a")
    assert member.said.heartbeat_interval_ms == 7_000
    assert world.member("b").epoch == 3, "no interval between assignments"
    world.advance(49_999)
    assert world.consumer_group.members

    world.coordinator.set_group_configs("g", {"consumer.heartbeat.interval.ms": "70000"})
    assert member.beat().heartbeat_interval_ms == 15_000, "the broker's bound"
    world.coordinator.set_group_configs("g", {})
    assert member.beat().heartbeat_interval_ms == 1_000


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("consumer.session.timeout.ms", 44_999, "range 45000 to 60000"),
        ("consumer.session.timeout.ms", 60_001, "range 45000 to 60000"),
        ("consumer.heartbeat.interval.ms", 15_001, "range 1000 to 15000"),
    ],
)
def test_the_broker_bounds_them(name: str, value: int, words: str) -> None:
    fault = group_configs_fault(CoordinatorConfig(), {name: value})
    assert fault is not None
    assert words in fault


# ------------------------------------------------------------ commits


def commit(world: ConsumerWorld, member_id: str, epoch: int, *partitions: int, version: int = 9) -> list[int]:
    request = OffsetCommitRequest(
        group_id=world.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(each, 7) for each in partitions]
            )
        ],
    )
    (answered,) = world.send(request, version).response.topics
    return [each.error_code for each in answered.partitions]


def commit_in_transaction(
    world: ConsumerWorld, member_id: str, epoch: int, *partitions: int, version: int = 5
) -> list[int]:
    request = TxnOffsetCommitRequest(
        "tx",
        world.group_id,
        producer_id=1,
        producer_epoch=0,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                "t",
                id_of("t"),
                [TxnOffsetCommitRequestPartition(each, committed_offset=7) for each in partitions],
            )
        ],
    )
    (answered,) = world.send(request, version).response.topics
    return [each.error_code for each in answered.partitions]


def test_an_epoch_behind_commits_what_the_member_had_then(world: ConsumerWorld) -> None:
    """KIP-1251; one partition that it had not refuses the whole request, as Kafka 4.3.1 does."""
    stale = codes.STALE_MEMBER_EPOCH
    a, b = world.member("a"), world.member("b")
    world.settle(a, b)
    assert (a.epoch, sorted(a.owned["t"])) == (3, [0, 1])

    assert commit(world, "a", 3, 0, 1) == [0, 0]
    assert commit(world, "a", 2, 0, 1) == [0, 0], "both since epoch 2"
    assert commit(world, "a", 2, 0, 2) == [stale, stale], "2 is the other's"
    assert commit(world, "b", 2, 2) == [stale], "since epoch 3"
    assert commit(world, "a", 4, 0) == [stale]
    assert commit(world, "x", 3, 0) == [codes.UNKNOWN_MEMBER_ID]
    assert commit(world, "a", 3, 0, version=8) == [codes.UNSUPPORTED_VERSION]


def test_a_member_commits_with_its_epoch(world: ConsumerWorld) -> None:
    """An epoch of -1 would let one that has been fenced commit."""
    world.settle(world.member("a"))
    assert commit(world, "a", -1, 0) == [codes.STALE_MEMBER_EPOCH]
    assert commit_in_transaction(world, "a", -1, 0) == [codes.ILLEGAL_GENERATION]
    assert commit_in_transaction(world, "a", -1, 0, version=6) == [codes.STALE_MEMBER_EPOCH], "KIP-1319"
    assert commit_in_transaction(world, "", -1, 0) == [codes.NONE], "one that is in no group names nothing"


@pytest.mark.parametrize(
    ("named", "decides"),
    [
        (["range", "uniform"], "uniform"),
        (["uniform", "range"], "range"),
        (["uniform", "range", None], "uniform"),
        (["range", "uniform", None], "uniform"),
        (["uniform", "uniform", "range", "range"], "uniform"),
        (["range", "range", "uniform", "uniform"], "uniform"),
    ],
)
def test_of_assignors_with_as_many_votes_one_decides_as_in_kafka(
    named: list[str | None], decides: str
) -> None:
    """Of one vote each that of the member whose heartbeat brings the new target, else `uniform`."""
    world = ConsumerWorld({"t": 5, "u": 5}, consumer_assignment_interval_ms=0)
    for name, assignor in zip("abcd", named, strict=False):
        world.member(name, ["t", "u"], server_assignor=assignor).beat()
    shares = sorted(sum(map(len, each.values())) for each in world.consumer_group.target.values())
    uniform = {2: [5, 5], 3: [3, 3, 4], 4: [2, 2, 3, 3]}
    ranges = {2: [4, 6], 3: [2, 4, 4], 4: [2, 2, 2, 4]}
    assert shares == (uniform if decides == "uniform" else ranges)[len(named)]


def test_a_transaction_of_an_epoch_behind_commits_what_the_member_had_then(world: ConsumerWorld) -> None:
    """Else one that has lost a partition would commit, in a transaction, what its next owner reads again."""
    behind = codes.ILLEGAL_GENERATION
    a, b = world.member("a"), world.member("b")
    world.settle(a, b)
    assert (a.epoch, sorted(a.owned["t"])) == (3, [0, 1])

    assert commit_in_transaction(world, "a", 3, 0, 1) == [0, 0]
    assert commit_in_transaction(world, "a", 2, 0, 1) == [0, 0], "both since epoch 2"
    assert commit_in_transaction(world, "a", 2, 0, 2) == [behind, behind], "2 is the other's"
    assert commit_in_transaction(world, "a", 2, 0, 9) == [0, codes.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit_in_transaction(world, "b", 2, 2) == [behind], "since epoch 3"
    assert commit_in_transaction(world, "a", 4, 0) == [behind]
    assert commit_in_transaction(world, "x", 3, 0) == [codes.UNKNOWN_MEMBER_ID]
    assert commit_in_transaction(world, "", -1, 2) == [0], "an older producer says nothing of a member"
