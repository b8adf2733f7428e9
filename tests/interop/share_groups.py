"""Random requests to the coordinator of share groups, to our broker and to real Apache Kafka: every answer compared.

    python -m tests.interop.sequences share-members --first 0 --count 300

Members' and topics' ids are the same on both sides, so assignments are compared to the last partition. What Kafka does
in the background, it is given time for: a share-partition is initialised after the heartbeat that asks for it.
`ODDITIES` has what is Kafka's own, with the reason.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from tests.broker.wire import Wire
from tests.interop.known_topics import coordinator_knows
from tests.interop.queues import Difference

from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import delete_share_group_offsets as delete_api
from kadence.protocol import describe_share_group_offsets as describe_api
from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kadence.protocol.list_groups import ListGroupsRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.share_group_describe import ShareGroupDescribeRequest
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.records import encode_batch
from kadence.wire import Structure
from kadence_broker import Broker

__all__ = ["ODDITIES", "SHARE_MEMBERS", "Difference", "compare_share_members"]

SHARE_MEMBERS: Final = "share-members"

_CONFIG: Final = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}
"""Our broker's settings, as `kadence_testing.kafka` sets Kafka's."""
_OF_GROUP: Final = {"share.heartbeat.interval.ms": "5000", "share.assignment.interval.ms": "0"}

_STEPS: Final = 32
_GROUP: Final = 32
_PATIENCE: Final = 20.0
_PARTITIONS: Final = (1, 2, 3, 5)
_MADE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTOLD: Final = {"unknown_tags", "throttle_time_ms", "authorized_operations", "log_append_time_ms"}
_MEMBERS: Final = (
    "m0",
    "m1",
    "m2",
    "4dzyYl2JQ3qF9wHq0X1f6g",
    "Wn8bK7u5Sx2rT4pL9mVcZA",
    "a-member-of-36-characters-as-allowed",
)


def plain(value: Any, name: str = "") -> Any:
    """A value without what says nothing."""
    if isinstance(value, Structure):
        return {
            each: plain(getattr(value, each), each) for each in type(value).__slots__ if each not in _UNTOLD
        }
    if isinstance(value, list):
        told = sorted((plain(each) for each in value), key=repr)
        # Kafka leaves topics in an assignment whose partitions it took away.
        return [each for each in told if each.get("partitions") != []] if name == "topic_partitions" else told
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if name == "base_offset":
        return value >= 0  # topics are those of all sequences
    if isinstance(value, str):
        return _MADE_ID.sub("<id>", value)
    return codes.name(value) if name.endswith("error_code") else value


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A step that changes the sequence's own topic: it gets so many partitions; 0: it is deleted."""

    name: str
    before: int
    partitions: int


