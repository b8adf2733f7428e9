"""What ``send_arrow()`` gives back: one future for all rows, made of the deliveries of the batches they travel in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from kadence.clock import Seconds, to_ms
from kadence.errors import KafkaError, KafkaTimeoutError, RowsNotWrittenError
from kadence.producer.futures import Delivery, at_home, call, check_may_wait
from kadence.types import TopicPartition

__all__ = ["ArrowDelivery", "ArrowSummary", "Share", "WrittenRows"]

_NAMED_ROWS = 5
"""How many rows the message of an error names."""


class WrittenRows(NamedTuple):
    """The rows of one `Producer.send_arrow` in one partition.

    Attributes:
        rows: how many. first_offset, last_offset: where the first and the last of them lie; -1 when the broker did not
            say (acks=0, or a retry of a batch it already had). Records of others may lie between them.
    """

    rows: int
    first_offset: int
    last_offset: int


class ArrowSummary(NamedTuple):
    """The result of one `Producer.send_arrow`.

    Attributes:
        rows: how many were written. partitions: where.
    """

    rows: int
    partitions: Mapping[TopicPartition, WrittenRows]


class Share(NamedTuple):
    """Rows that travel in one batch.

    Attributes:
        delivery: the batch's. first: index of the first row among its records. length: how many rows follow each other.
        rows: gives their numbers in the data; called only for errors.
    """

    delivery: Delivery
    first: int
    length: int
    rows: Callable[[], Sequence[int]]


class ArrowDelivery:
    """The delivery of all rows of one `Producer.send_arrow`, to come. The methods are those of a future.

    It can be awaited, too, on any event loop: ``summary = await delivery``.
    """

    __slots__ = ("_gate", "_shares", "rows")

    def __init__(self, rows: int, shares: Sequence[Share], gate: threading.Condition) -> None:
        self.rows: int = rows
        """How many rows were handed over."""
        self._shares = shares
        self._gate = gate

    def __await__(self) -> Generator[Any, None, ArrowSummary]:
        for delivery in {id(share.delivery): share.delivery for share in self._shares}.values():
            if not delivery.done:
                yield from delivery.decided()
        return self.result()

    def done(self) -> bool:
        """Whether every row was acknowledged or has failed."""
        return all(share.delivery.done for share in self._shares)

    def result(self, timeout: Seconds | None = None) -> ArrowSummary:
        """Wait until every row is decided.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds (None = no limit; ``delivery.timeout.ms`` bounds
                it). The rows may still be delivered.
            RowsNotWrittenError: some rows were not written; it says which, why, and what was written.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._written()

    def exception(self, timeout: Seconds | None = None) -> RowsNotWrittenError | None:
        """Wait, and give the error instead of raising it; None when every row was written.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds.
        """
        if not self.done():
            check_may_wait(self._gate)
            wait_ms = to_ms(timeout)
            seconds = None if wait_ms is None else min(wait_ms / 1000, threading.TIMEOUT_MAX)
            with self._gate:
                if not self._gate.wait_for(self.done, seconds):
                    waiting = sum(share.length for share in self._shares if not share.delivery.done)
                    raise KafkaTimeoutError(
                        f"{waiting} of {self.rows} rows were not acknowledged within {timeout} s; "
                        "they are still on their way"
                    )
        failed = self._failed()
        return _error(self.rows, failed, self._written()) if failed else None

    def _written(self) -> ArrowSummary:
        found: dict[TopicPartition, WrittenRows] = {}
        for share in self._shares:
            tp = TopicPartition(share.delivery.topic, share.delivery.partition)
            for span in share.delivery.spans(share.first, share.length):
                if span.error is not None:
                    continue
                last = span.offset + span.length - 1 if span.offset >= 0 else -1
                before = found.get(tp)
                if before is None:
                    found[tp] = WrittenRows(span.length, span.offset, last)
                else:
                    found[tp] = WrittenRows(before.rows + span.length, before.first_offset, last)
        return ArrowSummary(sum(each.rows for each in found.values()), found)

    def _failed(self) -> list[tuple[TopicPartition, list[int], KafkaError]]:
        """The rows that failed, with what they failed of, in the order of the rows."""
        failed = []
        for share in self._shares:
            tp = TopicPartition(share.delivery.topic, share.delivery.partition)
            for span in share.delivery.spans(share.first, share.length):
                if span.error is not None:
                    start = span.first - share.first
                    failed.append((tp, list(share.rows()[start : start + span.length]), span.error))
        return sorted(failed, key=lambda each: each[1][0])

    def add_done_callback(self, callback: Callable[[ArrowDelivery], object]) -> None:
        """Call ``callback(self)`` when every row is decided: on the network thread, or now and here if all are already.

        It must be quick, as nothing is sent meanwhile; what it raises is logged. Of an `AsyncProducer` it is called on
        the loop.
        """
        callback = at_home(self._gate, callback)
        deliveries = {id(share.delivery): share.delivery for share in self._shares}
        left = len(deliveries)

        def one_is_decided(_: object) -> None:
            nonlocal left
            with self._gate:
                left -= 1
                is_last = left == 0
            if is_last:
                call(callback, self)

        for delivery in deliveries.values():
            delivery.add_callback(one_is_decided, self)
        if not deliveries:
            call(callback, self)

    def cancel(self) -> bool:
        """Always False: rows that were handed over cannot be called back."""
        return False

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def running(self) -> bool:
        """Whether some rows are still undecided."""
        return not self.done()

    def __repr__(self) -> str:
        done = sum(share.length for share in self._shares if share.delivery.done)
        return f"<ArrowDelivery {done} of {self.rows} rows decided>"


def _error(
    rows: int, failed: list[tuple[TopicPartition, list[int], KafkaError]], written: ArrowSummary
) -> RowsNotWrittenError:
    by_partition: dict[TopicPartition, list[int]] = {}
    for tp, numbers, _ in failed:
        by_partition.setdefault(tp, []).extend(numbers)
    tp, numbers, cause = failed[0]
    count = sum(map(len, by_partition.values()))
    named = ", ".join(map(str, numbers[:_NAMED_ROWS])) + (", ..." if len(numbers) > _NAMED_ROWS else "")
    error = RowsNotWrittenError(
        f"{count} of {rows} rows were not written, in {len(by_partition)} partitions; row {named} for {tp}: {cause}",
        failed=by_partition,
        written=written,
    )
    error.retriable = all(each.retriable for _, _, each in failed)
    error.__cause__ = cause
    return error
