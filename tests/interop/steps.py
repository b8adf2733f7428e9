"""One random step of a sequence: which request, to which member, with what of what it was told (`sequences`)."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.protocol.real_requests import IS_4_3, versions

from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kadence.protocol.leave_group import LeaveGroupRequest, MemberIdentity
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
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kadence.records import encode_batch

__all__ = ["MODES", "Plan", "Slot"]

_SECOND: Final = 1_000
_LONG: Final = 600 * _SECOND
"""No session and no rebalance of these sequences ends by time."""


@dataclass(slots=True)
class Slot:
    """A client of one side, and what the broker told it."""

    number: int
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)
    protocol: str | None = None
    modern_id: str = ""
    epoch: int = 0
    owned: list[TopicPartitions] = field(default_factory=list)
    producer: tuple[int, int] = (-1, -1)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: ``make`` a request of what a side knows, and ``learn`` from its answer."""

    text: str
    make: Callable[[Any], tuple[Any, int]]
    learn: Callable[[Any, Any], None] | None = None
    is_transactional: bool = False
    parks: int | None = None
    """The slot whose request may be parked."""


def _pick(rng: random.Random, weights: dict[Any, float]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def _instance(slot: int, version: int, since: int) -> str | None:
    """Slots 2 and 3 are static members, where the version has a field for it."""
    return f"instance-{slot}" if slot >= 2 and version >= since else None


def _text(name: str, **values: Any) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in values.items())})"


# ------------------------------------------------------------ the classic protocol


def _subscription(topics: list[str]) -> bytes:
    names = [each.encode() for each in topics]
    packed = b"".join(struct.pack(f">h{len(each)}s", len(each), each) for each in names)
    return struct.pack(">hi", 0, len(names)) + packed + struct.pack(">i", -1)


def _assignment(topic: str, partitions: list[int]) -> bytes:
    name = topic.encode()
    head = struct.pack(f">hih{len(name)}s", 0, 1, len(name), name)
    return head + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions) + struct.pack(">i", -1)


_PROTOCOLS: Final = {("range",): 8.0, ("range", "sticky"): 2.0, ("sticky", "range"): 1.0, ("sticky",): 0.3}


def _join(rng: random.Random) -> Plan:
    slot, version = rng.randrange(4), rng.randrange(10)
    who = _pick(rng, {"own": 20, "none": 2, "another": 0.7, "unknown": 0.5})
    names = _pick(rng, _PROTOCOLS)
    kind = _pick(rng, {"consumer": 40, "connect": 1})
    topics = _pick(rng, {(0,): 6, (0, 1): 2, (1,): 1})

    def make(side: Any) -> tuple[Any, int]:
        own = side.slots[slot].member_id
        other = side.slots[(slot + 1) % 4].member_id
        metadata = _subscription([side.topics[each] for each in topics])
        return JoinGroupRequest(
            side.group,
            _LONG // 2,
            _LONG,
            {"own": own, "none": "", "another": other, "unknown": "nobody"}[who],
            _instance(slot, version, 5),
            kind,
            [JoinGroupRequestProtocol(each, metadata) for each in names],
        ), version

    def learn(side: Any, answer: Any) -> None:
        mine = side.slots[slot]
        if answer.error_code in (codes.NONE, codes.MEMBER_ID_REQUIRED):
            mine.member_id = answer.member_id
        elif answer.error_code in (codes.UNKNOWN_MEMBER_ID, codes.FENCED_INSTANCE_ID):
            mine.member_id = ""
        if answer.error_code == codes.NONE:
            mine.generation, mine.protocol = answer.generation_id, answer.protocol_name
            mine.members = sorted(
                (each.member_id for each in answer.members),
                key=lambda each: (side.names.get(each, "?"), each == answer.member_id),
            )

    return Plan(
        _text("Join", slot=slot, v=version, who=who, protocols=names, kind=kind, topics=topics),
        make,
        learn,
        parks=slot,
    )


def _generation(rng: random.Random) -> int | None:
    """What is added to the member's own; None says -1."""
    chosen: int | None = _pick(rng, {0: 30, 1: 1, -1: 1, None: 1})
    return chosen


