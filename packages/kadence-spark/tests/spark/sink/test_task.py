"""When a task's rows count as written. The producer is a list, whose acknowledgements come when the test says."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from kadence.errors import KafkaError, RecordTooLargeError
from kadence_spark.sink.columns import RecordColumns
from kadence_spark.sink.digest import RowsDigest
from kadence_spark.sink.task import PendingRecords, write_rows

COLUMNS = RecordColumns(("value",), "t")


class Acknowledged:
    def __init__(self, waited: list[int], number: int, error: KafkaError | None) -> None:
        self._waited = waited
        self._number = number
        self._error = error

    def done(self) -> bool:
        return self._error is not None

    def result(self) -> None:
        self._waited.append(self._number)
        if self._error is not None:
            raise self._error


class ListSink:
    """Notes what is sent and what is waited for. ``fails``: the number of the batch that is refused."""

    def __init__(self, fails: int = -1) -> None:
        self.sent: list[tuple[list[bytes], str | None]] = []
        self.waited: list[int] = []
        self._fails = fails

    def send(self, records: pa.RecordBatch, topic: str | None) -> PendingRecords:
        number = len(self.sent)
        self.sent.append((records.column("value").to_pylist(), topic))
        return Acknowledged(self.waited, number, RecordTooLargeError("no") if number == self._fails else None)


def batches(count: int, taken: list[int]) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        taken.append(number)
        yield pa.record_batch({"value": pa.array([b"%d" % number] * number, pa.binary())})


def test_every_row_is_waited_for() -> None:
    sink = ListSink()
    assert write_rows(batches(4, []), COLUMNS, sink) == 6
    assert sink.sent == [([b"1"], "t"), ([b"2"] * 2, "t"), ([b"3"] * 3, "t")]
    assert sink.waited == [0, 1, 2]


def test_what_is_written_is_summed_up() -> None:
    digest = RowsDigest()
    write_rows(batches(4, []), COLUMNS, ListSink(), digest)
    assert (digest.rows, digest.topic) == (6, "t")


def test_a_refused_row_ends_the_task_before_the_rest_is_sent() -> None:
    sink = ListSink(fails=0)
    taken: list[int] = []
    with pytest.raises(RecordTooLargeError):
        write_rows(batches(100, taken), COLUMNS, sink)
    assert taken == [0, 1]