class Story:
    """One sequence: a group, and what its members were told.

    Attributes:
        own: a topic that comes, grows and goes in this sequence; its number of partitions is in ``counts``.
    """

    def __init__(self, rng: random.Random, group: str, topics: list[str]) -> None:
        self.rng = rng
        self.group = group
        self.own = f"{group}-own"
        self.topics = [*topics, self.own]
        self.counts = {**dict(zip(topics, _PARTITIONS, strict=True)), self.own: 0}
        self.epochs = dict.fromkeys(_MEMBERS, 0)

    def step(self) -> tuple[Any, int | None]:
        """The next request, and its version."""
        kind = self.rng.choices(list(_STEPS_OF), list(_STEPS_OF.values()))[0]
        request = kind(self)
        return request if isinstance(request, tuple) else (request, None)

    def learn(self, request: Any, answer: Any) -> None:
        """Take in what a heartbeat was told."""
        if isinstance(request, ShareGroupHeartbeatRequest) and request.member_id in self.epochs:
            if answer.error_code == codes.NONE:
                self.epochs[request.member_id] = max(answer.member_epoch, 0)
            elif answer.error_code in (codes.UNKNOWN_MEMBER_ID, codes.GROUP_ID_NOT_FOUND):
                self.epochs[request.member_id] = 0

    # The requests

    def some_topics(self, most: int = 4) -> list[str]:
        names = [*self.topics, f"{self.topics[0]}-none"]
        return self.rng.sample(names, self.rng.randint(1, most))

    def beat(self) -> Any:
        rng = self.rng
        member = rng.choice(_MEMBERS[: rng.choice((2, 4, 6))])
        epoch = self.epochs[member]
        request = ShareGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch)
        kind = rng.choices(
            ("next", "subscribe", "join", "leave", "early", "late", "rack", "nonsense"),
            (14, 4, 2, 2, 0.5, 1.5, 0.5, 0.7),
        )[0]
        if epoch == 0 or kind in ("join", "subscribe"):
            request.subscribed_topic_names = self.some_topics()
        match kind:
            case "join":
                request.member_epoch = 0
            case "leave":
                request.member_epoch = -1
                request.subscribed_topic_names = None
            case "early" | "late":
                request.member_epoch = max(epoch + (1 if kind == "early" else -rng.randint(1, 2)), 0)
            case "rack":
                request.rack_id = rng.choice(("r1", "r2"))
            case "nonsense":
                self._spoil(request)
        return request

    def _spoil(self, request: ShareGroupHeartbeatRequest) -> None:
        match self.rng.randrange(7):
            case 0:
                request.member_id = self.rng.choice(("", " ", "x" * 37))
            case 1:
                request.member_epoch = -2
            case 2:
                request.rack_id = ""
            case 3:
                request.subscribed_topic_names = []
            case 4:
                request.member_epoch, request.subscribed_topic_names = 0, None
            case 5:
                request.group_id = f"{self.group}-none"
                request.member_epoch = self.rng.choice((1, -1))
            case _:
                request.member_id, request.member_epoch = "stranger", 3

    def describe(self) -> Any:
        names = [self.group, f"{self.group}-none", ""][: self.rng.randint(1, 3)]
        return ShareGroupDescribeRequest(group_ids=names)

    def offsets(self) -> Any:
        topics = None
        if self.rng.random() < 0.3:
            # Kafka tries for half a minute to read partitions that do not exist.
            topics = [
                describe_api.DescribeShareGroupOffsetsRequestTopic(
                    name, list(range(self.counts.get(name) or 1))
                )
                for name in self.some_topics(2)
            ]
        group = self.group if self.rng.random() < 0.95 else f"{self.group}-none"
        asked = describe_api.DescribeShareGroupOffsetsRequestGroup(group, topics)
        return describe_api.DescribeShareGroupOffsetsRequest([asked]), self.rng.choice((0, 1))

    def alter(self) -> Any:
        topics = [
            alter_api.AlterShareGroupOffsetsRequestTopic(
                name,
                [
                    alter_api.AlterShareGroupOffsetsRequestPartition(number, self.rng.randint(0, 9))
                    for number in self.rng.sample(range(6), self.rng.randint(1, 3))
                ],
            )
            for name in self.some_topics(2)
        ]
        group = self.group if self.rng.random() < 0.97 else ""
        return alter_api.AlterShareGroupOffsetsRequest(group, topics)

    def delete_offsets(self) -> Any:
        topics = [delete_api.DeleteShareGroupOffsetsRequestTopic(name) for name in self.some_topics(3)]
        group = self.group if self.rng.random() < 0.97 else ""
        return delete_api.DeleteShareGroupOffsetsRequest(group, topics)

    def leave_all(self) -> Any:
        """A member that is there leaves: what needs an empty group should find one now and then."""
        present = [member for member, epoch in self.epochs.items() if epoch > 0]
        member = self.rng.choice(present or _MEMBERS)
        return ShareGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=-1)

    def own_topic(self) -> Any:
        """The topic comes, grows, or goes."""
        before = self.counts[self.own]
        now = self.rng.randint(1, 3) if before == 0 else self.rng.choice((0, before + self.rng.randint(1, 2)))
        self.counts[self.own] = now
        return OwnTopic(self.own, before, now)

    def produce(self) -> Any:
        names = [name for name, count in self.counts.items() if count]
        return _produced(self.rng.choice(names), self.rng.randint(1, 3)), 9

    def delete_group(self) -> Any:
        return DeleteGroupsRequest(groups_names=[self.group]), self.rng.choice((2, 3))

    def list_groups(self) -> Any:
        types, states = self.rng.choice((([], []), (["share"], []), ([], ["Empty"])))
        return ListGroupsRequest(states_filter=states, types_filter=types), 5

    def other_protocols(self) -> Any:
        """Of consumers: a group has one kind at a time."""
        match self.rng.randrange(6):
            case 0:
                protocols = [JoinGroupRequestProtocol("range", b"")]
                member = self.rng.choice(("", "m0"))
                return JoinGroupRequest(self.group, 60_000, 60_000, member, None, "consumer", protocols), 9
            case 1:
                return HeartbeatRequest(self.group, 1, "m0"), 4
            case 2:
                return LeaveGroupRequest(self.group, members=[MemberIdentity("m0")]), 5
            case 3:
                partition = OffsetCommitRequestPartition(0, 3)
                topic = OffsetCommitRequestTopic(name=self.topics[0], partitions=[partition])
                generation = self.rng.choice((-1, 2))
                return OffsetCommitRequest(self.group, generation, "", topics=[topic]), 9
            case 4:
                return DescribeGroupsRequest([self.group]), 6
            case _:
                return ConsumerGroupHeartbeatRequest(
                    self.group,
                    "m0",
                    self.rng.choice((0, 1, -1)),
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=self.topics[:1],
                    topic_partitions=[],
                ), 1