def _sync(rng: random.Random) -> Plan:
    slot, version, change = rng.randrange(4), rng.randrange(6), _generation(rng)
    words = _pick(rng, {"right": 20, "none": 1, "wrong": 1})

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        request = SyncGroupRequest(
            side.group,
            -1 if change is None else mine.generation + change,
            mine.member_id,
            _instance(slot, version, 3),
            assignments=[
                SyncGroupRequestAssignment(each, _assignment(side.topics[0], [index]))
                for index, each in enumerate(mine.members)
            ],
        )
        if version >= 5:
            request.protocol_type = {"right": "consumer", "none": None, "wrong": "consumer"}[words]
            request.protocol_name = {"right": mine.protocol, "none": None, "wrong": "other"}[words]
        return request, version

    return Plan(_text("Sync", slot=slot, v=version, generation=change, words=words), make, parks=slot)


def _heartbeat(rng: random.Random) -> Plan:
    slot, version, change = rng.randrange(4), rng.randrange(5), _generation(rng)

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        generation = -1 if change is None else mine.generation + change
        return HeartbeatRequest(side.group, generation, mine.member_id, _instance(slot, version, 3)), version

    return Plan(_text("Heartbeat", slot=slot, v=version, generation=change), make)


def _leave(rng: random.Random) -> Plan:
    slot, version = rng.randrange(4), rng.randrange(6)
    by_instance = rng.random() < 0.2

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        if version < 3:
            return LeaveGroupRequest(side.group, member_id=mine.member_id), version
        instance = _instance(slot, version, 3)
        named = "" if by_instance and instance else mine.member_id
        return LeaveGroupRequest(side.group, members=[MemberIdentity(named, instance)]), version

    return Plan(_text("Leave", slot=slot, v=version, by_instance=by_instance), make)


# ------------------------------------------------------------ offsets and tools


def _commit(rng: random.Random) -> Plan:
    slot, version, change = rng.randrange(4), rng.randrange(2, 11), _generation(rng)
    who = _pick(rng, {"classic": 5, "modern": 5, "nobody": 2})
    topic, offset = rng.randrange(2), rng.randrange(100)

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        known = {"classic": (mine.member_id, mine.generation), "modern": (mine.modern_id, mine.epoch)}
        member, generation = known.get(who, ("", -1))
        if who != "nobody" and change is not None:
            generation += change
        elif who != "nobody":
            generation = -1
        asked = OffsetCommitRequestTopic(
            side.topic_ids[topic], side.topics[topic], [OffsetCommitRequestPartition(0, offset)]
        )
        instance = _instance(slot, version, 7) if who == "classic" else None
        return OffsetCommitRequest(side.group, generation, member, instance, topics=[asked]), version

    return Plan(
        _text("Commit", slot=slot, v=version, who=who, generation=change, topic=topic, offset=offset), make
    )


def _fetch(rng: random.Random) -> Plan:
    slot, version, who = rng.randrange(4), rng.randrange(1, 11), _pick(rng, {"nobody": 3, "modern": 1})

    def make(side: Any) -> tuple[Any, int]:
        if version < 8:
            old = [OffsetFetchRequestTopic(each, [0, 1]) for each in side.topics]
            return OffsetFetchRequest(group_id=side.group, topics=old), version
        topics = [
            OffsetFetchRequestTopics(side.topic_ids[each], side.topics[each], [0, 1]) for each in range(2)
        ]
        group = OffsetFetchRequestGroup(side.group, topics=topics)
        if who == "modern" and version >= 9:
            group.member_id, group.member_epoch = side.slots[slot].modern_id, side.slots[slot].epoch
        return OffsetFetchRequest(groups=[group]), version

    return Plan(_text("OffsetFetch", slot=slot, v=version, who=who), make)


def _delete_offsets(rng: random.Random) -> Plan:
    topic = rng.randrange(2)

    def make(side: Any) -> tuple[Any, int]:
        asked = OffsetDeleteRequestTopic(side.topics[topic], [OffsetDeleteRequestPartition(0)])
        return OffsetDeleteRequest(side.group, [asked]), 0

    return Plan(_text("OffsetDelete", topic=topic), make)


def _describe(rng: random.Random) -> Plan:
    version, modern = rng.randrange(7), rng.random() < 0.5
    if modern:
        return Plan("ConsumerGroupDescribe()", lambda side: (ConsumerGroupDescribeRequest([side.group]), 1))
    return Plan(_text("Describe", v=version), lambda side: (DescribeGroupsRequest([side.group]), version))


def _delete(rng: random.Random) -> Plan:
    version = rng.choice(versions(DeleteGroupsRequest))
    return Plan(_text("Delete", v=version), lambda side: (DeleteGroupsRequest([side.group]), version))


# ------------------------------------------------------------ KIP-848


