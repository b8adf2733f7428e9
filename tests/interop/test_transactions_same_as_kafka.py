"""The requests of transactions to our broker and to real Apache Kafka: the answers must agree.

Each scenario returns what it saw as plain values. Producer ids differ from run to run, so they stand as the order in
which they were seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import pytest
from tests.broker.wire import at, fetch
from tests.interop.test_same_as_kafka import Side
from tests.patience import PATIENCE

from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kadence.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kadence.records import encode_batch, iter_batches
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

ProducerId = tuple[int, int]


class Stage:
    """A side of the comparison, with a transactional id that nobody else uses."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.wire = side.wire
        self.name = f"same-{uuid4()}"
        self._ids: list[int] = [-1]
        self._sequences: dict[tuple[ProducerId, int], int] = {}
        deadline = time.monotonic() + PATIENCE
        while self._has_no_coordinator():
            assert time.monotonic() < deadline, "no transaction coordinator"

    def _has_no_coordinator(self) -> bool:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        (found,) = self.wire.call(request).coordinators
        # Kafka makes the topic of transactions when it is first asked.
        probe = self.wire.call(EndTxnRequest(self.name, 1, 0, committed=True)).error_code
        # Nor has it producer ids at once.
        ids = self.wire.call(InitProducerIdRequest(None, 60_000)).error_code
        return bool(found.error_code or ids) or probe != codes.INVALID_PRODUCER_ID_MAPPING

    def known(self, producer_id: int) -> int:
        """Which of the ids that were seen it is; -1 for none."""
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return self._ids.index(producer_id) - 1

    def init(self, version: int = 5, **changes: Any) -> tuple[str, int, int]:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        for key, value in changes.items():
            setattr(request, key, value)
        answer = self.wire.call(request, version)
        self.last = answer.producer_id, answer.producer_epoch
        return codes.name(answer.error_code), self.known(answer.producer_id), answer.producer_epoch

    def begin(self) -> ProducerId:
        """A producer id and epoch, once what was open has been ended."""
        deadline = time.monotonic() + PATIENCE
        while (seen := self.init())[0] != "NONE":
            assert seen[0] == "CONCURRENT_TRANSACTIONS", seen
            assert time.monotonic() < deadline, "the transaction does not end"
        return self.last

    def add(self, producer: ProducerId, *partitions: int, version: int = 3, **changes: Any) -> list[str]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.side.topic, partitions=list(partitions))],
        )
        for key, value in changes.items():
            setattr(request, f"v3_and_below_{key}", value)
        (topic,) = self.wire.call(request, version).results_by_topic_v3_and_below
        found = sorted(topic.results_by_partition, key=lambda each: each.partition_index)
        return [codes.name(each.partition_error_code) for each in found]

    def add_offsets(self, producer: ProducerId, version: int = 4, **changes: Any) -> str:
        request = AddOffsetsToTxnRequest(self.name, *producer, self.side.group)
        for key, value in changes.items():
            setattr(request, key, value)
        return codes.name(self.wire.call(request, version).error_code)

    def end(self, producer: ProducerId, committed: bool, version: int = 4, **changes: Any) -> Any:
        request = EndTxnRequest(self.name, *producer, committed=committed)
        for key, value in changes.items():
            setattr(request, key, value)
        answer = self.wire.call(request, version)
        if answer.error_code == codes.NONE:
            self.settle()
        if version < 5:
            return codes.name(answer.error_code)
        self.last = answer.producer_id, answer.producer_epoch
        return codes.name(answer.error_code), self.known(answer.producer_id), answer.producer_epoch

    def settle(self) -> None:
        """Wait until the markers are written, which a broker does after its answer."""
        deadline = time.monotonic() + PATIENCE
        while self.describe()[0][1].startswith("Prepare"):
            assert time.monotonic() < deadline, "the markers are not written"

    def describe(self, *names: str) -> list[Any]:
        answer = self.wire.call(DescribeTransactionsRequest(list(names or [self.name])))
        return [
            (
                codes.name(each.error_code),
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms > 0,
                self.known(each.producer_id) if each.error_code == codes.NONE else each.producer_id,
                each.producer_epoch,
                # The two keep groups in different numbers of partitions.
                sorted(
                    ("ours", sorted(topic.partitions))
                    if topic.topic == self.side.topic
                    else (topic.topic, [])
                    for topic in each.topics
                ),
            )
            for each in answer.transaction_states
        ]

    def produce(
        self, producer: ProducerId, partition: int = 0, version: int = 10, *, transactional: bool = True
    ) -> str:
        sequence = self._sequences.get((producer, partition), 0)
        batch = encode_batch(
            [(1_000, None, b"v", ())],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=transactional,
        )
        data = TopicProduceData(
            name=self.side.topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=self.name if transactional else None,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[data],
        )
        answer = self.wire.call(request, version).responses[0].partition_responses[0]
        if answer.error_code == codes.NONE:
            self._sequences[producer, partition] = sequence + 1
        return codes.name(answer.error_code)

    def commit_offsets(
        self,
        producer: ProducerId,
        offset: int,
        version: int = 4,
        partitions: Iterable[int] = (0, 9),
        **changes: Any,
    ) -> list[str]:
        request = TxnOffsetCommitRequest(
            self.name,
            self.side.group,
            *producer,
            topics=[
                TxnOffsetCommitRequestTopic(
                    self.side.topic,
                    partitions=[TxnOffsetCommitRequestPartition(each, offset) for each in partitions],
                )
            ],
        )
        for key, value in changes.items():
            setattr(request, key, value)
        (topic,) = self.wire.call(request, version).topics
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        return [codes.name(each.error_code) for each in found]

    def committed(self, *, stable: bool = False) -> tuple[str, int]:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    self.side.group,
                    topics=[OffsetFetchRequestTopics(name=self.side.topic, partition_indexes=[0])],
                )
            ],
            require_stable=stable,
        )
        (partition,) = self.wire.call(request, 9).groups[0].topics[0].partitions
        return codes.name(partition.error_code), partition.committed_offset

    def read(self, partition: int = 0) -> Any:
        """What a reader of committed records is told until it has read them all."""
        aborted: set[tuple[int, int]] = set()
        offset = 0
        while True:
            request = fetch(self.side.topic, at(offset, partition), isolation_level=1)
            (found,) = self.wire.call(request, 12).responses[0].partitions
            aborted |= {
                (self.known(each.producer_id), each.first_offset) for each in found.aborted_transactions or ()
            }
            headers = [header for header, _ in iter_batches(found.records)]
            if not headers:
                return found.high_watermark, found.last_stable_offset, sorted(aborted)
            offset = headers[-1].next_offset


