"""Random requests of share groups to our broker and to real Apache Kafka: finds the first answer that differs.

    python -m tests.interop.sequences share --first 0 --count 300

A sequence has a topic and a group of its own, and members with a connection each. What a step asks comes from the seed
and from what members were given before. Our broker is asked first: where it gives records, Kafka may take a moment to
find them (it loads share-partitions, and releases what a closed connection held, in the background).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from tests.broker.wire import Wire

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.protocol.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.share_acknowledge import AcknowledgementBatch as AckBatch
from kadence.protocol.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kadence.protocol.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.records import encode_batch, iter_batches
from kadence_broker import Broker

__all__ = ["CONFIG", "Difference", "Queues"]

CONFIG: Final = {
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
}
"""Settings of both brokers."""

PARTITIONS: Final = 2
_STEPS: Final = 40
_GROUP: Final = 32
_MEMBERS: Final = 3
_KEEPER: Final = _MEMBERS
"""A further connection, of a member that reads nothing."""
_READY_S: Final = 60.0
_SOON_MS: Final = 2_000
"""Kafka may take so long for records that our broker has given already."""
_SETTLED_S: Final = 0.15
"""After this, what Kafka does in the background is done."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a sequence."""

    seed: int
    lines: tuple[str, ...]
    ours: Any
    kafkas: Any
    excused: str | None = None

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}",
                *(f"  {each}" for each in self.lines),
                f"  ours    {self.ours}",
                f"  Kafka's {self.kafkas}",
            ]
        )


