"""The same requests to our broker and to real Apache Kafka: the answers must agree.

Each scenario returns what it saw as plain values, free of ids that differ from run to run.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from tests.broker.storage.test_partition import ACCEPTED, REFUSED
from tests.broker.wire import Wire, at, fetch
from tests.patience import PATIENCE, until

from kadence.protocol import error_codes as codes
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.fetch import FetchRequest, FetchTopic, ForgottenTopic
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic
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
    OffsetFetchRequestTopics,
)
from kadence.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence.records import encode_batch
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

Scenario = Callable[["Side"], Any]


class Side:
    """One broker with a topic and a group that nobody else uses."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wires: list[Wire] = []
        self.topic = f"same-{uuid4()}"
        self.group = f"same-{uuid4()}"
        self.wire = self.connect()
        self.create(self.topic, 2)
        self.wait_for_leaders()
        self.wait_for_coordinator()

    def connect(self) -> Wire:
        wire = Wire(self.address)
        self.wires.append(wire)
        return wire

    def close(self) -> None:
        for wire in self.wires:
            wire.sock.close()

    def create(self, name: str, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
        )
        answer = self.wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        return codes.name(answer.topics[0].error_code)

    def wait_for_leaders(self) -> None:
        """Real Kafka answers a creation before its partitions are led."""
        deadline = time.monotonic() + PATIENCE
        asked = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(2)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=asked)], timeout_ms=1_000
        )
        while any(each.error_code for each in self.wire.call(request).topics[0].partitions):
            assert time.monotonic() < deadline, "no leaders"

    def wait_for_coordinator(self) -> None:
        """Real Kafka makes its offsets topic when it is first asked."""
        deadline = time.monotonic() + PATIENCE
        while True:
            (found,) = self.wire.call(FindCoordinatorRequest(coordinator_keys=[self.group])).coordinators
            probe = self.wire.call(HeartbeatRequest(group_id=self.group, member_id="m")).error_code
            if found.error_code == codes.NONE and probe == codes.UNKNOWN_MEMBER_ID:
                return
            assert time.monotonic() < deadline, "no coordinator"

    # Requests of the group

    def join(self, member_id: str = "", *, version: int = 9, wire: Wire | None = None, **changes: Any) -> Any:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000 if version else -1,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols("range"),
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return (wire or self.wire).call(request, version)

    def member(self, **changes: Any) -> Any:
        """Join with an id that was given out; a static member needs none."""
        if "group_instance_id" in changes:
            return self.join(**changes)
        return self.join(self.join(**changes).member_id, **changes)

    def sync(self, joined: Any, **changes: Any) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.wire.call(request)

    def beat(self, joined: Any, **changes: Any) -> str:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return codes.name(self.wire.call(request).error_code)

    def leave(self, *members: MemberIdentity, group: str | None = None) -> list[str]:
        request = LeaveGroupRequest(group_id=self.group if group is None else group, members=list(members))
        answer = self.wire.call(request)
        return [codes.name(answer.error_code), *(codes.name(each.error_code) for each in answer.members)]

    def commit(self, version: int = 9, topic: str | None = None, **changes: Any) -> list[str]:
        partitions = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata="n")
            for each in (0, 9)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic or self.topic, partitions=partitions)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        (answer,) = self.wire.call(request, version).topics
        return [
            codes.name(each.error_code) for each in sorted(answer.partitions, key=lambda p: p.partition_index)
        ]

    def produce(self, values: int = 1, **batch: Any) -> tuple[str, int]:
        answer = self.wire.produce(self.topic, [b"v"] * values, **batch)
        return codes.name(answer.error_code), answer.base_offset


def protocols(*names: str) -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=b"m") for name in names]


def name_of(answer: Any) -> str:
    return codes.name(answer.error_code)


