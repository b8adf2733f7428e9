"""One random step of a sequence of share groups: which request, by which member, about what it was given (`queues`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.broker.wire import Wire

from kadence.clock import wall_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
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
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from kadence.records import encode_batch, iter_batches

__all__ = ["KINDS", "Side", "Step", "Story"]

_MEMBERS: Final = 3
_KEEPER: Final = _MEMBERS
"""A further connection, of a member that reads nothing."""
_GROUP: Final = 32
_SOON_MS: Final = 2_000
"""Kafka may take so long for records that our broker has given already."""
_LARGE: Final = 1 << 20
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Said = dict[int, list[tuple[int, int, list[int]]]]
"""Acknowledgements: by partition, first and last offset and types."""


@dataclass(slots=True)
class Side:
    """One broker in one sequence.

    Attributes:
        pause_s: after this, what the broker does in the background is done.
    """

    address: str
    control: Wire
    name: str
    topic_id: bytes
    pause_s: float
    wires: dict[int, Wire] = field(default_factory=dict)

    def wire(self, slot: int) -> Wire:
        if slot not in self.wires:
            self.wires[slot] = Wire(self.address)
        return self.wires[slot]

    def load(self, partitions: int) -> None:
        """Have the leader load the share-partitions, and keep them as long as the sequence lasts."""
        topic = FetchTopic(self.topic_id, [FetchPartition(each, []) for each in range(partitions)])
        wait_ms = int(1000 * self.pause_s)
        request = ShareFetchRequest(
            self.name, "keeper", 0, wait_ms, 1, max_bytes=1, max_records=1, batch_size=1, topics=[topic]
        )
        self.wire(_KEEPER).send(request, 2)

    def loaded(self) -> None:
        """Wait for the end of `load`."""
        told = self.wire(_KEEPER).receive()
        assert told.error_code == codes.NONE, codes.name(told.error_code)

    def produce(self, partition: int, batch: bytes, transactional_id: str | None = None) -> None:
        data = TopicProduceData(
            name=self.name,
            topic_id=self.topic_id,
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(transactional_id, -1, 10_000, [data])
        told = self.control.call(request, 13).responses[0].partition_responses[0]
        assert told.error_code == codes.NONE, codes.name(told.error_code)

    def await_end(self, partition: int, offset: int) -> None:
        """Wait until the marker of a transaction is there."""
        topic = ListOffsetsTopic(self.name, [ListOffsetsPartition(partition, timestamp=-1)])
        for _ in range(500):
            told = self.control.call(ListOffsetsRequest(-1, 0, [topic]), 7)
            if told.topics[0].partitions[0].offset == offset:
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.name}-{partition} does not end at {offset}")

    def configure(self, name: str, value: str) -> None:
        edit = AlterableConfig(name, 0, value)
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(_GROUP, self.name, [edit])])
        told = self.control.call(request).responses[0]
        assert told.error_code == codes.NONE, told.error_message
        time.sleep(4 * self.pause_s)

    def hang_up(self, slot: int) -> None:
        wire = self.wires.pop(slot, None)
        if wire is not None:
            wire.sock.close()

    def close(self) -> None:
        for slot in list(self.wires):
            self.hang_up(slot)


class Story:
    """What the members of a sequence were told; the same on both sides.

    Attributes:
        epochs: of each member's next request. held: what it was given and has not answered, as (partition, offset).
        reads: the partitions of its session. ends: of the partitions' logs.
    """

    def __init__(self, dice: random.Random, partitions: int) -> None:
        self.dice = dice
        self.epochs = [0] * _MEMBERS
        self.held: list[set[tuple[int, int]]] = [set() for _ in range(_MEMBERS)]
        self.reads: list[set[int]] = [set() for _ in range(_MEMBERS)]
        self.ends = [0] * partitions
        self.transactions = 0

    def member(self) -> int:
        return self.dice.randrange(_MEMBERS)

    def partition(self) -> int:
        return self.dice.randrange(len(self.ends))

    def some_said(self, slot: int) -> Said:
        """What a member says: mostly of what it has, sometimes of anything."""
        if self.dice.random() < 0.1:
            return {self.partition(): [self._anything()]}
        kinds = self.dice.choice([[1], [1], [2], [1, 2], [1, 2, 3], [0, 1, 2, 3]])
        said: Said = {}
        for partition in range(len(self.ends)):
            own = sorted(offset for where, offset in self.held[slot] if where == partition)
            if not own or (partition and self.dice.random() < 0.3):
                continue
            begin = self.dice.randrange(len(own)) if self.dice.random() < 0.4 else 0
            end = self.dice.randint(begin + 1, len(own)) if self.dice.random() < 0.5 else len(own)
            for first, last in _runs(own[begin:end]):
                count = 1 if self.dice.random() < 0.5 else last - first + 1
                types = [self.dice.choice(kinds) for _ in range(count)]
                said.setdefault(partition, []).append((first, last, types))
        return said

    def _anything(self) -> tuple[int, int, list[int]]:
        first = max(self.dice.randint(-1, max(self.ends) + 3), 0)
        last = first + self.dice.randint(-1, 6)
        count = self.dice.choice([0, 1, 1, max(last - first + 1, 1)])
        return first, last, [self.dice.randint(GAP, RENEW + 1) for _ in range(count)]

    def renewed(self, said: Said) -> Said:
        """``said`` with some renewals in the place of other types."""
        return {
            partition: [
                (first, last, [RENEW if self.dice.random() < 0.5 else each for each in types])
                for first, last, types in batches
            ]
            for partition, batches in said.items()
        }

    def settle(self, slot: int, said: Said, results: dict[int, str]) -> None:
        """A member's acknowledgements were answered."""
        for partition, batches in said.items():
            for first, last, types in batches if results.get(partition) == "NONE" else ():
                for offset in range(first, last + 1):
                    if types[offset - first if len(types) > 1 else 0] != RENEW:
                        self.held[slot].discard((partition, offset))

    def give(self, slot: int, partition: int, first: int, last: int) -> None:
        offsets = {(partition, offset) for offset in range(first, last + 1)}
        for other in self.held:
            other.difference_update(offsets)
        self.held[slot] |= offsets


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    first = last = offsets[0]
    for each in offsets[1:]:
        if each != last + 1:
            yield first, last
            first = each
        last = each
    yield first, last


