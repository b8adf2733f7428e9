"""Explicit mode: what is said of each record, renewal, and what is refused (KIP-932, KIP-1222)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, RENEW, HandNetwork

from kadence import AcknowledgeType, Record, ShareConsumer, TopicPartition
from kadence.errors import (
    DisconnectedError,
    IllegalStateError,
    InvalidRecordStateError,
    KafkaTimeoutError,
    RecordDeserializationError,
)

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


@pytest.fixture
def explicit(make: Callable[..., Made]) -> Made:
    return make({"share.acknowledgement.mode": "explicit"})


def test_the_next_poll_sends_what_was_said_of_each_record_neighbours_together(explicit: Made) -> None:
    consumer, network = explicit
    network.put(6)
    records = list(consumer.poll())
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[1], AcknowledgeType.ACCEPT)
    consumer.acknowledge(records[2], type=AcknowledgeType.REJECT)
    consumer.acknowledge("jobs", 0, 3, AcknowledgeType.RELEASE)
    consumer.acknowledge(records[4:])
    assert network.taken() == []
    assert not consumer.poll()
    assert network.taken() == [
        ("jobs", 0, 1, ACCEPT),
        ("jobs", 2, 2, REJECT),
        ("jobs", 3, 3, RELEASE),
        ("jobs", 4, 5, ACCEPT),
    ]


def test_the_last_word_counts_until_it_is_sent_and_nothing_after_it(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1)
    [record] = consumer.poll()
    consumer.acknowledge(record, AcknowledgeType.REJECT)
    consumer.acknowledge(record)
    assert consumer.commit() == {TopicPartition("jobs", 0): None}
    assert network.taken() == [("jobs", 0, 0, ACCEPT)]
    with pytest.raises(IllegalStateError, match="jobs-0 at offset 0 is not held"):
        consumer.acknowledge(record)


def test_a_poll_refuses_to_go_on_before_something_was_said_of_each(explicit: Made) -> None:
    consumer, network = explicit
    network.put(6)
    records = list(consumer.poll(max_records=5))
    consumer.acknowledge(records[0])
    for _ in range(2):
        with pytest.raises(
            IllegalStateError, match=r"for 4 of the records.*offset 1, jobs-0 at offset 2.* and 1 more"
        ):
            consumer.poll()
    consumer.acknowledge(records[1:])
    assert [each.offset for each in consumer.poll()] == [5]


def test_commit_leaves_what_nothing_was_said_of_and_so_does_close(explicit: Made) -> None:
    consumer, network = explicit
    network.put(3)
    records = list(consumer.poll())
    consumer.acknowledge(records[1])
    consumer.commit()
    assert network.taken() == [("jobs", 1, 1, ACCEPT)]
    consumer.acknowledge(records[0], AcknowledgeType.RELEASE)
    consumer.close()
    assert network.taken() == [("jobs", 0, 0, RELEASE)]
    assert network.heard[-1] == "Close"


def test_gaps_and_what_is_said_are_one_ascending_list(explicit: Made) -> None:
    consumer, network = explicit
    network.put(3, acquired=[(0, 4, 1)])
    consumer.acknowledge(consumer.poll())
    consumer.poll()
    assert network.taken() == [("jobs", 0, 2, ACCEPT), ("jobs", 3, 4, 0)]


def test_a_renewed_record_comes_back_alone_once_its_lock_was_renewed(explicit: Made) -> None:
    consumer, network = explicit
    network.answers_at_once = False
    network.put(2)
    first, second = consumer.poll()
    consumer.acknowledge(first, AcknowledgeType.RENEW)
    consumer.acknowledge(second)
    network.put(1, first=9)
    # Nothing new while the answer is not there.
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 0, RENEW), ("jobs", 1, 1, ACCEPT)]
    network.answer()
    assert list(consumer.poll()) == [first]
    with pytest.raises(IllegalStateError, match="for 1 of the records"):
        consumer.poll()
    consumer.acknowledge(first)
    assert [each.offset for each in consumer.poll()] == [9]
    network.clock.advance(20)
    consumer.acknowledge("jobs", 0, 9)
    consumer.poll()
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 9, 9, ACCEPT)] or network.taken() == []


def test_a_renewed_record_whose_lock_is_void_by_now_does_not_come_back(explicit: Made) -> None:
    consumer, network = explicit
    fetch = network.put(3)
    consumer.acknowledge(consumer.poll(), type=AcknowledgeType.RENEW)
    consumer.commit()
    fetch.void = DisconnectedError("gone")
    network.put(3, acquired=[(0, 2, 2)])
    assert [(each.offset, each.delivery_count) for each in consumer.poll()] == [(0, 2), (1, 2), (2, 2)]


def test_a_renewed_record_whose_lock_has_ended_by_now_does_not_come_back(explicit: Made) -> None:
    """The process was paused. The network thread may not have looked at it since then."""
    consumer, network = explicit
    fetch = network.put(3)
    consumer.acknowledge(consumer.poll(), type=AcknowledgeType.RENEW)
    consumer.commit()
    network.clock.advance(fetch.lock_ends - network.clock.now_ms())
    fetch.apart = (([(1, 1)], fetch.lock_ends + 1),)
    assert [each.offset for each in consumer.poll()] == [1]
    consumer.acknowledge("jobs", 0, 1)
    network.put(3, acquired=[(0, 0, 2), (2, 2, 2)])
    assert [(each.offset, each.delivery_count) for each in consumer.poll()] == [(0, 2), (2, 2)]


def test_a_renewed_record_can_be_acknowledged_before_it_comes_back(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1)
    [record] = consumer.poll()
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    consumer.commit()
    consumer.acknowledge(record)
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 0, RENEW), ("jobs", 0, 0, ACCEPT)]


def test_a_record_whose_renewal_failed_is_held_no_more(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1)
    [record] = consumer.poll()
    network.errors[TopicPartition("jobs", 0)] = InvalidRecordStateError("gone")
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    assert not consumer.poll()
    with pytest.raises(IllegalStateError, match="is not held"):
        consumer.acknowledge(record)


def test_a_record_whose_renewal_was_not_answered_in_time_is_given_back(explicit: Made) -> None:
    """The broker may have renewed its lock: held by nobody, it would be renewed until the consumer leaves."""
    consumer, network = explicit
    network.put(2)
    first, record = consumer.poll()
    network.errors[TopicPartition("jobs", 0)] = KafkaTimeoutError("took too long")
    consumer.acknowledge(first)
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    assert not consumer.poll()
    with pytest.raises(IllegalStateError, match="is not held"):
        consumer.acknowledge(record)
    consumer.commit()
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, RENEW), ("jobs", 1, 1, RELEASE)]


def test_a_record_that_is_delivered_anew_replaces_the_delivery_before(explicit: Made) -> None:
    consumer, network = explicit
    network.answers_at_once = False
    network.put(1)
    [record] = consumer.poll()
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    consumer.poll()
    again = network.put(1, acquired=[(0, 0, 2)])
    network.errors[TopicPartition("jobs", 0)] = InvalidRecordStateError("gone")
    network.answer()
    [record] = consumer.poll()
    assert record.delivery_count == 2
    consumer.acknowledge(record)
    network.said.clear()
    network.clock.advance(20)
    consumer.poll()
    assert [list(event.fetches) for event in network.said] == [[again]]


def test_acknowledging_several_says_all_or_nothing(explicit: Made) -> None:
    consumer, network = explicit
    network.put(3)
    records = list(consumer.poll())
    with pytest.raises(IllegalStateError, match="offset 7 is not held"):
        consumer.acknowledge([*records, Record("jobs", 0, 7)])
    several: Any = [records[0], "no record"]
    with pytest.raises(TypeError, match="takes records"):
        consumer.acknowledge(several)
    assert consumer.commit() == {}
    consumer.acknowledge(iter(records))
    consumer.commit()
    assert network.taken() == [("jobs", 0, 2, ACCEPT)]


def test_what_no_poll_returned_and_other_types_are_refused(explicit: Made, make: Callable[..., Made]) -> None:
    consumer, network = explicit
    network.put(1)
    [record] = consumer.poll()
    with pytest.raises(IllegalStateError, match="is not held"):
        consumer.acknowledge("jobs", 0, 5)
    with pytest.raises(IllegalStateError, match="is not held"):
        consumer.acknowledge(Record("other", 0, 0))
    with pytest.raises(TypeError, match=r"AcknowledgeType\.ACCEPT, RELEASE, REJECT or RENEW, not 1"):
        consumer.acknowledge(record, 1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="a partition and an offset"):
        consumer.acknowledge("jobs")
    with pytest.raises(TypeError, match="takes a record, several"):
        consumer.acknowledge(5)
    with pytest.raises(TypeError, match="takes one type"):
        consumer.acknowledge(record, AcknowledgeType.ACCEPT, type=AcknowledgeType.REJECT)  # type: ignore[call-overload]
    consumer.acknowledge(record)
    implicit, _ = make()
    with pytest.raises(IllegalStateError, match=r"needs share\.acknowledgement\.mode=explicit"):
        implicit.acknowledge(record)


@pytest.mark.parametrize("made", [bytes, lambda value: {value: value}, lambda value: [value.decode()]])
def test_s3_what_is_no_record_is_named_by_its_class(made: Callable[[bytes], Any], explicit: Made) -> None:
    """Programs pass the value of a record by mistake."""
    consumer, network = explicit
    network.put(1)
    with pytest.raises(TypeError) as raised:
        consumer.acknowledge(made(b"a secret"))
    assert "secret" not in str(raised.value)


def test_an_iteration_needs_a_word_on_each_record_before_the_next(explicit: Made) -> None:
    consumer, network = explicit
    network.put(3)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 2:
            break
        consumer.acknowledge(record)
    assert seen == [0, 1, 2]
    with pytest.raises(IllegalStateError, match="for 1 of the records"):
        next(consumer)


def test_ctrl_c_while_a_poll_waits_for_a_renewal_brings_nothing_back_that_was_returned(
    explicit: Made,
) -> None:
    consumer, network = explicit
    network.put(2)
    done, renewed = consumer.poll()
    consumer.acknowledge(done)
    consumer.acknowledge(renewed, AcknowledgeType.RENEW)

    def interrupt() -> None:
        raise KeyboardInterrupt

    network.answers_at_once = False
    network.meanwhile.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(1)
    network.answer()
    network.answers_at_once = True
    assert [each.offset for each in consumer.poll()] == [1]
    consumer.acknowledge(renewed)
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, RENEW), ("jobs", 1, 1, ACCEPT)]


def test_a_record_before_a_bad_one_of_the_same_poll_is_held_once(make: Callable[..., Made]) -> None:
    def value_of(data: bytes) -> str:
        if data == b"v4":
            raise ValueError("bad")
        return data.decode()

    consumer, network = make({"share.acknowledgement.mode": "explicit"}, value_deserializer=value_of)
    network.put(3)
    network.put(3, first=3)
    records = list(consumer.poll())
    assert [each.offset for each in records] == [0, 1, 2, 3]
    assert consumer._core.holding.in_hand()[0] == 4
    consumer.acknowledge(records[:3])
    consumer.acknowledge(records[3], AcknowledgeType.RENEW)
    [again] = consumer.poll(1)
    assert again == records[3]
    consumer.acknowledge(again)
    with pytest.raises(RecordDeserializationError):
        consumer.poll()
    [last] = consumer.poll()
    assert last.offset == 5
