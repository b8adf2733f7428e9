"""A task of the sink: passes its rows to a producer, and waits until the brokers have acknowledged all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from kadence.spark.sink.columns import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Delivery", "RecordSink", "write_rows"]


class Delivery(Protocol):
    """Records that were handed over together."""

    def done(self) -> bool:
        """Whether all are acknowledged, or some will never be."""

    def result(self) -> object:
        """Wait for that.

        Raises:
            KafkaError: why records were not written, and of which partition.
        """


class RecordSink(Protocol):
    """The executor's writer: one producer, used for one task at a time."""

    def send(self, records: pa.RecordBatch, topic: str | None) -> Delivery:
        """Hand over records; blocks while too much is on its way. ``topic`` goes before their column."""

    def finish(self) -> None:
        """All rows of the task are acknowledged; in a transaction they count from now on.

        Raises:
            KafkaError: they do not.
        """

    def park(self) -> None:
        """End of the task."""

    def close(self) -> None:
        """Let go of connections and threads, and of what is on its way."""


def write_rows(batches: Iterator[pa.RecordBatch], columns: RecordColumns, sink: RecordSink) -> int:
    """Write all rows; returns their number once every one of them is acknowledged.

    Raises:
        KafkaError: a row was not written. Others may have been.
    """
    rows = 0
    pending: deque[Delivery] = deque()
    for batch in batches:
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        pending.append(sink.send(columns.records(batch), columns.topic))
        # A failure ends the task soon, not after hours of rows that have to be written again.
        while pending and pending[0].done():
            pending.popleft().result()
    while pending:
        pending.popleft().result()
    sink.finish()
    return rows