def initialising(stage: Stage) -> Any:
    seen: list[Any] = [
        stage.init(**changes)
        for changes in (
            {}, {}, {"transactional_id": ""}, {"transaction_timeout_ms": 0}, {"transaction_timeout_ms": -1},
            {"transaction_timeout_ms": 900_001}, {"producer_epoch": 3}, {"producer_id": 3},
            {"transactional_id": None}, {"transactional_id": None, "transaction_timeout_ms": -5},
        )
    ]  # fmt: skip
    producer = stage.begin()
    for epoch in (producer[1], producer[1], producer[1] + 1, producer[1] - 1, 30_000):
        seen += [stage.init(producer_id=producer[0], producer_epoch=epoch)]
    seen.append(stage.init(3, producer_id=producer[0], producer_epoch=0))
    seen.append(stage.init(producer_id=producer[0] + 1_000_000, producer_epoch=0))
    return seen


def adding(stage: Stage) -> Any:
    producer = stage.begin()
    stale = producer[0], producer[1] - 1
    ahead = producer[0], producer[1] + 1
    seen: list[Any] = [
        stage.add(producer, 0, 9),
        stage.add(producer, 0),
        stage.add(producer, 0),
        stage.add(producer, 0, transactional_id=""),
        stage.add(producer, 0, transactional_id="nobody"),
        stage.add((producer[0] + 1_000_000, 0), 0),
        *(stage.add(each, 1, version=version) for each in (stale, ahead) for version in (1, 2, 3)),
        stage.add_offsets(producer),
        stage.add_offsets(producer, group_id=""),
        stage.add_offsets(producer, transactional_id=""),
        *(stage.add_offsets(stale, version) for version in (1, 2, 4)),
        stage.describe(),
    ]
    return seen


def ending(stage: Stage) -> Any:
    producer = stage.begin()
    seen: list[Any] = [stage.end(producer, committed) for committed in (True, False)]
    for first in (True, False):
        seen.append(stage.add(producer, 0, 1))
        seen += [stage.end(producer, committed) for committed in (first, first, not first)]
        seen.append(stage.describe())
    stale = producer[0], producer[1] - 1
    seen += [stage.end(stale, committed=True, version=version) for version in (1, 2, 4, 5)]
    seen.append(stage.end(producer, committed=True, transactional_id=""))
    seen.append(stage.end(producer, committed=True, transactional_id="nobody"))
    seen.append(stage.end((producer[0] + 1_000_000, 0), committed=True))
    return seen


def ending_with_a_new_epoch(stage: Stage) -> Any:
    producer = stage.begin()
    seen: list[Any] = [stage.end(producer, committed=True, version=5)]
    seen.append(stage.end(producer, committed=False, version=5))
    seen.append(stage.end(stage.last, committed=False, version=5))
    for committed in (True, False):
        now = stage.last
        seen.append(stage.produce(now, version=12))
        seen.append(stage.describe())
        seen.append(stage.end(now, committed, version=5))
        after = stage.last
        seen.append(stage.end(now, committed, version=5))
        seen.append(stage.end(now, not committed, version=5))
        seen.append(stage.produce(now, version=12))
        seen.append(stage.end(after, committed=True, version=5))
        seen.append(stage.describe())
        stage.last = after
    seen.append(stage.read())
    return seen


