"""Transactions: every field of the answers about them, in each version and to odd requests, beside real Apache Kafka's.

What becomes of a transaction, step by step, is compared in `test_transactions_same_as_kafka`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.fields import MADE_UP_IDS, UNKNOWN_ID, Scenario, Talk, assert_same
from tests.protocol.real_requests import versions

from kadence.protocol import error_codes as codes
from kadence.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from kadence.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kadence.protocol.describe_producers import DescribeProducersRequest
from kadence.protocol.describe_producers import TopicRequest as ProducersOf
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
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
from kadence_testing.kafka import Kafka


def begin(talk: Talk, name: str) -> tuple[int, int]:
    answer: Any = None

    def is_begun() -> bool:
        nonlocal answer
        answer = talk.wire.call(InitProducerIdRequest(name, 60_000, -1, -1))
        return bool(answer.error_code == codes.NONE)

    talk.until(is_begun, "no producer id")
    return answer.producer_id, answer.producer_epoch


def settle(talk: Talk, name: str) -> None:
    """Wait until the markers are written, which real Kafka does after its answer."""
    asked = DescribeTransactionsRequest([name])
    talk.until(
        lambda: not talk.wire.call(asked).transaction_states[0].transaction_state.startswith("Prepare"),
        "the markers are not written",
    )


def initialising(talk: Talk) -> None:
    for version in range(6):
        name = talk.transactional_id()
        for transactional_id in (name, None, name):
            talk.ask(InitProducerIdRequest(transactional_id, 60_000, -1, -1), version)
        for timeout in (0, -1, 900_000, 900_001, 2**31 - 1):
            talk.ask(InitProducerIdRequest(talk.named("odd"), timeout, -1, -1), version)
            if timeout < 900_000:
                talk.ask(InitProducerIdRequest(None, timeout, -1, -1), version)
        talk.ask(InitProducerIdRequest("", 60_000, -1, -1), version)
        talk.ask(InitProducerIdRequest("x" * 300, -5, -1, -1), version)
        if version >= 3:
            producer, epoch = begin(talk, name)
            for changes in (
                (producer, epoch), (producer, epoch + 5), (producer, -1), (-1, epoch), (MADE_UP_IDS, 0), (-5, -5),
                (producer, -5), (2**62, 32_767),
            ):  # fmt: skip
                talk.ask(InitProducerIdRequest(name, 60_000, *changes), version)
                talk.ask(InitProducerIdRequest(None, 60_000, *changes), version)


def adding(talk: Talk) -> None:
    topic, other = talk.topic(2), talk.topic(1, "other")
    group = talk.group()
    name = talk.transactional_id()
    for version in range(4):
        producer = begin(talk, name)

        def add(
            *topics: tuple[str, list[int]],
            to: str = name,
            by: tuple[int, int] = producer,
            version: int = version,
        ) -> None:
            asked = [AddPartitionsToTxnTopic(each, indexes) for each, indexes in topics]
            request = AddPartitionsToTxnRequest(to, *by, asked)
            # A transaction that was ended may still be ending.
            answer = talk.ask(request, version)
            assert answer is not None

        add((topic, [0]), (other, [0]))
        add((topic, [0, 1]), (topic, [1]))
        add((topic, [0, 0]))
        add((topic, []))
        add()
        add((topic, [0, 9]), (other, [0]))
        add((topic, [-1]))
        add(("no-such-topic", [0]), (topic, [0]))
        add(("", [0]), ("a/b", [0]))
        add(("__transaction_state", [0]))
        for by in (
            (producer[0], producer[1] + 1),
            (producer[0], producer[1] - 1),
            (MADE_UP_IDS, 0),
            (-1, -1),
        ):
            add((topic, [0]), by=by)
        for to in ("", "nobody", "x" * 300):
            add((topic, [0]), to=to)
        for each in range(5):
            for to, by, of in (
                (name, producer, group), (name, producer, ""), (name, producer, "none"), ("", producer, group),
                ("nobody", producer, group), (name, (producer[0], 31_000), group), (name, (MADE_UP_IDS, 0), group),
                (name, (-1, -1), group),
            ):  # fmt: skip
                talk.ask(AddOffsetsToTxnRequest(to, *by, of), each)
        talk.ask(DescribeTransactionsRequest([name]), without=("topics",))


def ending(talk: Talk) -> None:
    topic = talk.topic()
    name = talk.transactional_id()
    for version in range(6):
        for committed in (True, False):
            producer = begin(talk, name)
            talk.ask(EndTxnRequest(name, *producer, committed), version)
            settle(talk, name)
            producer = begin(talk, name)
            asked = [AddPartitionsToTxnTopic(topic, [0])]
            talk.wire.call(AddPartitionsToTxnRequest(name, *producer, asked), 3)
            for to, by in (
                ("", producer), ("nobody", producer), (name, (MADE_UP_IDS, 0)), (name, (producer[0], 31_000)),
                (name, (-1, -1)), (name, (producer[0], producer[1] - 1)),
            ):  # fmt: skip
                talk.ask(EndTxnRequest(to, *by, committed), version)
            talk.ask(EndTxnRequest(name, *producer, committed), version)
            settle(talk, name)
            talk.ask(EndTxnRequest(name, *producer, committed), version)
            settle(talk, name)
            talk.ask(EndTxnRequest(name, *producer, not committed), version)
            settle(talk, name)


def committing_offsets(talk: Talk) -> None:
    topic = talk.topic(2)
    group = talk.group()
    name = talk.transactional_id()

    def offset(index: int, metadata: str | None = "n") -> TxnOffsetCommitRequestPartition:
        return TxnOffsetCommitRequestPartition(index, 7, -1, metadata)

    for version in versions(TxnOffsetCommitRequest):
        producer = begin(talk, name)
        talk.wire.call(AddOffsetsToTxnRequest(name, *producer, group))

        def commit(
            *topics: tuple[str, list[TxnOffsetCommitRequestPartition]],
            to: str = name,
            of: str = group,
            by: tuple[int, int] = producer,
            version: int = version,
            **changes: Any,
        ) -> None:
            ids = {topic: talk.topic_id(topic), "": bytes(16)}
            asked = [
                TxnOffsetCommitRequestTopic(each, ids.get(each, UNKNOWN_ID), partitions)
                for each, partitions in topics
            ]
            request = TxnOffsetCommitRequest(to, of, *by, topics=asked)
            for field, value in changes.items():
                setattr(request, field, value)
            talk.ask(request, version)

        usual = (topic, [offset(0)])
        commit((topic, [offset(0), offset(1), offset(9), offset(-1)]), ("no-such-topic", [offset(0)]))
        commit((topic, [offset(0, None), offset(1, "x" * 4_097)]))
        commit((topic, [offset(0), offset(0)]))
        commit((topic, []))
        commit()
        commit(("", [offset(0)]), ("a/b", [offset(0)]))
        commit(usual, of="")
        for to in ("", "nobody"):
            commit(usual, to=to)
        for by in ((producer[0], 31_000), (producer[0], producer[1] - 1), (MADE_UP_IDS, 0), (-1, -1)):
            commit(usual, by=by)
        if version >= 3:
            commit(usual, member_id="who")
            commit(usual, generation_id_or_member_epoch=5)
            commit(usual, group_instance_id="who")
            commit(usual, generation_id_or_member_epoch=-2)
            nobodys = talk.group("another group")
            talk.wire.call(AddOffsetsToTxnRequest(name, *producer, nobodys))
            commit(usual, of=nobodys, generation_id_or_member_epoch=5)


def administering(talk: Talk) -> None:
    topic = talk.topic(2)
    name, idle = talk.transactional_id(), talk.transactional_id("idle")
    producer = begin(talk, name)
    begin(talk, idle)
    talk.wire.call(AddPartitionsToTxnRequest(name, *producer, [AddPartitionsToTxnTopic(topic, [0, 1])]), 3)
    for names in ([name], [name, name, idle], ["nobody"], [""], ["x" * 300], [], [name, "nobody", ""]):
        talk.ask(DescribeTransactionsRequest(names))
    for version in range(3):
        talk.ask(ListTransactionsRequest(), version, mine=True)
        for states in (["Ongoing"], ["ongoing"], ["Empty", "Ongoing"], ["nonsense"], [""], ["Dead"]):
            talk.ask(ListTransactionsRequest(states), version, mine=True)
        for ids in ([producer[0]], [-1], [MADE_UP_IDS]):
            talk.ask(ListTransactionsRequest([], ids), version, mine=True)
    for duration in (0, 10**9, -1, -2):
        talk.ask(ListTransactionsRequest([], [], duration), 1, mine=True)
    for pattern in (None, "", ".*", "same", "(", "transactional id.*", "x" * 300):
        talk.ask(ListTransactionsRequest([], [], -1, pattern), 2, mine=True)

    def mark(*markers: WritableTxnMarker, version: int) -> None:
        talk.ask(WriteTxnMarkersRequest(list(markers)), version, without=("producer_id",))

    for version in (1, 2):
        mark(version=version)
        for where, indexes in ((topic, [0, 9, -1]), ("no-such-topic", [0]), ("", [0]), (topic, [])):
            mark(
                WritableTxnMarker(
                    producer[0], producer[1], False, [WritableTxnMarkerTopic(where, indexes)], 0
                ),
                version=version,
            )
        for epoch, coordinator in ((-1, 0), (0, -1), (producer[1], 5), (producer[1], 3), (30_000, 9), (0, 9)):
            place = [WritableTxnMarkerTopic(topic, [1])]
            mark(WritableTxnMarker(producer[0], epoch, True, place, coordinator), version=version)
        place = [WritableTxnMarkerTopic(topic, [0])]
        mark(WritableTxnMarker(-1, 0, True, place, 0), version=version)
        mark(WritableTxnMarker(MADE_UP_IDS, 0, True, place, 0), version=version)
        mark(WritableTxnMarker(producer[0], 0, True, [], 0), version=version)
    talk.ask(DescribeProducersRequest([ProducersOf(topic, [0, 1])]), without=("last_timestamp",))


SCENARIOS: list[Scenario] = [
    initialising, adding, ending, committing_offsets, administering,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)
