"""Records that cannot be decoded or read: ``deserialization.errors`` of a queue, and damaged batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, HandNetwork

from kadence import AcknowledgeType, ShareConsumer, TopicPartition
from kadence.errors import (
    DeadLetterError,
    IllegalStateError,
    RecordDeserializationError,
    RecordTooLargeError,
    SchemaRegistryError,
)
from kadence.records import encode_batch
from kadence.share import share_consumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]
VALUES = [b"1", b"bad", b"3"]


def make_with(make: Callable[..., Made], policy: str, **more: Any) -> Made:
    consumer, network = make({"deserialization.errors": policy, **more}, value_deserializer=json.loads)
    return consumer, network


def values(records: Any) -> list[Any]:
    return [record.value for record in records]


def test_raise_releases_it_and_raises_after_the_records_before_it_and_the_others_come_next(
    make: Callable[..., Made],
) -> None:
    consumer, network = make_with(make, "raise")
    network.put(VALUES)
    assert values(consumer.poll()) == [1]
    with pytest.raises(RecordDeserializationError, match=r"offset 1 is bad.*it is released") as error:
        consumer.poll()
    assert (error.value.partition, error.value.offset, error.value.field) == (
        TopicPartition("jobs", 0),
        1,
        "value",
    )
    assert values(consumer.poll()) == [3]
    consumer.commit()
    assert network.taken() == [("jobs", 1, 1, RELEASE), ("jobs", 0, 0, ACCEPT), ("jobs", 2, 2, ACCEPT)]


def test_in_explicit_mode_the_application_may_say_another_thing_of_a_bad_record(
    make: Callable[..., Made],
) -> None:
    consumer, network = make_with(make, "raise", **{"share.acknowledgement.mode": "explicit"})
    network.put([b"bad", b"2"])
    network.put([b"bad"], partition=1)
    said: list[Any] = []
    for _ in range(4):
        try:
            consumer.acknowledge(consumer.poll())
        except RecordDeserializationError as bad:
            said += network.taken()
            consumer.acknowledge(*bad.partition, bad.offset, AcknowledgeType.REJECT)
    consumer.commit()
    said += network.taken()
    assert sorted(said) == [("jobs", 0, 0, REJECT), ("jobs", 0, 0, REJECT), ("jobs", 1, 1, ACCEPT)]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("values_of", [[b"1", b"bad", b"3"], [b"1", b"2", b"bad"]])
def test_in_explicit_mode_nothing_is_said_of_a_bad_record_before_the_application_is_told(
    make: Callable[..., Made], values_of: list[bytes], *, commits: bool
) -> None:
    consumer, network = make_with(make, "raise", **{"share.acknowledgement.mode": "explicit"})
    network.put(values_of)
    at = values_of.index(b"bad")
    consumer.acknowledge(consumer.poll())
    if commits:
        consumer.commit()
    with pytest.raises(RecordDeserializationError) as error:
        consumer.poll()
    assert network.taken() == [("jobs", 0, at - 1, ACCEPT)]
    place = *error.value.partition, error.value.offset
    with pytest.raises(IllegalStateError, match="cannot be renewed: accept, release or reject it"):
        consumer.acknowledge(*place, AcknowledgeType.RENEW)
    consumer.acknowledge(*place, AcknowledgeType.REJECT)
    consumer.commit()
    assert network.taken() == [("jobs", at, at, REJECT)]


@pytest.mark.parametrize(("policy", "kind"), [("release", RELEASE), ("reject", REJECT)])
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_release_and_reject_pass_over_it_and_log_it(
    make: Callable[..., Made], policy: str, kind: int, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, network = make_with(make, policy, **{"share.acknowledgement.mode": mode})
    network.put(VALUES)
    with caplog.at_level(logging.WARNING, "kadence.share"):
        records = consumer.poll()
    assert values(records) == [1, 3]
    assert (
        f"{'rejected' if kind == REJECT else 'released'}: the value of jobs-0 at offset 1 is bad"
        in caplog.text
    )
    assert "bad'" not in caplog.text
    if mode == "explicit":
        consumer.acknowledge(records)
    consumer.commit()
    assert network.taken() == [("jobs", 1, 1, kind), ("jobs", 0, 0, ACCEPT), ("jobs", 2, 2, ACCEPT)]
    assert skipped(consumer) == 1


def skipped(consumer: ShareConsumer[Any, Any]) -> float:
    return {name.name: value for name, value in consumer.metrics().items()}["records-skipped-total"]


@pytest.mark.parametrize("says", [*AcknowledgeType, None])
def test_a_bad_record_of_which_the_application_decides_is_not_skipped(
    make: Callable[..., Made], says: AcknowledgeType | None
) -> None:
    consumer, network = make_with(make, "raise", **{"share.acknowledgement.mode": "explicit"})
    network.put([b"bad"])
    with pytest.raises(RecordDeserializationError) as error:
        consumer.poll()
    if says is AcknowledgeType.RENEW:
        with pytest.raises(IllegalStateError, match="cannot be renewed"):
            consumer.acknowledge(*error.value.partition, error.value.offset, says)
    elif says is not None:
        consumer.acknowledge(*error.value.partition, error.value.offset, says)
    consumer.commit()
    assert [each[:3] for each in network.taken()] == [("jobs", 0, 0)]
    assert skipped(consumer) == 0


def test_a_bad_record_that_is_released_counts_as_skipped_with_each_delivery(
    make: Callable[..., Made],
) -> None:
    consumer, network = make_with(make, "release")
    for _ in range(2):
        network.put([b"bad"])
        assert not consumer.poll()
    assert skipped(consumer) == 2


class Letters:
    """A producer of dead letters whose sends are decided by the test."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, Future[None]]] = []
        self.closed = False

    def send(
        self, topic: str, value: bytes | None = None, key: bytes | None = None, *, headers: Any = ()
    ) -> Any:
        future: Future[None] = Future()
        self.sent.append((topic, value, future))
        return future

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