def _beat(rng: random.Random) -> Plan:
    slot, version = rng.randrange(4), rng.randrange(2)
    kind = _pick(
        rng, {"next": 14, "join": 5, "part": 2, "leave": 1.5, "away": 0.7, "early": 0.5, "late": 0.7}
    )
    topics = _pick(rng, {(0,): 6, (0, 1): 3, (1,): 1})
    # In Kafka 4.3 another assignor waits for the next change of the group.
    assignor = _pick(rng, {None: 8, "nonsense": 0.2} | ({} if IS_4_3 else {"range": 1, "uniform": 1}))
    fresh = rng.random() < 0.1
    quiet = rng.random() < 0.5

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        if not mine.modern_id or (fresh and kind == "join"):
            mine.modern_id = f"m{slot + 4 if mine.modern_id else slot}"
        request = ConsumerGroupHeartbeatRequest(side.group, mine.modern_id, mine.epoch)
        request.instance_id = _instance(slot, 1, 0)
        match kind:
            case "leave":
                request.member_epoch = -1
            case "away" if slot >= 2:
                request.member_epoch = -2
            case "early" | "late":
                request.member_epoch += 1 if kind == "early" else -1
            case "part":
                request.topic_partitions = [
                    TopicPartitions(each.topic_id, each.partitions[:1]) for each in mine.owned
                ]
            case "next" if not quiet:
                request.topic_partitions = list(mine.owned)
        if kind == "join" or (kind == "next" and mine.epoch == 0):
            request.member_epoch = 0
            request.rebalance_timeout_ms = _LONG
            request.topic_partitions = []
            request.server_assignor = assignor
            request.subscribed_topic_names = [side.topics[each] for each in topics]
        return request, version

    def learn(side: Any, answer: Any) -> None:
        mine = side.slots[slot]
        if answer.error_code in (codes.UNKNOWN_MEMBER_ID, codes.FENCED_MEMBER_EPOCH):
            mine.epoch, mine.owned = 0, []
        elif answer.error_code == codes.NONE:
            mine.epoch = max(answer.member_epoch, 0)
            if answer.member_epoch < 0:
                mine.owned = []
            elif answer.assignment is not None:
                mine.owned = [
                    TopicPartitions(each.topic_id, sorted(each.partitions))
                    for each in sorted(
                        answer.assignment.topic_partitions,
                        key=lambda each: side.topic_ids.index(bytes(each.topic_id)),
                    )
                ]

    return Plan(
        _text(
            "Beat",
            slot=slot,
            v=version,
            kind=kind,
            topics=topics,
            assignor=assignor,
            fresh=fresh,
            quiet=quiet,
        ),
        make,
        learn,
    )


# ------------------------------------------------------------ transactions


def _identity(rng: random.Random) -> Callable[[Any], tuple[int, int]]:
    slot = rng.randrange(2)
    change = _pick(rng, {0: 30, -1: 1.5, 1: 0.5})
    return lambda side: (side.slots[slot].producer[0], side.slots[slot].producer[1] + change)


def _init(rng: random.Random) -> Plan:
    slot, version = rng.randrange(2), rng.randrange(6)
    claim = _pick(rng, {None: 5, 0: 4, -1: 1, 1: 0.3})

    def make(side: Any) -> tuple[Any, int]:
        request = InitProducerIdRequest(f"{side.group}-{slot}", 60_000)
        mine = side.slots[slot].producer
        if claim is not None and version >= 3 and mine[0] >= 0:
            request.producer_id, request.producer_epoch = mine[0], max(mine[1] + claim, 0)
        return request, version

    def learn(side: Any, answer: Any) -> None:
        if answer.error_code == codes.NONE:
            side.slots[slot].producer = answer.producer_id, answer.producer_epoch

    return Plan(_text("Init", slot=slot, v=version, claim=claim), make, learn, is_transactional=True)


def _add(rng: random.Random) -> Plan:
    slot, version, topic, partition = rng.randrange(2), rng.randrange(4), rng.randrange(2), rng.randrange(2)
    change = _pick(rng, {0: 30, -1: 1.5, 1: 0.5})

    def make(side: Any) -> tuple[Any, int]:
        producer, epoch = side.slots[slot].producer
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=f"{side.group}-{slot}",
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=epoch + change,
            v3_and_below_topics=[AddPartitionsToTxnTopic(side.topics[topic], [partition])],
        ), version

    return Plan(
        _text("AddPartitions", slot=slot, v=version, at=(topic, partition), epoch=change),
        make,
        is_transactional=True,
    )


