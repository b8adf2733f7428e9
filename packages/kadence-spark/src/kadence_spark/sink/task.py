"""A task of the sink: passes its rows to a producer, and waits until the brokers have acknowledged all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kadence_spark.sink.columns import RecordColumns
from kadence_spark.sink.digest import RowsDigest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PendingRecords", "RecordSink", "write_rows"]


class PendingRecords(Protocol):
    """Records that were passed to the producer together."""

    def done(self) -> bool:
        """Whether all records are acknowledged or have failed."""

    def result(self) -> object:
        """Wait for that.

        Raises:
            KafkaError: records were not written; the message has the reason and the partition.
        """


class RecordSink(Protocol):
    """The executor's writer: one producer, used for one task at a time."""

    def send(self, records: pa.RecordBatch, topic: str | None) -> PendingRecords:
        """Send records; blocks while the buffer is full. ``topic`` takes precedence over their column."""


def write_rows(
    batches: Iterator[pa.RecordBatch],
    columns: RecordColumns,
    sink: RecordSink,
    digest: RowsDigest | None = None,
) -> int:
    """Write all rows; returns their number once every one of them is acknowledged.

    Args:
        digest: updated with the rows, if given.

    Raises:
        KafkaError: a row was not written. Others may have been.
    """
    rows = 0
    pending: deque[PendingRecords] = deque()
    for batch in batches:
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        records = columns.records(batch)
        pending.append(sink.send(records, columns.topic))
        if digest is not None:
            digest.add(records, columns.topic)
        # A failure ends the task soon, not after many more rows that have to be written again.
        while pending and pending[0].done():
            pending.popleft().result()
    while pending:
        pending.popleft().result()
    return rows