class Here:
    """Makes calls at once, where they are asked for."""

    def caller(self, name: str) -> Here:
        return self

    def carry(self, calls: Any) -> None:
        result: Any = None
        try:
            call = next(calls)
            while True:
                try:
                    result = call()
                except Exception as error:  # noqa: BLE001 - as calls aside do
                    call = calls.throw(error)
                else:
                    call = calls.send(result)
        except StopIteration:
            pass

    def end(self) -> None: ...


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    made = Letters()
    monkeypatch.setattr(share_consumer, "letter_producer", lambda config: made)
    monkeypatch.setattr(share_consumer, "aside", Here)
    return made


def test_a_dead_letter_is_acknowledged_before_its_record_is_accepted_and_nothing_waits_for_it(
    make: Callable[..., Made], letters: Letters
) -> None:
    consumer, network = make_with(make, "dead-letter", **{"dead.letter.topic": "bad"})
    network.put(VALUES)
    assert values(consumer.poll()) == [1, 3]
    assert [(topic, value) for topic, value, _ in letters.sent] == [("bad", b"bad")]
    consumer.commit()
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 2, 2, ACCEPT)]
    letters.sent[0][2].set_result(None)
    assert not consumer.poll()
    assert network.taken() == [("jobs", 1, 1, ACCEPT)]
    consumer.close()
    assert letters.closed


def test_a_dead_letter_that_cannot_be_written_releases_its_record_and_is_raised(
    make: Callable[..., Made], letters: Letters
) -> None:
    consumer, network = make_with(make, "dead-letter", **{"dead.letter.topic": "bad"})
    network.put([b"bad"])
    assert not consumer.poll()
    letters.sent[0][2].set_exception(RuntimeError("no such topic"))
    with pytest.raises(DeadLetterError, match=r"jobs-0 at offset 0 could not be written.*and is released"):
        consumer.poll()
    consumer.commit()
    assert network.taken() == [("jobs", 0, 0, RELEASE)]


def test_closing_waits_for_dead_letters_that_are_under_way(
    make: Callable[..., Made], letters: Letters
) -> None:
    consumer, network = make_with(make, "dead-letter", **{"dead.letter.topic": "bad"})
    network.put([b"bad"])
    consumer.poll()
    network.meanwhile.append(lambda: letters.sent[0][2].set_result(None))
    consumer.close()
    assert network.taken() == [("jobs", 0, 0, ACCEPT)]


def test_a_registry_that_does_not_answer_is_no_bad_record(make: Callable[..., Made]) -> None:
    answers: list[Any] = [SchemaRegistryError("away"), 5]

    def parse(data: bytes) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    consumer, network = make({"deserialization.errors": "reject"}, value_deserializer=parse)
    network.put(1)
    with pytest.raises(SchemaRegistryError, match="away"):
        consumer.poll()
    assert values(consumer.poll()) == [5]


def test_a_damaged_batch_is_rejected_and_what_follows_is_returned(made: Made) -> None:
    consumer, network = made
    rows: list[Any] = [(1, None, b"x", [])]
    bad = bytearray(encode_batch(rows * 2, base_offset=0))
    bad[-1] ^= 1
    good = encode_batch(rows, base_offset=2)
    network.put(3, data=bytes(bad) + good)
    assert [each.offset for each in consumer.poll()] == [2]
    consumer.commit()
    assert network.taken() == [("jobs", 0, 1, REJECT), ("jobs", 2, 2, ACCEPT)]


def test_a_batch_that_is_too_large_for_this_client_is_released_and_raised(make: Callable[..., Made]) -> None:
    consumer, network = make({"max.batch.bytes": 100})
    rows: list[Any] = [(1, None, b"x" * 500, [])]
    network.put(1, data=encode_batch(rows, compression="gzip"))
    network.put(1, first=5)
    with pytest.raises(RecordTooLargeError, match=r"more than 100 bytes.*is released"):
        consumer.poll()
    assert [each.offset for each in consumer.poll()] == [5]
    consumer.commit()
    assert network.taken() == [("jobs", 0, 0, RELEASE), ("jobs", 5, 5, ACCEPT)]


@pytest.mark.parametrize("policy", ["release", "reject", "raise"])
def test_ctrl_c_in_a_deserialiser_behind_a_bad_record_says_nothing_twice(
    make: Callable[..., Made], policy: str
) -> None:
    interrupts = [False, True]

    def decode(data: bytes) -> int:
        if data == b"3" and interrupts.pop():
            raise KeyboardInterrupt
        return int(data)

    consumer, network = make({"deserialization.errors": policy, "value.deserializer": decode})
    network.put([b"1", b"bad", b"3", b"4"])
    seen: list[Any] = []
    for _ in range(6):
        try:
            seen += values(consumer.poll())
        except (KeyboardInterrupt, RecordDeserializationError):
            continue
    consumer.commit()
    said = [offset for _, first, last, _ in network.taken() for offset in range(first, last + 1)]
    assert seen == [1, 3, 4]
    assert sorted(said) == [0, 1, 2, 3]