def _nothing(_answer: Any) -> None:
    return


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a member or a tool does.

    Attributes:
        ask: does it to a side, and returns the answer without what differs from run to run; the flag: the other side
            gave records.
        learn: takes in the answer, which both sides gave.
        races: Kafka's answer depends on which of its threads is faster.
    """

    text: str
    ask: Callable[[Side, bool], Any]
    learn: Callable[[Any], None] = _nothing
    races: bool = False


# ------------------------------------------------------------ records


def _records(count: int) -> list[tuple[int, None, bytes, tuple[()]]]:
    """Of today: before a marker, which has the time of day, old ones would have Kafka begin another segment."""
    return [(wall_ms(), None, b"v", ())] * count


def _produce(story: Story) -> Step:
    partition = story.dice.choice([0, 0, 0, 1])
    sizes = [story.dice.randint(1, 12) for _ in range(story.dice.randint(1, 3))]
    story.ends[partition] += sum(sizes)

    def ask(side: Side, _gave: bool) -> None:
        for size in sizes:
            side.produce(partition, encode_batch(_records(size)))

    return Step(f"Produce({partition}, {sizes})", ask)


def _produce_transaction(story: Story) -> Step:
    partition, size = story.partition(), story.dice.randint(1, 6)
    committed = story.dice.random() < 0.5
    story.transactions += 1
    number = story.transactions
    story.ends[partition] += size + 1
    end = story.ends[partition]

    def ask(side: Side, _gave: bool) -> str:
        name = f"{side.name}-{number}"
        given = side.control.call(InitProducerIdRequest(name, 60_000))
        who = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        topic = AddPartitionsToTxnTopic(side.name, [partition])
        side.control.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=given.producer_id,
                v3_and_below_producer_epoch=given.producer_epoch,
                v3_and_below_topics=[topic],
            ),
            3,
        )
        batch = encode_batch(_records(size), transactional=True, base_sequence=0, **who)
        side.produce(partition, batch, name)
        ended = side.control.call(EndTxnRequest(name, **who, committed=committed), 3)
        side.await_end(partition, end)
        return codes.name(ended.error_code)

    return Step(f"Transaction({partition}, {size}, committed={committed})", ask)


def _delete_records(story: Story) -> Step | None:
    partition = story.partition()
    if not story.ends[partition]:
        return None
    offset = story.dice.randint(0, story.ends[partition])

    def ask(side: Side, _gave: bool) -> str:
        topic = DeleteRecordsTopic(side.name, [DeleteRecordsPartition(partition, offset)])
        told = side.control.call(DeleteRecordsRequest([topic], 10_000))
        return codes.name(told.topics[0].partitions[0].error_code)

    return Step(f"DeleteRecords({partition}, {offset})", ask)


# ------------------------------------------------------------ members


def _fetch(story: Story) -> Step:
    dice, slot = story.dice, story.member()
    epoch = story.epochs[slot]
    if dice.random() < 0.04:
        epoch = dice.choice([-1, 0, epoch + 1, max(epoch - 1, 0), 7])
    said = story.some_said(slot) if dice.random() < (0.45 if epoch else 0.05) else {}
    named = [0] if epoch == 0 else []
    if dice.random() < 0.2:
        named = dice.choice([[1], [0, 1], [0]])
    forgotten = [story.partition()] if epoch > 0 and dice.random() < 0.05 else []
    renews = bool(said) and dice.random() < 0.1
    most = dice.choice([1, 2, 3, 5, 8, 20, 500, 500])
    reads = {*(story.reads[slot] if epoch else ()), *named, *said}
    if len(reads) > 1:
        most = 500  # which partition comes first is chance in Kafka: it goes by what it has looked up before
    if renews:
        said = story.renewed(said)
    if renews or dice.random() < 0.03:
        most = 0
    wanted: dict[str, Any] = {
        "max_bytes": 0 if renews else _LARGE,
        "min_bytes": 0 if renews else 1,
        "max_records": most,
        "batch_size": dice.choice([1, 3, 8, 500]),
        "share_acquire_mode": int(dice.random() < 0.4),
        "is_renew_ack": renews,
    }

    def ask(side: Side, gave: bool) -> Any:
        topics = {each: FetchPartition(each, []) for each in named}
        for partition, batches in said.items():
            topics[partition] = FetchPartition(partition, [AcknowledgementBatch(*each) for each in batches])
        request = ShareFetchRequest(
            group_id=side.name,
            member_id=f"member-{slot}",
            share_session_epoch=epoch,
            max_wait_ms=_SOON_MS if gave and not renews else 0,
            topics=[FetchTopic(side.topic_id, list(topics.values()))] if topics else [],
            forgotten_topics_data=[ForgottenTopic(side.topic_id, forgotten)] if forgotten else [],
            **wanted,
        )
        answer = _plain_fetch(side.wire(slot).call(request, 2), said)
        if epoch == -1:
            time.sleep(side.pause_s)
        return answer

    def learn(answer: Any) -> None:
        if answer["error"] != "NONE":
            return
        story.epochs[slot] = 0 if epoch == -1 else epoch + 1
        story.reads[slot] = reads - set(forgotten)
        story.settle(slot, said, {each: data["acknowledge"] for each, data in answer["data"].items()})
        if epoch == -1:
            story.held[slot].clear()
        for partition, data in answer["data"].items():
            for first, last, _ in data["acquired"]:
                story.give(slot, partition, first, last)

    text = f"Fetch({slot}, {epoch=}, {named=}, {forgotten=}, {wanted}, {said=})"
    return Step(text, ask, learn, races=_releases(said))


def _releases(said: Said) -> bool:
    """In Kafka a fetch may give back what came with it as released, if that was stored soon enough."""
    return any(RELEASE in types for batches in said.values() for _, _, types in batches)


def _plain_fetch(answer: Any, said: Collection[int]) -> dict[str, Any]:
    """What an answer says. Which other partitions it names without saying anything depends on when Kafka loads them."""
    data = {
        each.partition_index: {
            "error": codes.name(each.error_code),
            "acknowledge": codes.name(each.acknowledge_error_code),
            "acquired": [
                (one.first_offset, one.last_offset, one.delivery_count) for one in each.acquired_records
            ],
            "batches": [(header.base_offset, header.last_offset) for header, _ in iter_batches(each.records)]
            if len(each.records)
            else [],
            "leader": (each.current_leader.leader_id, each.current_leader.leader_epoch),
        }
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code or each.acquired_records or each.partition_index in said
    }
    return {
        "error": codes.name(answer.error_code),
        "lock": answer.acquisition_lock_timeout_ms,
        "data": dict(sorted(data.items())),
    }


def _acknowledge(story: Story) -> Step:
    dice, slot = story.dice, story.member()
    epoch = story.epochs[slot]
    if dice.random() < 0.05:
        epoch = dice.choice([-1, -1, 0, epoch + 1, 7])
    said = story.some_said(slot)
    renews = dice.random() < 0.15
    if renews:
        said = story.renewed(said)

    def ask(side: Side, _gave: bool) -> Any:
        partitions = [
            AcknowledgePartition(partition, [AckBatch(*each) for each in batches])
            for partition, batches in said.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=side.name,
            member_id=f"member-{slot}",
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[AcknowledgeTopic(side.topic_id, partitions)] if partitions else [],
        )
        answer = side.wire(slot).call(request, 2)
        if epoch == -1:
            time.sleep(side.pause_s)
        found = {
            each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions
        }
        return {
            "error": codes.name(answer.error_code),
            "lock": answer.acquisition_lock_timeout_ms,
            "codes": {each: codes.name(found[each]) for each in sorted(found)},
        }

    def learn(answer: Any) -> None:
        if answer["error"] == "NONE":
            story.epochs[slot] = 0 if epoch == -1 else epoch + 1
            story.settle(slot, said, answer["codes"])
            if epoch == -1:
                story.held[slot].clear()

    return Step(f"Acknowledge({slot}, {epoch=}, {renews=}, {said=})", ask, learn)


def _hang_up(story: Story) -> Step | None:
    slot = story.member()
    if story.epochs[slot] == 0:
        return None

    def ask(side: Side, _gave: bool) -> None:
        side.hang_up(slot)
        time.sleep(side.pause_s)

    def learn(_answer: Any) -> None:
        story.epochs[slot] = 0
        story.held[slot].clear()

    return Step(f"HangUp({slot})", ask, learn)


# ------------------------------------------------------------ tools


def _describe(story: Story) -> Step:
    def ask(side: Side, _gave: bool) -> Any:
        topic = DescribeShareGroupOffsetsRequestTopic(side.name, list(range(len(story.ends))))
        asked = DescribeShareGroupOffsetsRequestGroup(side.name, [topic])
        (group,) = side.control.call(DescribeShareGroupOffsetsRequest([asked])).groups
        told = {
            each.partition_index: (each.start_offset, each.lag, codes.name(each.error_code))
            for topic in group.topics
            for each in topic.partitions
        }
        return dict(sorted(told.items()))

    return Step("Describe()", ask)


_SETTINGS: Final = {
    "share.delivery.count.limit": ["2", "3", "5", "8"],
    "share.partition.max.record.locks": ["100", "2000"],
    "share.renew.acknowledge.enable": ["true", "false"],
    "share.isolation.level": ["read_committed", "read_uncommitted"],
}


def _configure(story: Story) -> Step:
    name = story.dice.choice(list(_SETTINGS))
    value = story.dice.choice(_SETTINGS[name])
    return Step(f"Configure({name}={value})", lambda side, _gave: side.configure(name, value))


KINDS: Final[dict[Callable[[Story], Step | None], float]] = {
    _produce: 4,
    _produce_transaction: 0.6,
    _fetch: 12,
    _acknowledge: 7,
    _hang_up: 1,
    _delete_records: 0.4,
    _describe: 1.5,
    _configure: 0.5,
}
