"""KIP-848's requests to our broker and to real Apache Kafka: the answers must agree, words of errors included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import FAST_GROUPS
from tests.interop.known_topics import coordinator_knows
from tests.interop.test_same_as_kafka import Side, protocols
from tests.interop.test_transactions_same_as_kafka import Stage
from tests.patience import until
from tests.protocol.real_requests import IS_4_3

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kadence.protocol.sync_group import SyncGroupRequest
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

_INTERVAL = "consumer.assignment.interval.ms"
_GROUP = 32
"""The kind of resource that a group is."""


class Group:
    """One side's group of KIP-848."""

    def __init__(self, side: Side) -> None:
        self.side = side
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=side.topic)])
        self.topic_id = side.wire.call(asked).topics[0].topic_id
        until(lambda: coordinator_knows(side.wire, [side.topic]))

    def assigns_every(self, interval_ms: int) -> None:
        """Set the least time between two target assignments of this group; real Kafka takes a moment for it."""
        edit = AlterableConfig(_INTERVAL, 0, str(interval_ms))
        self.side.wire.call(
            IncrementalAlterConfigsRequest([AlterConfigsResource(_GROUP, self.side.group, [edit])])
        )
        asked = DescribeConfigsRequest([DescribeConfigsResource(_GROUP, self.side.group, [_INTERVAL])])

        def is_set() -> bool:
            (found,) = self.side.wire.call(asked).results
            return [each.value for each in found.configs] == [str(interval_ms)]

        until(is_set)

    def beat_until(self, member_id: str, epoch: int, is_wanted: Callable[[Any], bool]) -> Any:
        """The first answer that is wanted; those before it change nothing."""
        answers = []

        def is_here() -> bool:
            answers.append(self.beat(member_id, epoch))
            return is_wanted(answers[-1])

        until(is_here)
        return answers[-1]

    def owned(self, *partitions: int) -> list[TopicPartitions]:
        return [TopicPartitions(self.topic_id, list(partitions))] if partitions else []

    def beat(self, member_id: str = "a", epoch: int = 0, *, version: int = 1, **changes: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.side.group, member_id=member_id, member_epoch=epoch
        )
        if epoch == 0:
            request.rebalance_timeout_ms = 10_000
            request.subscribed_topic_names = [self.side.topic]
            request.topic_partitions = []
        for name, value in changes.items():
            setattr(request, name, value)
        answer = self.side.wire.call(request, version)
        given = answer.assignment
        return (
            codes.name(answer.error_code),
            (answer.error_message or "").replace(self.side.group, "GROUP").replace(self.side.topic, "TOPIC"),
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            None if given is None else [sorted(each.partitions) for each in given.topic_partitions],
        )

    def describe(self) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.side.group])
        (group,) = self.side.wire.call(request, 1).groups

        def parts(assignment: Any) -> Any:
            return [
                (each.topic_name == self.side.topic, sorted(each.partitions))
                for each in assignment.topic_partitions
            ]

        # Without members Kafka 4.3 leaves the target as it was.
        target_epoch = (
            group.group_epoch if IS_4_3 and group.group_state == "Empty" else group.assignment_epoch
        )
        return (
            codes.name(group.error_code),
            (group.error_message or "").replace(self.side.group, "GROUP"),
            (group.group_state, group.group_epoch, target_epoch, group.assignor_name),
            sorted(
                (
                    each.member_id,
                    each.instance_id,
                    each.rack_id,
                    each.member_epoch,
                    [name == self.side.topic for name in each.subscribed_topic_names],
                    (each.subscribed_topic_regex or "").replace(self.side.topic, "TOPIC"),
                    parts(each.assignment),
                    parts(each.target_assignment),
                    each.member_type,
                )
                for each in group.members
            ),
        )

    def commit(self, member_id: str, epoch: int, *partitions: int, version: int = 9) -> Any:
        topic = OffsetCommitRequestTopic(
            name=self.side.topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=each, committed_offset=0) for each in partitions
            ],
        )
        request = OffsetCommitRequest(
            group_id=self.side.group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
        )
        answer = self.side.wire.call(request, version)
        return [codes.name(each.error_code) for each in answer.topics[0].partitions]

    def fetch(self, member_id: str | None, epoch: int) -> str:
        group = OffsetFetchRequestGroup(group_id=self.side.group, member_id=member_id, member_epoch=epoch)
        return codes.name(self.side.wire.call(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code)


Scenario = Callable[[Group], Any]


def nonsense(group: Group) -> Any:
    return [
        group.beat(""),
        group.beat("a", 3),
        group.beat("a", -1),
        group.beat("a", -2),
        group.beat("a", -3),
        group.beat("", 2, version=0),
        group.beat(instance_id=""),
        group.beat(rack_id=""),
        group.beat(rebalance_timeout_ms=-1),
        group.beat(topic_partitions=None),
        group.beat(topic_partitions=group.owned(0)),
        group.beat(subscribed_topic_names=None),
        group.beat(server_assignor="mine"),
        group.describe(),
    ]


def living(group: Group) -> Any:
    seen = [
        group.beat(),
        group.describe(),
        group.beat("a", 2),
        group.beat("a", 2, topic_partitions=group.owned(0, 1)),
    ]
    seen += [group.beat("a", 3), group.beat("a", 1), group.beat("x", 2), group.beat("x", -1)]
    seen += [group.beat("a", 0), group.beat("a", -1), group.describe(), group.beat("a", 2)]
    return seen


def without_topics(group: Group) -> Any:
    return [
        group.beat(subscribed_topic_names=[]),
        group.describe(),
        group.beat("b", subscribed_topic_names=["no-such-topic"]),
    ]


def sharing(group: Group) -> Any:
    """The second member brings the first to give one partition up; which one is the assignor's affair: range."""
    group.assigns_every(15_000)
    seen = [group.beat(server_assignor="range"), group.beat("b", server_assignor="range"), group.describe()]
    group.assigns_every(0)
    seen += [
        group.beat_until("a", 2, lambda answer: answer[4] is not None),
        group.describe(),
        group.beat("a", 2),
        group.beat("b", 2),
        group.describe(),
    ]
    seen += [group.commit("a", 2, 0, 1), group.beat("a", 2, topic_partitions=group.owned(0, 1))]
    seen += [group.beat("a", 2, topic_partitions=group.owned(0)), group.beat("b", 3), group.describe()]
    # The answer was lost: the epoch before, with what it had; and commits of that epoch.
    seen += [group.beat("a", 2, topic_partitions=group.owned(0)), group.beat("a", 2)]
    seen += [
        group.commit("a", 2, 0, 1),
        group.commit("a", 3, 0),
        group.commit("a", 4, 0),
        group.commit("b", 2, 1),
    ]
    seen += [group.commit("x", 3, 0), group.commit("a", 3, 0, version=8), group.commit("", -1, 0)]
    seen += [group.fetch("a", 3), group.fetch("a", 2), group.fetch("x", 3), group.fetch(None, -1)]
    stage = Stage(group.side)
    producer = stage.begin()
    for member_id, epoch, partitions in (
        ("a", 3, [0, 1]), ("a", 2, [0]), ("a", 2, [0, 1]), ("a", 2, [0, 9]), ("a", 4, [0]), ("b", 2, [1]),
        ("b", 3, [1]), ("x", 3, [0]), ("", -1, [1]),
    ):  # fmt: skip
        who = {"member_id": member_id, "generation_id_or_member_epoch": epoch}
        seen.append(stage.commit_offsets(producer, 5, 5, partitions, **who))
    return seen


def static_members(group: Group) -> Any:
    seen = [
        group.beat(instance_id="i"),
        group.beat("b", instance_id="i"),
        group.beat("b", 2, instance_id="i"),
    ]
    seen += [group.beat("a", 2, instance_id="x"), group.beat("a", -2, instance_id="i"), group.describe()]
    seen += [group.beat("a", 2, instance_id="i"), group.beat("b", instance_id="i"), group.describe()]
    seen += [group.commit("b", 2, 0), group.beat("b", -1, instance_id="i"), group.describe()]
    return seen


def expressions(group: Group) -> Any:
    pattern = f"{group.side.topic}.*"
    group.assigns_every(0)
    seen = [group.beat(subscribed_topic_names=None, subscribed_topic_regex=pattern)]
    until(lambda: group.describe()[2][1] > 1, what="never matched")
    seen += [group.describe(), group.beat_until("a", 1, lambda answer: answer[2] > 1), group.describe()]
    seen += [
        group.beat("b", subscribed_topic_names=None, subscribed_topic_regex=wrong)[0]
        for wrong in ("(", "(?=x)", "a++", r"(x)\1")
    ]
    return seen


def migrating(group: Group) -> Any:
    """A classic member inside, and a group that is its own again when the modern member leaves."""
    side = group.side
    seen: list[Any] = [group.beat(subscribed_topic_names=[])]
    first = side.join(protocols=_empty_subscription())
    seen.append(codes.name(first.error_code))
    joined = side.join(first.member_id, protocols=_empty_subscription())
    seen.append((codes.name(joined.error_code), joined.protocol_name, joined.protocol_type, joined.leader))

    def sync(**changes: Any) -> Any:
        request = SyncGroupRequest(
            group_id=side.group,
            generation_id=joined.generation_id,
            member_id=first.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = side.wire.call(request)
        return (
            codes.name(answer.error_code),
            answer.protocol_type,
            answer.protocol_name,
            bytes(answer.assignment),
        )

    def heartbeat(member_id: str, generation: int) -> str:
        request = HeartbeatRequest(group_id=side.group, generation_id=generation, member_id=member_id)
        return codes.name(side.wire.call(request).error_code)

    generation = joined.generation_id
    seen += [
        sync(),
        sync(generation_id=99),
        sync(protocol_name="x"),
        sync(member_id="a"),
        sync(member_id="?"),
    ]
    seen += [heartbeat(first.member_id, generation), heartbeat(first.member_id, 99), heartbeat("a", 1)]
    described = side.wire.call(DescribeGroupsRequest(groups=[side.group]), 6).groups[0]
    seen.append((codes.name(described.error_code), described.error_message.replace(side.group, "GROUP")))
    seen.append(
        codes.name(side.wire.call(DeleteGroupsRequest(groups_names=[side.group])).results[0].error_code)
    )
    listed = side.wire.call(ListGroupsRequest(), 5).groups
    seen += [(each.protocol_type, each.group_type) for each in listed if each.group_id == side.group]
    seen.append(group.beat("a", -1))
    listed = side.wire.call(ListGroupsRequest(), 5).groups
    seen += [
        (each.protocol_type, each.group_type, each.group_state)
        for each in listed
        if each.group_id == side.group
    ]
    left = side.wire.call(LeaveGroupRequest(group_id=side.group, members=[MemberIdentity(first.member_id)]))
    seen.append(codes.name(left.members[0].error_code))
    seen += [group.beat("b", subscribed_topic_names=[]), group.describe()]
    return seen


def _empty_subscription() -> Any:
    made = protocols("range")
    made[0].metadata = b"\0\1" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
    return made


@pytest.mark.parametrize(
    "scenario",
    [nonsense, living, without_topics, sharing, static_members, expressions, migrating],
    ids=lambda scenario: scenario.__name__,
)
def test_we_answer_as_kafka_does(kafka: Kafka, scenario: Scenario) -> None:
    seen = []
    with Broker(config=FAST_GROUPS) as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            side = Side(address)
            try:
                seen.append(scenario(Group(side)))
            finally:
                side.close()
    ours, kafkas = seen
    for number, (mine, theirs) in enumerate(zip(ours, kafkas, strict=True)):
        assert mine == theirs, f"answer {number}"
