"""The rows of one `Producer.send_arrow`, from columns to the batches of their partitions.

First every row is checked and gets its lane, which is one partition of one topic. Then rows are encoded into the
batches that their partitions are filling, the same ones that ``send()`` fills: many rows in one step, which ends when
a batch must be begun or memory waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

from kadence._native.append import OpenBatch, TopicInfo
from kadence.client.waits import BREATH, Waits
from kadence.errors import KafkaError, KafkaTimeoutError, SerializationError
from kadence.producer.accumulator import Accumulator
from kadence.producer.arrow import Chunk, chunks_of
from kadence.producer.arrow_delivery import ArrowDelivery, Share
from kadence.producer.send_checks import SendChecks
from kadence.records import MOST_HEADERS
from kadence.types import TopicPartition

__all__ = ["ArrowSending"]

_STEP: Final = 4_096
"""Rows at most that are encoded while the producer's lock is held; the network thread may wait for it."""


class ArrowSending:
    """Sends the rows of one `Producer.send_arrow` call.

    Args:
        now_ms: the clock.
    """

    def __init__(
        self,
        send_checks: SendChecks,
        accumulator: Accumulator,
        now_ms: Callable[[], int],
        data: Any,
        topic: str | None,
    ) -> None:
        self._send_checks = send_checks
        self._accumulator = accumulator
        self._now_ms = now_ms
        self._topic = topic
        self._count, self._unread = chunks_of(data, with_topic=topic is None)
        self._chunks: list[Chunk] = []
        self._numbers = memoryview(bytearray(4 * self._count)).cast("i")
        """The lane of each row."""
        self._places: dict[str, TopicInfo] = {}
        self._bases: dict[str, int] = {}
        self._lanes: list[TopicPartition] = []
        self._shares: list[list[Any]] = []

    def run(self) -> Waits[ArrowDelivery]:
        """Check all rows, then queue them."""
        self._send_checks.check()
        for chunk in self._unread:
            self._chunks.append(chunk)
            yield from self._check(chunk)
        batches: list[OpenBatch | None] = [None] * len(self._lanes)
        last: list[list[Any] | None] = [None] * len(self._lanes)
        for chunk in self._chunks:
            yield from self._queue(chunk, batches, last)
        shares = [
            Share(delivery, first, length, partial(_rows_of, self._numbers, lane, row, length))
            for lane, delivery, first, length, row in self._shares
        ]
        return ArrowDelivery(self._count, shares, self._send_checks.gate)

    # ------------------------------------------------------------ checking

    def _check(self, chunk: Chunk) -> Waits[None]:
        """Assign every row of a chunk its lane; raise the error of the first bad row."""
        names = chunk.topics if self._topic is None else [self._topic]
        numbers = self._part(chunk)
        with self._send_checks.gate:
            yield BREATH
        while True:
            for name in names:
                if name not in self._places:
                    place = yield from self._send_checks.place_of(name, self._send_checks.block_until())
                    self._learn(name, place)
            places = [self._places[name] for name in names]
            bases = [self._bases[name] for name in names]
            fault = chunk.rows.assign(places, bases, numbers, self._accumulator.largest)
            if fault is None:
                return
            yield from self._judge(chunk, names, *fault)

    def _part(self, chunk: Chunk) -> memoryview:
        return self._numbers[chunk.first_row : chunk.first_row + chunk.rows.count]

    def _learn(self, topic: str, place: TopicInfo) -> None:
        """Assign lanes to the partitions of a topic; if it has grown, new ones, and earlier rows keep theirs."""
        self._places[topic] = place
        self._bases[topic] = len(self._lanes)
        self._lanes += place.partitions

    def _judge(self, chunk: Chunk, names: list[str], row: int, fault: str) -> Waits[None]:
        """Raise the error of a row; return if its topic has grown, so that the row is valid now."""
        number = chunk.first_row + row
        if fault == "topic":
            raise SerializationError(
                f"row {number} has no topic (the first is row 0): set it in the column topic. A topic passed to "
                "send_arrow() is that of all rows"
            )
        if fault == "header":
            raise SerializationError(f"row {number} has a header without a name")
        if fault == "headers":
            raise SerializationError(
                f"row {number} has more than {MOST_HEADERS:,} headers, and consumers refuse such records"
            )
        if fault == "damage":
            raise SerializationError(
                f"row {number}: the columns are damaged: an offset in them is out of range; "
                "data.validate(full=True) finds it"
            )
        topic = names[chunk.rows.topic(row) or 0]
        if fault == "size":
            raise self._send_checks.too_large(topic, chunk.rows.estimate(row), f"row {number}")
        partition = chunk.rows.partition(row)
        assert partition is not None, "a row without a partition gets one"
        until = self._send_checks.block_until()
        known = self._places[topic]
        grown = yield from self._send_checks.with_partition(topic, known, partition, until, f"row {number}: ")
        self._learn(topic, grown)

    # ------------------------------------------------------------ queueing

    def _queue(
        self, chunk: Chunk, batches: list[OpenBatch | None], last: list[list[Any] | None]
    ) -> Waits[None]:
        """Encode the rows of a chunk, step by step."""
        rows, numbers = chunk.rows, self._part(chunk)
        accumulator, send_checks = self._accumulator, self._send_checks
        row = 0
        while row < rows.count:
            lane, size = numbers[row], rows.estimate(row)
            if size < 0:
                self._refuse_changed(chunk.first_row + row)
            with send_checks.gate:
                try:
                    yield BREATH
                    if send_checks.must_wait_for_room(size):
                        yield from self._wait_for_room(size, chunk.first_row + row)
                except GeneratorExit:
                    self._cut_short(chunk.first_row + row, KafkaError("send_arrow() was interrupted"))
                    raise
                if not accumulator.is_usable:
                    # The producer was closed, or the transaction failed, since the row before.
                    send_checks.check()
                try:
                    batches[lane], is_new = accumulator.batch_for(self._lanes[lane], size, self._now_ms())
                    row, segments = rows.hand_over(
                        accumulator, numbers, row, batches, accumulator.wall_ms(), _STEP
                    )
                except BaseException:
                    accumulator.unbegin_empty(self._lanes[lane])
                    raise
                for filled, batch, *_ in segments:
                    if batch.size >= batch.limit:
                        accumulator.filled(self._lanes[filled])
            for lane, batch, first, length, begin in segments:
                share = last[lane]
                if share is not None and share[1] is batch.delivery and share[2] + share[3] == first:
                    share[3] += length
                else:
                    last[lane] = share = [lane, batch.delivery, first, length, chunk.first_row + begin]
                    self._shares.append(share)
            if is_new:
                self._accumulator.announce()
        # Batches that are not full linger; the time of some may be over.
        self._accumulator.announce()

    def _refuse_changed(self, number: int) -> NoReturn:
        error = SerializationError(
            f"row {number}: the columns were changed while they were being sent; {number} of {self._count} rows "
            "were queued, and may be written"
        )
        with self._send_checks.gate:
            self._cut_short(number, error)
        raise error

    def _wait_for_room(self, size: int, queued: int) -> Waits[None]:
        try:
            yield from self._send_checks.wait_for_room(size, self._send_checks.block_until())
        except KafkaTimeoutError as cause:
            if not queued:
                raise
            error = KafkaTimeoutError(
                f"{queued} of {self._count} rows were queued, and may be written; {cause}"
            )
            error.retriable = False
            self._cut_short(queued, error)
            raise error from cause

    def _cut_short(self, queued: int, error: KafkaError) -> None:
        """Fail the open transaction: a part of a table must not be committed. Under the lock."""
        if queued and self._send_checks.transactions is not None:
            self._send_checks.transactions.not_taken(error)
            self._accumulator.announce()


def _rows_of(numbers: memoryview, lane: int, row: int, count: int) -> list[int]:
    """The numbers of ``count`` rows of a lane, from ``row`` on."""
    found: list[int] = []
    while len(found) < count:
        if numbers[row] == lane:
            found.append(row)
        row += 1
    return found