@dataclass(slots=True)
class Side:
    """One broker in one sequence."""

    address: str
    control: Wire
    topic: str
    topic_id: bytes
    group: str
    wires: dict[int, Wire] = field(default_factory=dict)

    def wire(self, slot: int) -> Wire:
        if slot not in self.wires:
            self.wires[slot] = Wire(self.address)
        return self.wires[slot]

    def load(self) -> None:
        """Have the leader load the share-partitions, and keep them as long as the sequence lasts."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id="keeper",
            share_session_epoch=0,
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1,
            max_records=1,
            batch_size=1,
            topics=[FetchTopic(self.topic_id, [FetchPartition(each, []) for each in range(PARTITIONS)])],
        )
        told = self.wire(_KEEPER).call(request, 2)
        assert told.error_code == codes.NONE, codes.name(told.error_code)

    def hang_up(self, slot: int) -> None:
        wire = self.wires.pop(slot, None)
        if wire is not None:
            wire.sock.close()

    def close(self) -> None:
        for slot in list(self.wires):
            self.hang_up(slot)


@dataclass(slots=True)
class Story:
    """What the members of a sequence were told; the same on both sides."""

    dice: random.Random
    epochs: list[int] = field(default_factory=lambda: [0] * _MEMBERS)
    held: list[set[tuple[int, int]]] = field(default_factory=lambda: [set() for _ in range(_MEMBERS)])
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    reads: list[set[int]] = field(default_factory=lambda: [set() for _ in range(_MEMBERS)])


Ask = Callable[[Side, bool], Any]
"""Has a side do a step, and returns its answer without what differs from run to run; the flag: Kafka may be slow."""


class Queues:
    """Our broker and real Kafka, with a topic and a group for each of ``count`` sequences."""

    def __init__(self, ours: Broker | str, kafka: str, count: int) -> None:
        servers = ours if isinstance(ours, str) else ours.bootstrap_servers
        self._addresses = (servers, kafka)
        prefix = f"share-{uuid4().hex[:8]}"
        self._names = [f"{prefix}-{number}" for number in range(count)]
        self._controls = [Wire(address) for address in self._addresses]
        self._ids = [self._prepare(control) for control in self._controls]

    def close(self) -> None:
        for control in self._controls:
            control.sock.close()

    def _prepare(self, control: Wire) -> dict[str, bytes]:
        kept = [CreatableTopicConfig("retention.ms", "-1")]
        made = control.call(
            CreateTopicsRequest(
                [CreatableTopic(name, PARTITIONS, 1, configs=kept) for name in self._names], 30_000
            )
        )
        ids = {each.name: bytes(each.topic_id) for each in made.topics}
        edit = AlterableConfig("share.auto.offset.reset", 0, "earliest")
        control.call(
            IncrementalAlterConfigsRequest(
                [AlterConfigsResource(_GROUP, name, [edit]) for name in self._names]
            )
        )
        deadline = time.monotonic() + _READY_S
        control.call(FindCoordinatorRequest(coordinator_keys=[self._names[0]]))
        waiting = dict.fromkeys(self._names, 0)
        while waiting:
            assert time.monotonic() < deadline, f"the groups do not get ready: {list(waiting)[:3]}"
            for name, epoch in list(waiting.items()):
                beat = ShareGroupHeartbeatRequest(
                    group_id=name,
                    member_id="warm",
                    member_epoch=epoch,
                    subscribed_topic_names=[name],
                )
                told = control.call(beat)
                if told.error_code == codes.NONE:
                    waiting[name] = told.member_epoch
                    if told.assignment is not None and told.assignment.topic_partitions:
                        control.call(ShareGroupHeartbeatRequest(name, "warm", -1))
                        del waiting[name]
            time.sleep(0.05)
        return ids

    def run(self, seed: int) -> Difference | None:
        """One sequence; its first difference."""
        dice = random.Random(f"share {seed}")
        name = self._names.pop()
        sides = [
            Side(address, control, name, ids[name], name)
            for address, control, ids in zip(self._addresses, self._controls, self._ids, strict=True)
        ]
        story = Story(dice)
        lines: list[str] = []
        for side in sides:
            side.load()
        try:
            for number in range(_STEPS):
                kind = dice.choices(list(_KINDS), list(_KINDS.values()))[0]
                step = kind(story)
                if step is None:
                    continue
                text, ask, learn = step
                ours = ask(sides[0], False)
                kafkas = ask(sides[1], _gives(ours))
                lines.append(f"#{number} {text} -> {ours}")
                if ours != kafkas:
                    return Difference(seed, tuple(lines), ours, kafkas)
                learn(ours)
        finally:
            for side in sides:
                side.close()
        return None


def _gives(answer: Any) -> bool:
    return isinstance(answer, dict) and any(each.get("acquired") for each in answer.get("data", {}).values())


# ------------------------------------------------------------ steps

Step = tuple[str, Ask, Callable[[Any], None]]


def _nothing(_answer: Any) -> None:
    return


def _produce(story: Story) -> Step:
    dice = story.dice
    partition = dice.choice([0, 0, 0, 1])
    sizes = [dice.randint(1, 12) for _ in range(dice.randint(1, 3))]

    def ask(side: Side, _slow: bool) -> Any:
        for size in sizes:
            batch = encode_batch([(1_000, None, b"v", ()) for _ in range(size)])
            _send(side, partition, batch)
        return None

    story.ends[partition] += sum(sizes)
    return f"Produce({partition}, {sizes})", ask, _nothing


def _send(side: Side, partition: int, batch: bytes, transactional_id: str | None = None) -> None:
    data = TopicProduceData(
        name=side.topic,
        topic_id=side.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])
    told = side.control.call(request, 13).responses[0].partition_responses[0]
    assert told.error_code == codes.NONE, codes.name(told.error_code)


def _acks(story: Story, slot: int) -> dict[int, list[tuple[int, int, list[int]]]]:
    """What a member says: mostly of what it has, sometimes of anything."""
    dice = story.dice
    said: dict[int, list[tuple[int, int, list[int]]]] = {}
    kinds = dice.choice([[1], [1], [2], [1, 2], [1, 2, 3], [0, 1, 2, 3]])
    if dice.random() < 0.1:
        partition = dice.randrange(PARTITIONS)
        first = max(dice.randint(-1, story.ends[partition] + 3), 0)
        last = first + dice.randint(-1, 6)
        types = [
            dice.choice([0, 1, 2, 3, 4, 5]) for _ in range(dice.choice([0, 1, 1, max(last - first + 1, 1)]))
        ]
        return {partition: [(first, last, types)]}
    for partition in range(PARTITIONS):
        own = sorted(offset for where, offset in story.held[slot] if where == partition)
        if not own or (partition and dice.random() < 0.3):
            continue
        begin = dice.randrange(len(own)) if dice.random() < 0.4 else 0
        end = dice.randint(begin + 1, len(own)) if dice.random() < 0.5 else len(own)
        for run in _runs(own[begin:end]):
            if dice.random() < 0.5:
                types = [dice.choice(kinds)]
            else:
                types = [dice.choice(kinds) for _ in range(run[0], run[1] + 1)]
            said.setdefault(partition, []).append((*run, types))
    return said


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    first = last = offsets[0]
    for each in offsets[1:]:
        if each != last + 1:
            yield first, last
            first = each
        last = each
    yield first, last


def _settle(
    story: Story, slot: int, said: dict[int, list[tuple[int, int, list[int]]]], codes_: dict[int, str]
) -> None:
    for partition, batches in said.items():
        if codes_.get(partition) != "NONE":
            continue
        for first, last, types in batches:
            for offset in range(first, last + 1):
                kind = types[offset - first if len(types) > 1 else 0]
                if kind != 4:
                    story.held[slot].discard((partition, offset))


def _fetch(story: Story) -> Step:
    dice = story.dice
    slot = dice.randrange(_MEMBERS)
    epoch = story.epochs[slot]
    if dice.random() < 0.04:
        epoch = dice.choice([-1, 0, epoch + 1, max(epoch - 1, 0), 7])
    acks = _acks(story, slot) if epoch != 0 and dice.random() < 0.45 else {}
    if epoch == 0 and dice.random() < 0.05:
        acks = _acks(story, slot)
    named = [0] if epoch == 0 else []
    if dice.random() < 0.2:
        named = dice.choice([[1], [0, 1], [0]])
    forgotten = [dice.randrange(PARTITIONS)] if epoch > 0 and dice.random() < 0.05 else []
    mode = int(dice.random() < 0.4)
    most = dice.choice([1, 2, 3, 5, 8, 20, 500, 500])
    size = dice.choice([1, 3, 8, 500])
    renews = bool(acks) and dice.random() < 0.1
    limits = (0, 0) if renews or dice.random() < 0.03 else (most, 1 << 20)
    if renews:
        acks = {
            partition: [
                (first, last, [4 if dice.random() < 0.5 else each for each in types])
                for first, last, types in batches
            ]
            for partition, batches in acks.items()
        }
    reads = {*(story.reads[slot] if epoch else ()), *named, *acks}
    if len(reads) > 1:
        # Which partition comes first is chance in Kafka: it goes by what it has looked up before.
        limits = (500 if limits[0] else 0, limits[1])

    def ask(side: Side, slow: bool) -> Any:
        topics = {each: FetchPartition(each, []) for each in named}
        for partition, batches in acks.items():
            topics[partition] = FetchPartition(partition, [AcknowledgementBatch(*each) for each in batches])
        request = ShareFetchRequest(
            group_id=side.group,
            member_id=f"member-{slot}",
            share_session_epoch=epoch,
            max_wait_ms=0 if renews else _SOON_MS if slow else 0,
            min_bytes=0 if renews else 1,
            max_bytes=limits[1],
            max_records=limits[0],
            batch_size=size,
            share_acquire_mode=mode,
            is_renew_ack=renews,
            topics=[FetchTopic(side.topic_id, list(topics.values()))] if topics else [],
            forgotten_topics_data=[ForgottenTopic(side.topic_id, forgotten)] if forgotten else [],
        )
        return _plain_fetch(side.wire(slot).call(request, 2), acks)

    def learn(answer: Any) -> None:
        if answer["error"] != "NONE":
            if answer["error"] == "SHARE_SESSION_NOT_FOUND":
                story.epochs[slot] = 0
            return
        story.epochs[slot] = 0 if epoch == -1 else epoch + 1
        story.reads[slot] = reads - set(forgotten)
        _settle(story, slot, acks, {each: data["acknowledge"] for each, data in answer["data"].items()})
        if epoch == -1:
            story.held[slot].clear()
        for partition, data in answer["data"].items():
            for first, last, _ in data["acquired"]:
                for other in story.held:
                    other.difference_update((partition, offset) for offset in range(first, last + 1))
                story.held[slot].update((partition, offset) for offset in range(first, last + 1))

    text = f"Fetch({slot}, epoch={epoch}, named={named}, forgotten={forgotten}, most={limits[0]}, size={size}, mode={mode}, renews={renews}, acks={acks})"
    return text, ask, learn


def _plain_fetch(answer: Any, acks: Collection[int]) -> dict[str, Any]:
    """What an answer says. Which other partitions it names without saying anything depends on when Kafka loads them."""
    data: dict[int, Any] = {}
    for topic in answer.responses:
        for each in topic.partitions:
            if not (each.error_code or each.acquired_records or each.partition_index in acks):
                continue
            data[each.partition_index] = {
                "error": codes.name(each.error_code),
                "acknowledge": codes.name(each.acknowledge_error_code),
                "acquired": [
                    (one.first_offset, one.last_offset, one.delivery_count) for one in each.acquired_records
                ],
                "batches": [
                    (header.base_offset, header.last_offset) for header, _ in iter_batches(each.records)
                ]
                if len(each.records)
                else [],
                "leader": (each.current_leader.leader_id, each.current_leader.leader_epoch),
            }
    return {
        "error": codes.name(answer.error_code),
        "lock": answer.acquisition_lock_timeout_ms,
        "data": dict(sorted(data.items())),
    }


def _acknowledge(story: Story) -> Step:
    dice = story.dice
    slot = dice.randrange(_MEMBERS)
    epoch = story.epochs[slot]
    if dice.random() < 0.05:
        epoch = dice.choice([-1, -1, 0, epoch + 1, 7])
    acks = _acks(story, slot)
    renews = dice.random() < 0.15
    if renews:
        acks = {
            partition: [
                (first, last, [4 if dice.random() < 0.5 else each for each in types])
                for first, last, types in batches
            ]
            for partition, batches in acks.items()
        }

    def ask(side: Side, _slow: bool) -> Any:
        partitions = [
            AcknowledgePartition(partition, [AckBatch(*each) for each in batches])
            for partition, batches in acks.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=side.group,
            member_id=f"member-{slot}",
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[AcknowledgeTopic(side.topic_id, partitions)] if partitions else [],
        )
        answer = side.wire(slot).call(request, 2)
        if epoch == -1:
            time.sleep(_SETTLED_S)
        return {
            "error": codes.name(answer.error_code),
            "lock": answer.acquisition_lock_timeout_ms,
            "codes": {
                each.partition_index: codes.name(each.error_code)
                for topic in answer.responses
                for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
            },
        }

    def learn(answer: Any) -> None:
        if answer["error"] != "NONE":
            return
        story.epochs[slot] = 0 if epoch == -1 else epoch + 1
        _settle(story, slot, acks, answer["codes"])
        if epoch == -1:
            story.held[slot].clear()

    return f"Acknowledge({slot}, epoch={epoch}, renews={renews}, acks={acks})", ask, learn


def _hang_up(story: Story) -> Step | None:
    slot = story.dice.randrange(_MEMBERS)
    if story.epochs[slot] == 0:
        return None

    def ask(side: Side, _slow: bool) -> Any:
        side.hang_up(slot)
        time.sleep(_SETTLED_S)
        return None

    def learn(_answer: Any) -> None:
        story.epochs[slot] = 0
        story.held[slot].clear()

    return f"HangUp({slot})", ask, learn


def _delete_records(story: Story) -> Step | None:
    partition = story.dice.randrange(PARTITIONS)
    if not story.ends[partition]:
        return None
    offset = story.dice.randint(0, story.ends[partition])

    def ask(side: Side, _slow: bool) -> Any:
        topic = DeleteRecordsTopic(side.topic, [DeleteRecordsPartition(partition, offset)])
        told = side.control.call(DeleteRecordsRequest([topic], 10_000))
        return codes.name(told.topics[0].partitions[0].error_code)

    return f"DeleteRecords({partition}, {offset})", ask, _nothing


def _describe(story: Story) -> Step:
    def ask(side: Side, _slow: bool) -> Any:
        topic = DescribeShareGroupOffsetsRequestTopic(side.topic, list(range(PARTITIONS)))
        told = side.control.call(
            DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(side.group, [topic])])
        )
        (group,) = told.groups
        return {
            each.partition_index: (each.start_offset, each.lag, codes.name(each.error_code))
            for topic in group.topics
            for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
        }

    return "Describe()", ask, _nothing


_SETTINGS: Final = {
    "share.delivery.count.limit": ["2", "3", "5", "8"],
    "share.partition.max.record.locks": ["100", "2000"],
    "share.renew.acknowledge.enable": ["true", "false"],
}


def _configure(story: Story) -> Step:
    name = story.dice.choice(list(_SETTINGS))
    value = story.dice.choice(_SETTINGS[name])

    def ask(side: Side, _slow: bool) -> Any:
        edit = AlterableConfig(name, 0, value)
        side.control.call(IncrementalAlterConfigsRequest([AlterConfigsResource(_GROUP, side.group, [edit])]))
        time.sleep(_SETTLED_S)
        return None

    return f"Configure({name}={value})", ask, _nothing


_KINDS: Final[dict[Callable[[Story], Step | None], float]] = {
    _produce: 4,
    _fetch: 12,
    _acknowledge: 7,
    _hang_up: 1,
    _delete_records: 0.4,
    _describe: 1.5,
    _configure: 0.4,
}
