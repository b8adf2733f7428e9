"""Which poll brought a record, as far as it is remembered."""

from __future__ import annotations

from opentelemetry.trace import SpanContext

from kadence import Record, TopicPartition
from kadence.otel.working import Received

PARTITION = TopicPartition("orders", 0)


def span(number: int) -> SpanContext:
    return SpanContext(1, number, is_remote=False)


def record(offset: int) -> Record[bytes, bytes]:
    return Record("orders", 0, offset, 0, 0, None, None, (), None)


def found(received: Received, offset: int) -> int | None:
    known = received.span_of(record(offset))
    return None if known is None else known.span_id


def test_a_record_belongs_to_the_first_poll_that_reached_its_offset() -> None:
    received = Received()
    received.add(PARTITION, 9, span(1))
    received.add(PARTITION, 12, span(2))
    assert [found(received, offset) for offset in (0, 9, 10, 12, 13)] == [1, 1, 2, 2, None]


def test_a_record_of_a_poll_that_is_forgotten_belongs_to_no_other() -> None:
    received = Received()
    for number in range(1, 204):
        received.add(PARTITION, number * 10, span(number))
    assert [found(received, offset) for offset in (5, 30, 31, 2030)] == [None, None, 4, 203]


def test_a_partition_that_is_read_again_from_further_below_begins_anew() -> None:
    received = Received()
    for number in range(1, 204):
        received.add(PARTITION, number * 10, span(number))
    received.add(PARTITION, 9, span(300))
    assert [found(received, offset) for offset in (5, 9, 10)] == [300, 300, None]
