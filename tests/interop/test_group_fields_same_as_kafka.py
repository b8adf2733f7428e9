"""Groups: every field of the answers about them, in each version and to odd requests, beside real Apache Kafka's.

What happens in a group, step by step, is compared in `test_same_as_kafka`, `test_kip848_same_as_kafka` and
`test_groups_as_kafka_keeps_them`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.fields import UNKNOWN_ID, Scenario, Talk, assert_same

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence_testing.kafka import Kafka

LONG = "x" * 300


def join(group: str, member_id: str = "", **changes: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group, 30_000, 60_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", b"m")]
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def member(talk: Talk, group: str, version: int = 9) -> Any:
    """A member of a stable classic group."""
    given = talk.wire.call(join(group)).member_id
    joined = talk.ask(join(group, given), version)
    assigned = [SyncGroupRequestAssignment(given, b"mine")]
    talk.ask(SyncGroupRequest(group, joined.generation_id, given, None, "consumer", "range", assigned))
    return joined


def modern(group: str, topic: str, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group,
        "a",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def coordinators(talk: Talk) -> None:
    group = talk.group()
    name = talk.transactional_id()
    for version in range(4):
        for key in (group, "", LONG):
            talk.ask(FindCoordinatorRequest(key=key), version)
        if version:
            for kind in (1, 2, 3, -1, 127):
                talk.ask(FindCoordinatorRequest(key=name, key_type=kind), version)
            talk.ask(FindCoordinatorRequest(key="", key_type=1), version)
    for version in (4, 5, 6):
        for keys in ([group], [group, group], [group, "another", ""], [], [LONG]):
            talk.ask(FindCoordinatorRequest(coordinator_keys=keys), version)
            talk.ask(FindCoordinatorRequest(coordinator_keys=keys, key_type=1), version)
        for kind in (3, -1, 127):
            talk.ask(FindCoordinatorRequest(coordinator_keys=[group, "b"], key_type=kind), version)
    talk.ask(FindCoordinatorRequest(coordinator_keys=[group], key_type=2), 5, without=("error_message",))


def committing(talk: Talk) -> None:
    topic = talk.topic(2)
    talk.group()

    def commit(group: str, version: int, *partitions: OffsetCommitRequestPartition, **changes: Any) -> None:
        asked = OffsetCommitRequestTopic(name=topic, partitions=list(partitions))
        if version >= 10:
            asked.topic_id = talk.topic_id(topic)
        request = OffsetCommitRequest(group, topics=[asked])
        for name, value in changes.items():
            setattr(request, name, value)
        talk.ask(request, version)

    def at(
        index: int, offset: int = 7, metadata: str | None = "n", epoch: int = -1
    ) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(index, offset, epoch, metadata)

    group = talk.group("committed")
    for version in range(2, 11):
        commit(group, version, at(0), at(1), at(9), at(-1))
        commit(group, version, at(0, -1), at(1, 2**62))
        commit(group, version, at(0, -5))
        commit(group, version, at(0, metadata=None))
        commit(group, version, at(0, metadata="x" * 4_096), at(1, metadata="x" * 4_097))
        commit(group, version, at(0), at(0, 8))
        commit(group, version)
        commit("", version, at(0))
        commit(LONG[:200], version, at(0))
        commit(group, version, at(0), member_id="who")
        commit(group, version, at(0), generation_id_or_member_epoch=5)
        commit(group, version, at(0), generation_id_or_member_epoch=-2)
        if version >= 6:
            commit(group, version, at(0, epoch=5), at(1, epoch=-2))
        if version >= 7:
            commit(group, version, at(0), group_instance_id="who")
            commit(group, version, at(0), group_instance_id="")
        if version < 10:
            for name in ("no-such-topic", "", "a/b"):
                commit(group, version, topics=[OffsetCommitRequestTopic(name=name, partitions=[at(0)])])
        commit(group, version, topics=[])
    unknown = [
        OffsetCommitRequestTopic(topic_id=each, partitions=[at(0)]) for each in (UNKNOWN_ID, bytes(16))
    ]
    known = OffsetCommitRequestTopic(topic_id=talk.topic_id(topic), partitions=[at(0), at(9)])
    commit(group, 10, topics=unknown)
    commit(group, 10, topics=[known, *unknown])
    by_name = [
        OffsetCommitRequestTopic(name=name, partitions=[at(0), at(1)]) for name in (topic, "no-such-topic")
    ]
    commit(group, 9, topics=by_name)
    commit(group, 9, topics=[by_name[0], by_name[0]])
    commit(group, 4, at(0), retention_time_ms=0)
    commit(group, 4, at(0), retention_time_ms=-5)
    # Leave nothing behind in a broker that others use.
    talk.ask(DeleteGroupsRequest(["", LONG[:200]]))


def committed(talk: Talk) -> None:
    topic, other = talk.topic(2), talk.topic(1, "other")
    group = talk.group()
    asked = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(0, 7, 3, "note"), OffsetCommitRequestPartition(1, 8)],
        )
        for name in (topic, other)
    ]
    talk.ask(OffsetCommitRequest(group, topics=asked), 9)

    for version in range(1, 8):
        for topics in (
            [OffsetFetchRequestTopic(topic, [0, 1, 9, -1]), OffsetFetchRequestTopic(other, [0])],
            [OffsetFetchRequestTopic("no-such-topic", [0])],
            [OffsetFetchRequestTopic("", [0]), OffsetFetchRequestTopic("a/b", [0])],
            [OffsetFetchRequestTopic(topic, [])],
            [OffsetFetchRequestTopic(topic, [0, 0])],
            [OffsetFetchRequestTopic(topic, [0]), OffsetFetchRequestTopic(topic, [1])],
            [],
        ):
            talk.ask(OffsetFetchRequest(group_id=group, topics=topics), version)
        for name in ("none", ""):
            talk.ask(OffsetFetchRequest(group_id=name, topics=[OffsetFetchRequestTopic(topic, [0])]), version)
        if version >= 2:
            talk.ask(OffsetFetchRequest(group_id=group, topics=None), version)
            talk.ask(OffsetFetchRequest(group_id="none", topics=None), version)
    talk.ask(OffsetFetchRequest(group_id=group, topics=None, require_stable=True), 7)

    def named(name: str, *indexes: int, version: int) -> OffsetFetchRequestTopics:
        topic_id = talk.topic_id(name) if version >= 10 else bytes(16)
        return OffsetFetchRequestTopics(topic_id, name, list(indexes))

    for version in (8, 9, 10):
        both = [named(topic, 0, 1, 9, version=version), named(other, 0, version=version)]
        for groups in (
            [OffsetFetchRequestGroup(group, topics=both)],
            [OffsetFetchRequestGroup(group, topics=None), OffsetFetchRequestGroup("none", topics=None)],
            [
                OffsetFetchRequestGroup(group, topics=both[:1]),
                OffsetFetchRequestGroup(group, topics=both[1:]),
            ],
            [OffsetFetchRequestGroup("", topics=None)],
            [OffsetFetchRequestGroup(group, topics=[])],
            [OffsetFetchRequestGroup(group, topics=[named(topic, version=version)])],
            [OffsetFetchRequestGroup(group, topics=[named(topic, 0, 0, version=version)])],
            [],
        ):
            for stable in (False, True):
                talk.ask(OffsetFetchRequest(groups, require_stable=stable), version)
    for member_id, epoch in (("who", 1), ("who", -1), ("", 0), (None, 5), ("", -1)):
        for version in (9, 10):
            talk.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, member_id, epoch, None)]), version)
            talk.ask(OffsetFetchRequest([OffsetFetchRequestGroup("none", member_id, epoch, None)]), version)
    for topic_id in (UNKNOWN_ID, bytes(16)):
        unknown = [OffsetFetchRequestTopics(topic_id, partition_indexes=[0]), named(topic, 0, version=10)]
        talk.ask(OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=unknown)]), 10)
        talk.ask(OffsetFetchRequest([OffsetFetchRequestGroup("none", topics=unknown)]), 10)


def deleting_offsets(talk: Talk) -> None:
    topic = talk.topic_of_groups(2)
    group, classic, consumer = talk.group(), talk.group("classic"), talk.group("consumer")
    member(talk, classic)
    talk.ask(modern(consumer, topic))
    for name in (group, classic, consumer):
        partitions = [OffsetCommitRequestPartition(0, 7), OffsetCommitRequestPartition(1, 8)]
        asked = OffsetCommitRequest(
            name, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        )
        talk.wire.call(asked, 9)

    def delete(name: str, *topics: tuple[str, list[int]]) -> None:
        asked = [
            OffsetDeleteRequestTopic(each, [OffsetDeleteRequestPartition(index) for index in indexes])
            for each, indexes in topics
        ]
        talk.ask(OffsetDeleteRequest(name, asked))

    for name in (group, classic, consumer, "none", ""):
        delete(name, (topic, [0, 9, -1]), ("no-such-topic", [0]))
        delete(name, (topic, [0, 0, 1]))
        delete(name, (topic, []))
        delete(name, ("", [0]), ("a/b", [0]))
        delete(name, (topic, [0]), (topic, [1]))
        delete(
            name, (topic, [0, 9]), ("none", [1]), (topic, [0]), (topic, [9]), ("none", []), ("none", [1, 2])
        )
        delete(name, ("no-such-topic", []), ("", []), (topic, []))
        delete(name)


def classic_members(talk: Talk) -> None:
    """One group in each version of its requests: joined, beating, described, left."""
    for version in range(10):
        group = talk.group(f"group-of-v{version}")
        given = talk.ask(join(group, rebalance_timeout_ms=60_000 if version else -1), version)
        odd: list[dict[str, Any]] = [
            {"session_timeout_ms": 1}, {"session_timeout_ms": 10**9}, {"group_id": ""},
            {"group_id": LONG, "member_id": "who"},
            {"member_id": "who"}, {"protocols": []}, {"protocol_type": ""}, {"protocol_type": "connect"},
            {"protocols": [JoinGroupRequestProtocol("", b"")]},
        ]  # fmt: skip
        if version:
            odd += [{"rebalance_timeout_ms": -1}, {"rebalance_timeout_ms": 0}]
        for changes in odd:
            # Each in a group of its own, for those that are let in would wait for each other.
            request = join(talk.group(f"odd-group-of-v{version}"))
            if version == 0:
                request.rebalance_timeout_ms = -1
            for field, value in changes.items():
                setattr(request, field, value)
            talk.ask(request, version)
        joined = talk.ask(join(group, given.member_id), 9)
        synced_and_beating(talk, group, joined.generation_id, given.member_id)
        for each in range(7):
            talk.ask(DescribeGroupsRequest([group]), each)


def no_time_to_sync(talk: Talk) -> None:
    """Who gives no rebalance timeout is gone unless it syncs at once. v0 cannot give one."""
    for version in (1, 4, 9):
        for timeout_ms in (-1, -(2**31), 0):
            group = talk.group(f"group-of-v{version}")
            request = join(group, rebalance_timeout_ms=timeout_ms, session_timeout_ms=300_000)
            if version >= 4:
                request.member_id = talk.wire.call(request, version).member_id
            talk.ask(request, version)
            state = DescribeGroupsRequest([group])
            talk.until(
                lambda state=state: talk.wire.call(state).groups[0].group_state == "Empty",  # type: ignore[misc]
                "the member stays",
            )
            talk.ask(state)


def synced_and_beating(talk: Talk, group: str, generation: int, name: str) -> None:
    """Every version of SyncGroup and Heartbeat, of a member and of who is none."""
    for each in range(6):
        request = SyncGroupRequest(group, generation, name)
        request.assignments = [
            SyncGroupRequestAssignment(name, b"mine"),
            SyncGroupRequestAssignment("who", b""),
        ]
        if each >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        talk.ask(request, each)
        for generation_id, member_id in (
            (generation + 1, name),
            (-1, name),
            (generation, "who"),
            (generation, ""),
        ):
            odd_sync = SyncGroupRequest(group, generation_id, member_id)
            if each >= 5:
                odd_sync.protocol_type, odd_sync.protocol_name = "consumer", "range"
            talk.ask(odd_sync, each)
    for each in range(5):
        for beat in (
            HeartbeatRequest(group, generation, name), HeartbeatRequest(group, generation + 1, name),
            HeartbeatRequest(group, -1, name), HeartbeatRequest(group, generation, "who"),
            HeartbeatRequest(group, generation, ""), HeartbeatRequest("", generation, name),
            HeartbeatRequest("none", generation, name),
        ):  # fmt: skip
            talk.ask(beat, each)
        if each >= 3:
            talk.ask(HeartbeatRequest(group, generation, name, "who"), each)


def rebalancing(talk: Talk) -> None:
    """Two members, a static one among them, from the first join to the last leave; what each is told."""
    group = talk.group()
    first = member(talk, group).member_id
    other = talk.connect()
    other.send(join(group, group_instance_id="i"))
    told_to_rejoin = HeartbeatRequest(group, 1, first)
    talk.until(lambda: talk.wire.call(told_to_rejoin).error_code != codes.NONE, "no rebalance")
    talk.ask(told_to_rejoin)
    talk.ask(DescribeGroupsRequest([group]))
    talk.ask(SyncGroupRequest(group, 1, first, None, "consumer", "range"))
    joined = talk.ask(join(group, first))
    static = other.receive()
    talk.keep("the static member's join", static)
    talk.ask(DescribeGroupsRequest([group]))
    talk.ask(HeartbeatRequest(group, 2, static.member_id, "i"))
    talk.ask(HeartbeatRequest(group, 1, first))
    follower = SyncGroupRequest(group, 2, static.member_id, "i", "consumer", "range")
    other.send(follower)
    assigned = [
        SyncGroupRequestAssignment(first, b"mine"),
        SyncGroupRequestAssignment(static.member_id, b"yours"),
    ]
    assert joined.leader == first
    talk.ask(SyncGroupRequest(group, 2, first, None, "consumer", "range", assigned))
    talk.keep("the static member's assignment", other.receive())
    talk.ask(DescribeGroupsRequest([group]))
    talk.ask(ListGroupsRequest(), mine=True)
    back = talk.ask(join(group, group_instance_id="i"))
    talk.ask(follower)
    talk.ask(HeartbeatRequest(group, 2, static.member_id, "i"))
    talk.ask(SyncGroupRequest(group, 2, back.member_id, "i", "consumer", "range"))
    talk.ask(join(group, static.member_id, group_instance_id="i"))
    talk.ask(DescribeGroupsRequest([group]))
    talk.ask(LeaveGroupRequest(group, [MemberIdentity(static.member_id, "i"), MemberIdentity("", "i")]))
    talk.ask(LeaveGroupRequest(group, [MemberIdentity(first), MemberIdentity(first)]))
    talk.ask(DescribeGroupsRequest([group]))
    talk.ask(ListGroupsRequest(), mine=True)


def leaving(talk: Talk) -> None:
    for version in range(6):
        group = talk.group(f"group-of-v{version}")
        name = member(talk, group).member_id
        for odd in ("who", "", name, name):
            request = LeaveGroupRequest(group, member_id=odd)
            if version >= 3:
                request = LeaveGroupRequest(group, [MemberIdentity(odd)])
            talk.ask(request, version)
        if version >= 3:
            talk.ask(LeaveGroupRequest(group, []), version)
            talk.ask(LeaveGroupRequest("", [MemberIdentity(name)]), version)
            talk.ask(LeaveGroupRequest("none", [MemberIdentity(name), MemberIdentity("", "i")]), version)


def describing(talk: Talk) -> None:
    topic = talk.topic_of_groups(2)
    classic, consumer, simple, empty = (
        talk.group(kind) for kind in ("classic", "consumer", "simple", "empty")
    )
    partitions = [OffsetCommitRequestPartition(0, 7)]
    talk.ask(
        OffsetCommitRequest(simple, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]), 9
    )
    joined = member(talk, empty)
    talk.ask(LeaveGroupRequest(empty, [MemberIdentity(joined.member_id)]))
    member(talk, classic)
    talk.ask(modern(consumer, topic))
    everything = [classic, consumer, simple, empty, "none", ""]
    for version in range(7):
        for name in everything:
            talk.ask(DescribeGroupsRequest([name]), version)
        talk.ask(DescribeGroupsRequest([classic, classic, simple]), version)
        talk.ask(DescribeGroupsRequest([]), version)
        if version >= 3:
            talk.ask(DescribeGroupsRequest(everything, include_authorized_operations=True), version)
    for version in range(2):
        for name in everything:
            talk.ask(ConsumerGroupDescribeRequest([name]), version)
        talk.ask(ConsumerGroupDescribeRequest([consumer, consumer]), version)
        talk.ask(ConsumerGroupDescribeRequest([]), version)
        talk.ask(ConsumerGroupDescribeRequest(everything, include_authorized_operations=True), version)
    for version in range(6):
        talk.ask(ListGroupsRequest(), version, mine=True)
    for states in (
        ["Stable"], ["stable"], ["Empty"], ["Dead"], ["Assigning"], ["nonsense"], ["Empty", "Stable", "Stable"], [""],
    ):  # fmt: skip
        for version in (4, 5):
            talk.ask(ListGroupsRequest(states), version, mine=True)
    for types in (
        ["consumer"],
        ["Classic"],
        ["classic", "consumer"],
        ["share"],
        ["nonsense"],
        [""],
        ["streams"],
    ):
        talk.ask(ListGroupsRequest([], types), 5, mine=True)
        talk.ask(ListGroupsRequest(["Stable"], types), 5, mine=True)
    for version in range(3):
        talk.ask(DeleteGroupsRequest([classic, consumer, "none", ""]), version)
        talk.ask(DeleteGroupsRequest([]), version)
    talk.ask(DeleteGroupsRequest(["none", "none"]))
    talk.ask(DeleteGroupsRequest([simple, simple]))
    talk.ask(DeleteGroupsRequest([empty]))
    talk.ask(DeleteGroupsRequest([empty]))


def consumer_heartbeats(talk: Talk) -> None:
    topic = talk.topic_of_groups(2)
    group = talk.group()
    owned = [TopicPartitions(talk.topic_id(topic), [0, 1])]
    for version in range(2):
        for odd in (
            modern("", topic), modern(group, topic, rebalance_timeout_ms=0),
            modern(group, topic, rebalance_timeout_ms=-5), modern(group, topic, subscribed_topic_names=None),
            modern(group, topic, server_assignor=""), modern(group, topic, server_assignor="mine"),
            modern(group, topic, rack_id=""), modern(group, topic, instance_id=""),
            modern(group, topic, topic_partitions=owned), modern(group, topic, topic_partitions=None),
            modern(group, topic, member_epoch=5), modern(group, topic, member_epoch=-1),
            modern(group, topic, member_epoch=-2), modern(group, topic, member_epoch=-3),
        ):  # fmt: skip
            odd.group_id = odd.group_id and talk.group("group-of-its-own")
            talk.ask(odd, version)
        # A member without an id is given one, which Kafka writes in another way.
        talk.ask(modern(talk.group("group-of-one"), topic, member_id=""), version, without=("member_id",))
        mine = talk.group("group-of-mine")
        talk.ask(modern(mine, topic), version)
        talk.ask(modern(mine, topic, rack_id="r", member_id="b", server_assignor="range"), version)
        talk.ask(
            modern(mine, topic, member_id="c", instance_id="i", subscribed_topic_names=["", "a/b"]), version
        )
        talk.ask(modern(mine, topic, member_id=LONG), version)
        talk.ask(
            ConsumerGroupDescribeRequest([mine]),
            without=("group_state", "assignment_epoch", "target_assignment"),
        )
    talk.ask(modern(group, topic, subscribed_topic_names=None, subscribed_topic_regex=""), 1)
    talk.ask(modern(group, topic, subscribed_topic_names=None, subscribed_topic_regex="("), 1)


SCENARIOS: list[Scenario] = [
    coordinators, committing, committed, deleting_offsets, classic_members, no_time_to_sync, rebalancing, leaving,
    describing, consumer_heartbeats,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)
