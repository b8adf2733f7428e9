"""The future that ``send_arrow()`` returns: one for all rows, made of the deliveries of their batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from kadence.client.gate import Gate
from kadence.clock import Seconds, to_ms
from kadence.errors import KafkaError, KafkaTimeoutError, RowsNotWrittenError
from kadence.errors.copies import own_copy
from kadence.producer.futures import Delivery, at_home, call, check_may_wait
from kadence.producer.like_futures import LikeFuture
from kadence.types import TopicPartition

__all__ = ["ArrowDelivery", "ArrowSummary", "Share", "WrittenRows"]

_NAMED_ROWS = 5
"""The number of rows that an error message names."""


class WrittenRows(NamedTuple):
    """The rows that one `Producer.send_arrow` wrote to one partition.

    Attributes:
        rows: their number.
        first_offset, last_offset: the offsets of the first and the last of them; -1 if the broker did not say (with
            acks=0; rarely after a retry). Records of other producers may lie between them.
    """

    rows: int
    first_offset: int
    last_offset: int


class ArrowSummary(NamedTuple):
    """The result of one `Producer.send_arrow`.

    Attributes:
        rows: the number of rows that were written. partitions: the rows of each partition.
    """

    rows: int
    partitions: Mapping[TopicPartition, WrittenRows]


class Share(NamedTuple):
    """Rows that are sent in one batch.

    Attributes:
        delivery: the batch's. first: index of the first row among its records. length: the number of consecutive rows.
        rows: returns their numbers in the data; called only for errors.
    """

    delivery: Delivery
    first: int
    length: int
    rows: Callable[[], Sequence[int]]


_Failure = tuple[TopicPartition, list[int], KafkaError]
"""Rows of one partition that failed for the same reason."""


class ArrowDelivery(LikeFuture[ArrowSummary]):
    """The future of all rows of one `Producer.send_arrow`. It has the methods of `concurrent.futures.Future`.

    `concurrent.futures.wait`, `concurrent.futures.as_completed` and `asyncio.wrap_future` take it, too.
    It can also be awaited, on any event loop: ``summary = await delivery``.
    """

    __slots__ = ("_gate", "_shares", "rows")

    def __init__(self, rows: int, shares: Sequence[Share], gate: Gate) -> None:
        self.rows: int = rows
        """The number of rows that were queued."""
        self._shares = shares
        self._gate = gate

    def __await__(self) -> Generator[Any, None, ArrowSummary]:
        self._is_awaited()
        for delivery in {id(share.delivery): share.delivery for share in self._shares}.values():
            if not delivery.done:
                yield from delivery.decided()
        failed = []
        for share in self._shares:
            if found := self._failures_of(share):
                failed += found
                # Error rows are collected share by share: let other tasks run between two.
                yield
        if failed:
            raise _error(self.rows, failed, self._written())
        return self._written()

    def done(self) -> bool:
        """True if every row was acknowledged or has failed."""
        return all(share.delivery.done for share in self._shares)

    def result(self, timeout: Seconds | None = None) -> ArrowSummary:
        """Wait until every row is acknowledged or has failed.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds (None = no limit; ``delivery.timeout.ms`` bounds
                it). The rows may still be delivered.
            RowsNotWrittenError: some rows were not written; the error has their numbers, cause and the written rows.
        """
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                # The traceback leads to this frame, which must not lead back.
                del error
        return self._written()

    def exception(self, timeout: Seconds | None = None) -> RowsNotWrittenError | None:
        """Wait, and return the error instead of raising it; None if every row was written.

        Raises:
            KafkaTimeoutError: not decided within ``timeout`` seconds.
        """
        if not self.done():
            self._gate.check_entry()
            check_may_wait(self._gate)
            wait_ms = to_ms(timeout)
            seconds = None if wait_ms is None else min(wait_ms / 1000, threading.TIMEOUT_MAX)
            with self._gate:
                if seconds != 0:
                    self._is_awaited()
                if not self._gate.wait_for(self.done, seconds):
                    waiting = sum(share.length for share in self._shares if not share.delivery.done)
                    raise KafkaTimeoutError(
                        f"{waiting} of {self.rows} rows were not acknowledged within {timeout} s; "
                        "they are still on their way"
                    )
        failed = [each for share in self._shares for each in self._failures_of(share)]
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

    def _failures_of(self, share: Share) -> list[_Failure]:
        """The rows of a share that failed, each with its error."""
        tp = TopicPartition(share.delivery.topic, share.delivery.partition)
        failed = []
        for span in share.delivery.spans(share.first, share.length):
            if span.error is not None:
                start = span.first - share.first
                failed.append((tp, list(share.rows()[start : start + span.length]), span.error))
        return failed

    def add_done_callback(self, callback: Callable[[ArrowDelivery], object]) -> None:
        """Call ``callback(self)`` when every row is acknowledged or has failed.

        It runs on the network thread, or at once on this thread if that is so already; with an `AsyncProducer`, on
        the event loop. It must be quick, because the network thread sends nothing meanwhile; its exceptions are
        logged.
        """
        self._gate.check_entry()
        self._when_done(at_home(self._gate, callback))

    def _when_done(self, notify: Callable[[Any], object]) -> None:
        deliveries = {id(share.delivery): share.delivery for share in self._shares}
        when_last = _Last(notify, len(deliveries), self._gate)
        for delivery in deliveries.values():
            delivery.when_done(when_last, self)
        if not deliveries:
            call(notify, self)

    def _no_longer(self, notify: Callable[[Any], object]) -> None:
        same = _Last(notify, 0, self._gate)
        for share in self._shares:
            share.delivery.no_longer(same, self)

    def _is_awaited(self) -> None:
        with self._gate:
            for share in self._shares:
                share.delivery.awaited()

    def cancel(self) -> bool:
        """Always False: queued rows cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Always False."""
        return False

    def running(self) -> bool:
        """True if some rows are neither acknowledged nor failed yet."""
        return not self.done()

    def __repr__(self) -> str:
        done = sum(share.length for share in self._shares if share.delivery.done)
        return f"<ArrowDelivery {done} of {self.rows} rows decided>"


class _Last:
    """Calls ``notify`` when the last of some deliveries is decided. Equal to another one with the same ``notify``.

    Args:
        left: the number of undecided deliveries.
    """

    __slots__ = ("_gate", "_left", "_notify")

    def __init__(self, notify: Callable[[Any], object], left: int, gate: Gate) -> None:
        self._notify = notify
        self._left = left
        self._gate = gate

    def __call__(self, future: ArrowDelivery) -> None:
        with self._gate:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            call(self._notify, future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and self._notify == other._notify

    def __hash__(self) -> int:
        return hash(self._notify)


def _error(rows: int, failed: list[_Failure], written: ArrowSummary) -> RowsNotWrittenError:
    failed = sorted(failed, key=lambda each: each[1][0])
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
    error.__cause__ = own_copy(cause)
    return error