def joining(side: Side) -> Any:
    seen: list[Any] = []
    refused: tuple[dict[str, Any], ...] = (
        {"session_timeout_ms": 1}, {"session_timeout_ms": 10**9}, {"group_id": ""}, {"protocols": []},
        {"protocol_type": ""}, {"member_id": "who"},
    )  # fmt: skip
    for changes in refused:
        seen += [name_of(side.join(**changes)) for _ in range(2)]
    required = side.join()
    joined = side.join(required.member_id)
    seen += [
        name_of(required),
        name_of(joined),
        joined.generation_id,
        joined.protocol_name,
        joined.protocol_type,
    ]
    seen += [joined.leader == joined.member_id, len(joined.members), joined.skip_assignment]
    seen += [name_of(side.join(protocols=protocols("sticky"))), name_of(side.join(protocol_type="connect"))]
    again = side.join(joined.member_id)
    seen += [again.generation_id, len(again.members)]
    seen.append(name_of(side.sync(joined)))
    rejoined = side.join(joined.member_id, protocols=protocols("range", "sticky"))
    seen += [rejoined.generation_id, rejoined.protocol_name, name_of(side.sync(rejoined))]
    return seen


def joining_in_old_versions(side: Side) -> Any:
    seen: list[Any] = []
    for version in range(9):
        side.group = f"same-{uuid4()}"
        first = side.join(version=version)
        seen += [name_of(first), first.generation_id, first.protocol_name, bool(first.member_id)]
        refused = side.join(version=version, session_timeout_ms=1)
        seen += [name_of(refused), refused.protocol_name, refused.leader, refused.generation_id]
    return seen


def syncing(side: Side) -> Any:
    joined = side.member()
    seen = [
        name_of(side.sync(joined, **changes))
        for changes in (
            {"generation_id": 9}, {"member_id": "who"}, {"group_id": ""}, {"group_id": "none"},
            {"protocol_type": "connect"}, {"protocol_name": "sticky"}, {"group_instance_id": "who"},
        {"protocol_type": None}, {"protocol_name": None}, {"protocol_name": None, "group_id": ""},
        )
    ]  # fmt: skip
    synced = side.sync(joined)
    again = side.sync(joined, assignments=[])
    return [*seen, synced.assignment, synced.protocol_type, synced.protocol_name, again.assignment]


def beating(side: Side) -> Any:
    joined = side.member()
    seen: list[Any] = [side.beat(joined)]
    side.sync(joined)
    seen += [
        side.beat(joined, **changes)
        for changes in (
            {}, {"generation_id": 0}, {"member_id": "who"}, {"group_id": ""}, {"group_id": "none"},
            {"group_instance_id": "who"},
        )
    ]  # fmt: skip
    other = side.connect()
    other.send(
        JoinGroupRequest(
            group_id=side.group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
            protocols=protocols("range"),
        ),
        3,
    )  # fmt: skip
    while side.beat(joined) == "NONE":
        pass
    seen += [side.beat(joined), name_of(side.sync(joined)), *side.commit()]
    seen += side.commit(generation_id_or_member_epoch=1, member_id=joined.member_id)
    rejoined = side.join(joined.member_id)
    seen += [rejoined.generation_id, len(rejoined.members), other.receive().generation_id]
    seen += side.commit(generation_id_or_member_epoch=2, member_id=joined.member_id)
    return seen


def leaving(side: Side) -> Any:
    joined = side.member()
    side.sync(joined)
    seen: list[Any] = [
        side.leave(MemberIdentity(member_id="who")),
        side.leave(MemberIdentity(member_id="", group_instance_id="who")),
        side.leave(MemberIdentity(member_id="m"), group="none"),
        side.leave(MemberIdentity(member_id="m"), group=""),
        side.leave(),
        side.beat(joined),
        side.leave(MemberIdentity(member_id=joined.member_id), MemberIdentity(member_id="who")),
        side.beat(joined),
        name_of(side.join(joined.member_id)),
        name_of(side.sync(joined)),
        name_of(side.wire.call(LeaveGroupRequest(group_id=side.group, member_id="who"), 2)),
    ]
    return seen


def static_members(side: Side) -> Any:
    first = side.join(group_instance_id="a")
    seen: list[Any] = [name_of(first), first.member_id.startswith("a-"), first.members[0].group_instance_id]
    seen.append(name_of(side.sync(first, group_instance_id="a")))
    back = side.join(group_instance_id="a")
    seen += [
        name_of(back),
        back.generation_id,
        back.skip_assignment,
        back.leader == back.member_id,
        len(back.members),
    ]
    old = side.join(group_instance_id="a", version=8)
    seen += [name_of(old), old.leader == back.member_id, old.leader == old.member_id, len(old.members)]
    seen += [
        side.beat(first, group_instance_id="a"),
        side.beat(first),
        name_of(side.sync(first, group_instance_id="a")),
    ]
    seen += [
        name_of(side.join(first.member_id, group_instance_id="a")),
        name_of(side.join("who", group_instance_id="z")),
    ]
    seen.append(side.beat(old, group_instance_id="a"))
    seen.append(side.sync(old, group_instance_id="a", assignments=[]).assignment)
    seen.append(side.leave(MemberIdentity(member_id=first.member_id, group_instance_id="a")))
    seen.append(side.leave(MemberIdentity(member_id="", group_instance_id="a")))
    return seen


