"""Random writes to a compacted topic of our broker and of real Kafka: the same records stay, at the same offsets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.broker.wire import Wire, at, fetch
from tests.patience import until

from kadence.clock import wall_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import FetchedRecords, encode_batch
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

KEYS = 10
DAY_MS = "86400000"

Pairs = list[tuple[bytes, bytes | None]]
Kept = list[tuple[int, bytes | None, bytes | None]]


class Side:
    """A compacted topic of one broker, with a segment for nearly each batch."""

    def __init__(self, wire: Wire, topic: str, delete_retention_ms: str) -> None:
        self.wire = wire
        self.topic = topic
        config = {
            "cleanup.policy": "compact",
            "delete.retention.ms": delete_retention_ms,
            "min.cleanable.dirty.ratio": "0",
            "segment.ms": "1",
        }
        configs = [CreatableTopicConfig(name, value) for name, value in config.items()]
        made = self.wire.call(CreateTopicsRequest([CreatableTopic(topic, 1, 1, configs=configs)], 30_000))
        assert made.topics[0].error_code == codes.NONE
        until(lambda: self.end() == 0)
        self.producer = self._init()

    def _init(self) -> tuple[int, int]:
        self.wire.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.topic]))
        answers = []

        def is_there() -> bool:
            answers.append(self.wire.call(InitProducerIdRequest(self.topic, 60_000), 4))
            return bool(answers[-1].error_code == codes.NONE)

        until(is_there)
        return answers[-1].producer_id, answers[-1].producer_epoch

    def end(self, isolation: int = 0) -> int:
        topic = ListOffsetsTopic(self.topic, [ListOffsetsPartition(0, timestamp=-1)])
        told = self.wire.call(ListOffsetsRequest(-1, isolation, [topic]), 7).topics[0].partitions[0]
        return -1 if told.error_code else int(told.offset)

    def put(self, pairs: Pairs, timestamp: int, sequence: int | None = None, codec: str = "none") -> None:
        """Append a batch; with a sequence number it belongs to the transaction."""
        records = [(timestamp, key, value, ()) for key, value in pairs]
        if sequence is None:
            batch = encode_batch(records, compression=codec)
        else:
            producer_id, epoch = self.producer
            until(self._add_partition)  # not while the last transaction is being completed
            batch = encode_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        data = TopicProduceData(name=self.topic, partition_data=[PartitionProduceData(0, batch)])
        named = None if sequence is None else self.topic
        told = self.wire.call(ProduceRequest(named, -1, 10_000, [data]), 11).responses[0]
        assert told.partition_responses[0].error_code == codes.NONE

    def _add_partition(self) -> bool:
        topic = AddPartitionsToTxnTopic(self.topic, [0])
        told = self.wire.call(AddPartitionsToTxnRequest(self.topic, *self.producer, [topic]), 3)
        (result,) = told.results_by_topic_v3_and_below[0].results_by_partition
        return bool(result.partition_error_code == codes.NONE)

    def finish(self, *, committed: bool) -> None:
        """End the transaction."""
        before = self.end()
        told = self.wire.call(EndTxnRequest(self.topic, *self.producer, committed), 3)
        assert told.error_code == codes.NONE
        until(lambda: self.end(1) == before + 1)

    def read(self, offset: int = 0) -> Kept:
        """What a reader of committed records finds from an offset on."""
        found: Kept = []
        while True:
            request = fetch(self.topic, at(offset), max_wait_ms=0, isolation_level=1)
            (told,) = self.wire.call(request, 12).responses[0].partitions
            assert told.error_code == codes.NONE
            aborted = [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()]
            records = FetchedRecords(bytes(told.records or b""), "t", 0, offset, aborted=aborted)
            found += [(each.offset, each.key, each.value) for each in records.take()]
            if records.next_offset <= offset:
                return found
            offset = records.next_offset


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    with Broker(config={"log.cleaner.backoff.ms": 50}) as running:
        yield running


@pytest.mark.parametrize(("seed", "delete_retention_ms"), [(0, DAY_MS), (1, DAY_MS), (2, "0"), (3, "0")])
def test_the_same_records_are_left(ours: Broker, kafka: Kafka, seed: int, delete_retention_ms: str) -> None:
    topic = f"compacted-{uuid4().hex[:8]}"
    with Wire(ours) as one, Wire(kafka.bootstrap_servers) as other:
        sides = [Side(each, topic, delete_retention_ms) for each in (one, other)]
        compare(sides, random.Random(seed), keeps_tombstones=delete_retention_ms != "0")


def compare(sides: list[Side], dice: random.Random, *, keeps_tombstones: bool) -> None:
    now, sequence = wall_ms() - 100_000, 0
    committed: dict[bytes, bytes | None] = {}
    for number in range(40):
        pairs: Pairs = [
            (b"k%d" % dice.randrange(KEYS), None if dice.random() < 0.25 else b"%d" % dice.randrange(10**6))
            for _ in range(dice.randint(1, 4))
        ]
        kind, codec = dice.choice(["plain", "plain", "commit", "abort"]), dice.choice(["none", "lz4", "zstd"])
        for side in sides:
            side.put(pairs, now + number * 10, None if kind == "plain" else sequence, codec)
            if kind != "plain":
                side.finish(committed=kind == "commit")
        sequence += 0 if kind == "plain" else len(pairs)
        if kind != "abort":
            committed.update(pairs)
    later = wall_ms() + 60_000  # than the markers: Kafka closes a segment by the timestamps of its records
    for number in range(6):  # each lets another pass begin
        for side in sides:
            side.put([(b"filler", b"%d" % number)], later + number * 10)
        until(lambda: all(len(fillers(side)) <= 2 for side in sides))
    until(lambda: sides[0].read() == sides[1].read())
    left = sides[0].read()
    values = {key: value for _, key, value in left if key is not None and key != b"filler"}
    expected = {key: value for key, value in committed.items() if value is not None or keeps_tombstones}
    assert values == expected
    assert len(left) == len(expected) + 2
    # Who asks for an offset that has gone gets the next one that is there.
    for offset in range(0, left[-1][0], 5):
        assert sides[0].read(offset)[0] == sides[1].read(offset)[0]


def fillers(side: Side) -> list[int]:
    return [offset for offset, key, _ in side.read() if key == b"filler"]