def taking_over(stage: Stage) -> Any:
    old = stage.begin()
    stage.add(old, 0)
    seen: list[Any] = [stage.produce(old), stage.init()]
    stage.settle()
    seen.append(stage.describe())
    new = stage.begin()
    seen += [new[1] - old[1], stage.known(new[0]), stage.produce(old), stage.add(old, 0)]
    seen += [stage.end(old, committed=True), stage.end(old, committed=True, version=5), stage.read()]
    return seen


def writing(stage: Stage) -> Any:
    producer = stage.begin()
    seen: list[Any] = [stage.produce(producer, version=version) for version in (9, 10, 11)]
    seen.append(stage.produce((producer[0], producer[1] + 1), version=12))
    seen.append(stage.produce((producer[0] + 1_000_000, 0), version=12))
    seen += [stage.produce(producer, 1, version=12), stage.describe()]
    seen.append(stage.produce(producer, 1, transactional=False))
    stage.add(producer, 0)
    seen += [stage.produce(producer, 0), stage.read(0), stage.read(1)]
    seen += [stage.end(producer, committed=False), stage.read(0), stage.read(1)]
    return seen


def committing_offsets(stage: Stage) -> Any:
    producer = stage.begin()
    seen: list[Any] = [stage.commit_offsets(producer, 3, version=version) for version in (3, 4)]
    seen.append(stage.commit_offsets(producer, 3, transactional_id="nobody"))
    seen.append(stage.commit_offsets(producer, 3, version=5))
    seen += [stage.committed(), stage.committed(stable=True), stage.describe()]
    seen += [stage.end(producer, committed=False, version=5), stage.committed(stable=True)]
    producer = stage.last
    seen.append(stage.add_offsets(producer))
    seen.append(stage.commit_offsets(producer, 4))
    seen += [stage.end(producer, committed=True), stage.committed(stable=True)]
    for changes in ({"generation_id_or_member_epoch": 3}, {"member_id": "who"}):
        stage.add_offsets(producer)
        seen.append(stage.commit_offsets(producer, 5, **changes))
    return seen


def administering(stage: Stage) -> Any:
    producer = stage.begin()
    stage.add(producer, 1, 0)
    stage.produce(producer, 0)
    seen: list[Any] = [stage.describe(stage.name, "nobody", "")]

    def listed(version: int = 2, **filters: Any) -> Any:
        answer = stage.wire.call(ListTransactionsRequest(**filters), version)
        states = [each for each in answer.transaction_states if each.transactional_id == stage.name]
        return (
            codes.name(answer.error_code),
            answer.unknown_state_filters,
            [(stage.known(each.producer_id), each.transaction_state) for each in states],
        )

    seen += [
        listed(0), listed(state_filters=["Ongoing"]), listed(state_filters=["Sleepy"]),
        listed(state_filters=["Sleepy", "Ongoing"]), listed(state_filters=["ongoing"]), listed(state_filters=["Dead"]),
        listed(producer_id_filters=[producer[0]]), listed(producer_id_filters=[1]),
        listed(duration_filter=10**9), listed(duration_filter=0),
        listed(transactional_id_pattern="same-.*"), listed(transactional_id_pattern="same"),
        listed(transactional_id_pattern="("), listed(transactional_id_pattern=""),
    ]  # fmt: skip

    def mark(
        topic: str, partition: int, epoch: int, producer_id: int = producer[0], coordinator: int = 0
    ) -> str:
        marker = WritableTxnMarker(
            producer_id, epoch, False, [WritableTxnMarkerTopic(topic, [partition])], coordinator
        )
        (answer,) = stage.wire.call(WriteTxnMarkersRequest([marker])).markers
        return codes.name(answer.topics[0].partitions[0].error_code)

    seen += [mark("no-such-topic", 0, 0), mark(stage.side.topic, 9, 0), stage.read()]
    seen += [mark(stage.side.topic, 0, producer[1]), stage.read(), mark(stage.side.topic, 0, producer[1])]
    return seen


def features(stage: Stage) -> Any:
    """What makes clients use transactions v2 and KIP-848."""
    answer = stage.wire.call(ApiVersionsRequest("same", "1"))
    wanted = {"group.version", "transaction.version"}
    return (
        sorted((e.name, e.min_version, e.max_version) for e in answer.supported_features if e.name in wanted),
        sorted(
            (e.name, e.min_version_level, e.max_version_level)
            for e in answer.finalized_features
            if e.name in wanted
        ),
    )


@pytest.mark.parametrize(
    "scenario",
    [
        initialising, adding, ending, ending_with_a_new_epoch, taking_over, writing, committing_offsets, administering,
        features,
    ],
    ids=lambda scenario: scenario.__name__,
)  # fmt: skip
def test_we_answer_as_kafka_does(kafka: Kafka, scenario: Callable[[Stage], Any]) -> None:
    seen = []
    with Broker() as broker:
        for address in (broker.bootstrap_servers, kafka.bootstrap_servers):
            side = Side(address)
            try:
                seen.append(scenario(Stage(side)))
            finally:
                side.close()
    ours, kafkas = seen
    assert ours == kafkas