def committing(side: Side) -> Any:
    seen: list[Any] = [
        side.commit(8, generation_id_or_member_epoch=3, member_id="m"),
        side.commit(9, generation_id_or_member_epoch=3, member_id="m"),
        side.commit(topic="no-such-topic"),
        side.commit(),
    ]
    joined = side.member()
    seen += [side.commit(), side.commit(generation_id_or_member_epoch=1, member_id=joined.member_id)]
    side.sync(joined)
    seen += [
        side.commit(),
        side.commit(generation_id_or_member_epoch=1, member_id=joined.member_id),
        side.commit(generation_id_or_member_epoch=5, member_id=joined.member_id),
        side.commit(generation_id_or_member_epoch=1, member_id="who"),
        side.commit(generation_id_or_member_epoch=1, member_id=joined.member_id, group_instance_id="who"),
        side.commit(generation_id_or_member_epoch=-1, member_id=joined.member_id),
    ]
    return seen


def committed(side: Side) -> Any:
    side.commit()

    def positions(version: int, group_id: str, topics: list[OffsetFetchRequestTopics] | None) -> Any:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
        (group,) = side.wire.call(request, version).groups
        return name_of(group), [
            (
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
                each.error_code,
            )
            for topic in group.topics
            for each in topic.partitions
        ]

    named = [OffsetFetchRequestTopics(name=side.topic, partition_indexes=[0, 1, 9])]
    seen = [
        positions(version, group_id, topics)
        for version in (8, 9)
        for group_id in (side.group, "none")
        for topics in (None, [], named)
    ]
    by_id = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
        for each in (side.wire.topic_id(side.topic), b"?" * 16)
    ]
    return [*seen, positions(10, side.group, by_id)]


def administered_groups(side: Side) -> Any:
    seen: list[Any] = []

    def described(version: int) -> Any:
        (group,) = side.wire.call(DescribeGroupsRequest(groups=[side.group]), version).groups
        members = [(each.member_metadata, each.member_assignment, each.client_id) for each in group.members]
        return name_of(group), group.group_state, group.protocol_type, group.protocol_data, members

    def deleted(*names: str) -> list[str]:
        return [
            name_of(each) for each in side.wire.call(DeleteGroupsRequest(groups_names=list(names))).results
        ]

    def offset_deleted(group: str, topic: str) -> Any:
        answer = side.wire.call(
            OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    )
                ],
            )
        )
        return name_of(answer), [codes.name(p.error_code) for t in answer.topics for p in t.partitions]

    seen += [described(5), described(6), deleted("none", ""), offset_deleted("none", side.topic)]
    joined = side.member()
    seen.append(described(6))
    side.sync(joined)
    seen += [described(6), deleted(side.group)]
    side.commit(generation_id_or_member_epoch=1, member_id=joined.member_id)
    side.leave(MemberIdentity(member_id=joined.member_id))
    seen += [described(6), offset_deleted(side.group, side.topic), deleted(side.group), described(6)]
    return seen


def producing(side: Side) -> Any:
    seen: list[Any] = [side.produce(2), side.produce(3, compression="zstd"), side.produce(acks=1)]
    seen += [
        name_of(side.wire.produce("no-such-topic", [b"v"], version=9)),
        name_of(side.wire.produce(side.topic, [b"v"], 9)),
    ]
    batch = encode_batch([(0, None, b"v", ())])
    for records in (b"", batch * 2, damage(batch, 17, 1), damage(batch, 16, 1), damage(batch, 60, 2)):
        seen.append(name_of(side.wire.produce_bytes(side.topic, records)))
    seen.append(name_of(side.wire.produce(side.topic, [b"v"], acks=5)))
    seen.append(side.produce(values=1, version=13))
    return seen