_STEPS_OF: Final[dict[Callable[[Story], Any], float]] = {
    Story.beat: 20,
    Story.describe: 2,
    Story.offsets: 2,
    Story.alter: 2,
    Story.delete_offsets: 1.5,
    Story.leave_all: 4,
    Story.delete_group: 1,
    Story.list_groups: 0.7,
    Story.other_protocols: 1,
    Story.own_topic: 1,
    Story.produce: 2,
}


def _produced(topic: str, count: int) -> ProduceRequest:
    batch = encode_batch([(1, None, b"v", ())] * count)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch)])]
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)


class ShareGroups:
    """Our broker and real Kafka, with the same topics; as many sequences as one likes."""

    def __init__(self, ours: Broker, kafka: str, seeds: range) -> None:
        self._wires = (Wire(ours), Wire(kafka))
        self._prefix = f"sg-{uuid4().hex[:8]}"
        self._ids: list[bytes] = []
        # Kafka takes a group's configuration in some time after its answer.
        edits = [AlterableConfig(name, 0, value) for name, value in _OF_GROUP.items()]
        groups = [AlterConfigsResource(_GROUP, f"{self._prefix}-{seed}", edits) for seed in seeds]
        for wire in self._wires:
            wire.call(IncrementalAlterConfigsRequest(groups))
        self._topics = self._create(ours)

    def close(self) -> None:
        for wire in self._wires:
            wire.sock.close()

    def _create(self, ours: Broker) -> list[str]:
        kept = [CreatableTopicConfig("retention.ms", "-1")]
        made = [
            CreatableTopic(f"{self._prefix}-{number}", partitions, 1, configs=kept)
            for number, partitions in enumerate(_PARTITIONS)
        ]
        mine, kafkas = self._wires
        # The same ids: the assignor goes by their hash codes.
        ours._core.cluster._new_topic_id = lambda: self._ids.pop(0) if self._ids else uuid4().bytes
        self._ids += [bytes(each.topic_id) for each in kafkas.call(CreateTopicsRequest(made, 30_000)).topics]
        mine.call(CreateTopicsRequest(made, 30_000))
        names = [each.name for each in made]
        deadline = time.monotonic() + 60
        for wire in self._wires:
            wire.call(FindCoordinatorRequest(coordinator_keys=[self._prefix]))
            while not coordinator_knows(wire, names):
                assert time.monotonic() < deadline, "the broker does not get ready"
                time.sleep(0.05)
        return names

    def run(self, seed: int) -> Difference | None:
        """One sequence; its first difference."""
        group = f"{self._prefix}-{seed}"
        story = Story(random.Random(f"share-members {seed}"), group, self._topics)
        lines: list[str] = []
        for number in range(_STEPS):
            request, version = story.step()
            lines.append(f"#{number} {request}")
            if isinstance(request, OwnTopic):
                self._change(request)
                self._settle(group)
                continue
            try:
                answers = [wire.call(request, version) for wire in self._wires]
            except OSError as error:
                raise AssertionError("\n".join(lines)) from error
            ours, kafkas = (self._plain(group, answer) for answer in answers)
            if ours != kafkas:
                excused = next((name for name, is_it in ODDITIES.items() if is_it(ours, kafkas, lines)), None)
                return Difference(seed, tuple(lines), ours, kafkas, excused)
            lines[-1] += f" -> {ours}"
            story.learn(request, answers[0])
            self._settle(group)
        return None

    def _change(self, step: OwnTopic) -> None:
        """Change the topic on both sides, and wait until the coordinators know."""
        for wire in reversed(self._wires):
            if not step.partitions:
                wire.call(DeleteTopicsRequest([DeleteTopicState(step.name)], timeout_ms=30_000))
            elif step.before:
                grown = CreatePartitionsTopic(step.name, step.partitions, None)
                wire.call(CreatePartitionsRequest([grown], 30_000))
            else:
                made = CreatableTopic(step.name, step.partitions, 1)
                (told,) = wire.call(CreateTopicsRequest([made], 30_000)).topics
                if wire is self._wires[1]:
                    self._ids.append(bytes(told.topic_id))
        deadline = time.monotonic() + _PATIENCE
        while self._assignable(self._wires[1], step.name) != step.partitions:
            assert time.monotonic() < deadline, step
            time.sleep(0.005)

    @staticmethod
    def _assignable(wire: Wire, name: str) -> int:
        """The number of partitions that the group coordinator knows of a topic."""
        group, member = f"probe-{uuid4()}", "probe"
        join = ConsumerGroupHeartbeatRequest(
            group, member, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=[name], topic_partitions=[]
        )
        given = wire.call(join, 1).assignment
        wire.call(ConsumerGroupHeartbeatRequest(group, member, -1), 1)
        return sum(len(each.partitions) for each in given.topic_partitions)

    def _plain(self, group: str, answer: Any) -> Any:
        told = plain(answer)
        if isinstance(told.get("groups"), list):
            # ListGroups has those of other sequences, too.
            told["groups"] = [
                each for each in told["groups"] if each["group_id"] in (group, f"{group}-none", "")
            ]
        return told

    def _settle(self, group: str) -> None:
        """Give Kafka time for what it does in the background: what is initialised here has to be so there."""
        deadline = time.monotonic() + _PATIENCE
        asked = describe_api.DescribeShareGroupOffsetsRequestGroup(group, None)
        while time.monotonic() < deadline:
            ours, kafkas = (
                {
                    (topic.topic_name, each.partition_index)
                    for topic in wire.call(describe_api.DescribeShareGroupOffsetsRequest([asked]))
                    .groups[0]
                    .topics
                    for each in topic.partitions
                }
                for wire in self._wires
            )
            if ours == kafkas:
                return
            time.sleep(0.005)


Oddity = Callable[[Any, Any, list[str]], bool]


def _kafka_cannot_delete(ours: Any, kafkas: Any, lines: list[str]) -> bool:
    told = [each["results"][0]["error_code"] if "results" in each else "" for each in (ours, kafkas)]
    return "DeleteGroups" in lines[-1] and told == ["NONE", "UNKNOWN_SERVER_ERROR"]


ODDITIES: Final[dict[str, Oddity]] = {
    # AlterShareGroupOffsets named no partition of a topic that exists, and some of another: Kafka keeps the first topic
    # without partitions, and cannot delete the state of none. The next DeleteGroups succeeds.
    "a group of a topic without partitions cannot be deleted": _kafka_cannot_delete,
}


def compare_share_members(seeds: range, kafka: str) -> Iterator[Difference | None]:
    """Run sequences; what each found."""
    with Broker(config=_CONFIG) as ours:
        pair = ShareGroups(ours, kafka, seeds)
        try:
            for seed in seeds:
                yield pair.run(seed)
        finally:
            pair.close()