def _add_offsets(rng: random.Random) -> Plan:
    slot, version, change = rng.randrange(2), rng.randrange(5), _pick(rng, {0: 30, -1: 1.5, 1: 0.5})

    def make(side: Any) -> tuple[Any, int]:
        producer, epoch = side.slots[slot].producer
        return AddOffsetsToTxnRequest(f"{side.group}-{slot}", producer, epoch + change, side.group), version

    return Plan(_text("AddOffsets", slot=slot, v=version, epoch=change), make, is_transactional=True)


def _txn_commit(rng: random.Random) -> Plan:
    slot, change = rng.randrange(2), _pick(rng, {0: 30, -1: 1.5, 1: 0.5})
    version, offset = rng.choice(versions(TxnOffsetCommitRequest)), rng.randrange(100)

    def make(side: Any) -> tuple[Any, int]:
        producer, epoch = side.slots[slot].producer
        partitions = [TxnOffsetCommitRequestPartition(0, offset)]
        topic = TxnOffsetCommitRequestTopic(side.topics[0], side.topic_ids[0], partitions)
        return TxnOffsetCommitRequest(
            f"{side.group}-{slot}", side.group, producer, epoch + change, topics=[topic]
        ), version

    return Plan(_text("TxnOffsetCommit", slot=slot, v=version, epoch=change), make, is_transactional=True)


def _end(rng: random.Random) -> Plan:
    slot, version, committed = rng.randrange(2), rng.randrange(6), rng.random() < 0.6
    change = _pick(rng, {0: 30, -1: 1.5, 1: 0.5})

    def make(side: Any) -> tuple[Any, int]:
        producer, epoch = side.slots[slot].producer
        return EndTxnRequest(f"{side.group}-{slot}", producer, epoch + change, committed), version

    def learn(side: Any, answer: Any) -> None:
        if answer.error_code == codes.NONE and version >= 5:
            side.slots[slot].producer = answer.producer_id, answer.producer_epoch

    return Plan(
        _text("End", slot=slot, v=version, commit=committed, epoch=change), make, learn, is_transactional=True
    )


def _produce(rng: random.Random) -> Plan:
    slot, topic, partition = rng.randrange(2), rng.randrange(2), rng.randrange(2)
    version = rng.choice([3, 7, 9, 11, 12, 12, 12])
    change = _pick(rng, {0: 30, -1: 1.5, 1: 0.5})
    shift = _pick(rng, {0: 20, 1: 1, -1: 1})

    def make(side: Any) -> tuple[Any, int]:
        mine = side.slots[slot]
        producer, epoch = mine.producer
        expected = mine.sequences.get((topic, partition, epoch), 0)
        batch = encode_batch(
            [(1_000, None, b"v", ())],
            producer_id=max(producer, 0),
            producer_epoch=max(epoch + change, 0),
            base_sequence=max(expected + shift, 0),
            transactional=True,
        )
        data = TopicProduceData(
            name=side.topics[topic], partition_data=[PartitionProduceData(partition, batch)]
        )
        return ProduceRequest(f"{side.group}-{slot}", -1, 5_000, [data]), version

    def learn(side: Any, answer: Any) -> None:
        mine = side.slots[slot]
        if answer.responses[0].partition_responses[0].error_code == codes.NONE and not shift and not change:
            key = topic, partition, mine.producer[1]
            mine.sequences[key] = mine.sequences.get(key, 0) + 1

    text = _text("Produce", slot=slot, v=version, at=(topic, partition), epoch=change, sequence=shift)
    return Plan(text, make, learn, is_transactional=True)


# ------------------------------------------------------------ modes

_TOOLS: Final = {_commit: 4, _fetch: 2, _delete_offsets: 0.5, _describe: 2, _delete: 0.3}
_CLASSIC: Final = {_join: 14, _sync: 8, _heartbeat: 4, _leave: 1.5}


def _mode(weights: dict[Callable[[random.Random], Plan], float]) -> Callable[[random.Random], Plan]:
    def step(rng: random.Random) -> Plan:
        plan: Plan = _pick(rng, weights)(rng)
        return plan

    return step


MODES: Final[dict[str, Callable[[random.Random], Plan]]] = {
    "classic": _mode({**_CLASSIC, **_TOOLS}),
    "kip848": _mode({_beat: 24, **_TOOLS}),
    "mixed": _mode({_beat: 14, **_CLASSIC, **_TOOLS}),
    "transactions": _mode(
        {_init: 3, _add: 3, _add_offsets: 1.5, _txn_commit: 2, _end: 4, _produce: 7, _fetch: 1.5}
    ),
}