def producing_odd_batches(side: Side) -> Any:
    """Where the answers are meant to differ (Kafka fails with UNKNOWN_SERVER_ERROR there) a case is left out."""
    left_out = {"none", "longer than a request", "unknown codec", "not gzip"}
    cases = {**{name: data for name, (data, _) in REFUSED.items()}, **ACCEPTED}
    seen = []
    for name, data in cases.items():
        if name not in left_out:
            answer = side.wire.produce_bytes(side.topic, bytes(data))
            seen.append((name, name_of(answer), answer.base_offset))
    return seen


def damage(batch: bytes, at_byte: int, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(">b", changed, at_byte, value)
    return bytes(changed)


def idempotent_producing(side: Side) -> Any:
    seen: list[Any] = []

    def send(sequence: int, count: int = 1, epoch: int = 0, producer: int = 4_000_001) -> None:
        seen.append(side.produce(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))

    for sequence in (0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0, 7, 6):
        send(sequence)
    send(7, 3)
    send(7, 3)
    send(7, 2)
    send(3, epoch=1)
    send(0, epoch=1)
    send(10)
    send(0, epoch=0)
    send(5, producer=4_000_002)
    return seen


def fetching(side: Side) -> Any:
    for _ in range(3):
        side.produce(2)

    def fetched(request: FetchRequest, version: int = 12) -> Any:
        answer = side.wire.call(request, version)
        return name_of(answer), [
            (each.partition_index, name_of(each), each.high_watermark, each.last_stable_offset, each.log_start_offset,
             len(each.records or b""), each.error_code or each.aborted_transactions, each.current_leader.leader_id)
            for topic in answer.responses
            for each in topic.partitions
        ]  # fmt: skip

    topic = side.topic
    return [
        fetched(fetch(topic, at(0))),
        fetched(fetch(topic, at(3))),
        fetched(fetch(topic, at(6), max_wait_ms=10)),
        fetched(fetch(topic, at(7))),
        fetched(fetch(topic, at(-1))),
        fetched(fetch(topic, at(0, 9))),
        fetched(fetch("no-such-topic", at(0))),
        fetched(fetch(topic, at(0), isolation_level=1)),
        fetched(fetch(topic, at(0, current_leader_epoch=0))),
        fetched(fetch(topic, at(0, current_leader_epoch=5))),
        fetched(fetch(topic, at(0)), 4),
        fetched(
            FetchRequest(session_epoch=-1, topics=[FetchTopic(topic_id=b"?" * 16, partitions=[at(0)])]), 13
        ),
    ]


def diverging(side: Side) -> Any:
    """A reader that tells the epoch of its last record hears where its log parted from the broker's (KIP-320)."""
    for _ in range(3):
        side.produce(2)
    seen: list[Any] = []

    def ask(offset: int, last_epoch: int, session_id: int = 0, epoch: int = -1, **options: Any) -> int:
        request = fetch(
            side.topic,
            at(offset, last_fetched_epoch=last_epoch, **options),
            session_id=session_id,
            session_epoch=epoch,
            max_wait_ms=10,
        )
        answer = side.wire.call(request, 12)
        seen.append(name_of(answer))
        seen.extend(
            (name_of(each), each.high_watermark, each.diverging_epoch.epoch, each.diverging_epoch.end_offset,
             len(each.records or b""))
            for topic in answer.responses
            for each in topic.partitions
        )  # fmt: skip
        return int(answer.session_id)

    ask(2, 0)
    ask(6, 0)
    ask(7, 0)
    ask(1_000, 0)
    ask(2, 3)
    ask(1_000, 3)
    ask(-1, 0)
    ask(7, 0, current_leader_epoch=0)
    ask(7, 0, current_leader_epoch=4)
    opened = ask(6, -1, 0, 0)
    ask(6, 0, opened, 1)
    ask(7, 0, opened, 2)
    ask(6, 0, opened, 3)
    return seen


def fetch_sessions(side: Side) -> Any:
    side.produce(2)
    seen: list[Any] = []

    def ask(session_id: int, epoch: int, *partitions: Any, forget: list[int] | None = None) -> int:
        request = fetch(side.topic, *partitions, session_id=session_id, session_epoch=epoch)
        if not partitions:
            request.topics = []
        if forget:
            request.forgotten_topics_data = [ForgottenTopic(topic=side.topic, partitions=forget)]
        answer = side.wire.call(request, 12)
        told = [
            (p.partition_index, name_of(p), len(p.records or b"") > 0)
            for t in answer.responses
            for p in t.partitions
        ]
        seen.append((name_of(answer), answer.session_id == 0, answer.session_id == session_id, told))
        return int(answer.session_id)

    opened = ask(0, 0, at(0, 0), at(0, 1))
    ask(opened, 1)
    ask(opened, 2, at(2, 0))
    ask(opened, 3)
    side.produce(1)
    ask(opened, 4)
    ask(opened, 5, at(3, 0))
    ask(opened, 7)
    ask(opened, 6, at(99, 1))
    ask(opened, 7)
    ask(opened, 8, forget=[1])
    ask(opened, 9, forget=[0])
    ask(opened, 10)
    ask(12345, 1)
    ask(12345, 0, at(0, 0))
    ask(0, -1, at(0, 0))
    return seen


def listing_offsets(side: Side) -> Any:
    for timestamp in (100, 300, 200):
        side.produce(1, timestamp=timestamp)

    def look_up(timestamp: int, version: int = 7, partition: int = 0, epoch: int = -1) -> Any:
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=side.topic, partitions=[asked])], timeout_ms=1_000
        )
        answer = side.wire.call(request, version).topics[0].partitions[0]
        return name_of(answer), answer.offset, answer.timestamp, answer.leader_epoch

    def epoch_end(epoch: int, current: int = -1, partition: int = 0) -> Any:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=side.topic, partitions=[asked])]
        )
        answer = side.wire.call(request).topics[0].partitions[0]
        return name_of(answer), answer.leader_epoch, answer.end_offset

    return [
        [look_up(timestamp) for timestamp in (-1, -2, -3, 0, 101, 300, 301)],
        [look_up(timestamp, 11) for timestamp in (-1, -2, -3, -4, -5, 0, 301)],
        [look_up(-1, version) for version in range(1, 12)],
        [look_up(-1, partition=9), look_up(-1, epoch=4), look_up(-1, epoch=0), look_up(-3, partition=1)],
        [
            epoch_end(0),
            epoch_end(3),
            epoch_end(0, current=4),
            epoch_end(0, partition=9),
            epoch_end(0, partition=1),
        ],
    ]


def administered_topics(side: Side) -> Any:
    name = f"same-{uuid4()}"
    seen: list[Any] = [
        side.create(name, 3), side.create(name), side.create("a/b"), side.create(f"{name}-0", 0),
        side.create(f"{name}-r", 1, 5), side.create(f"{name}-c", max_message_byte="3"),
        side.create(f"{name}-d", -1, -1), side.create(f"{name}-n", retention_ms="long"), side.create(""),
        side.create(f"{name}-v", 2**31 - 1),
    ]  # fmt: skip
    for count, topic in ((3, name), (2, name), (5, name), (5, "no-such-topic"), (5, name)):
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=5_000
        )
        seen.append(name_of(side.wire.call(request).results[0]))
    asked = [MetadataRequestTopic(name=each) for each in (name, "a/b", "no-such-topic")]
    found = {}

    def has_all_partitions() -> bool:
        """Kafka's controller answers before its broker has the new partitions."""
        answer = side.wire.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        found.update({each.name: (name_of(each), len(each.partitions)) for each in answer.topics})
        return found[name] == ("NONE", 5)

    until(has_all_partitions, what=lambda: found)
    unknown = side.wire.call(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"?" * 16)]))
    return [
        seen,
        found[name],
        found["a/b"],
        found["no-such-topic"],
        name_of(unknown.topics[0]),
        unknown.topics[0].name,
    ]


@pytest.mark.parametrize(
    "scenario",
    [
        joining, joining_in_old_versions, syncing, beating, leaving, static_members, committing, committed,
        administered_groups, producing, producing_odd_batches, idempotent_producing, fetching, diverging,
        fetch_sessions, listing_offsets, administered_topics,
    ],
    ids=lambda scenario: scenario.__name__,
)  # fmt: skip
def test_we_answer_as_kafka_does(kafka: Kafka, scenario: Scenario) -> None:
    seen = []
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            side = Side(address)
            try:
                seen.append(scenario(side))
            finally:
                side.close()
    ours, kafkas = seen
    assert ours == kafkas
