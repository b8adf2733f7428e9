"""Records on their way to a request: one queue of batches per partition, under a bound of memory.

Application threads append, the network thread drains; both hold the producer's lock while they do. Nothing here
takes a lock, blocks or reads a clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kadence._native.append import FastAppender, OpenBatch, estimated_size
from kadence.client.gate import Gate
from kadence.clock import FOREVER, add_ms, wall_ms
from kadence.errors import KafkaError
from kadence.logs import logger
from kadence.producer.futures import Delivery, RecordFuture
from kadence.producer.measures import Measures
from kadence.records import BatchBuilder
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.producer.direct_sends import DirectSends

__all__ = ["Accumulator", "Batch", "Header"]

_log = logger("kadence.producer")

Header = tuple[str, bytes | None]

_REBUILD_ABOVE: Final = 64
"""A heap of so many entries is rebuilt when most of them belong to batches that are gone."""


class Batch(OpenBatch):
    """Consecutive records of one partition that are sent together."""

    __slots__ = ()

    # Of the base class, here with its type.
    builder: BatchBuilder

    def __repr__(self) -> str:
        return (
            f"<Batch {self.tp} {self.count} records {self.size} bytes "
            f"sequence {self.base_sequence} epoch {self.epoch} attempts {self.attempts}>"
        )


class Accumulator(FastAppender):
    """Collects records into one queue of batches per partition, within `buffer.memory`.

    Args:
        gate: the producer's condition; passed to the deliveries, and notified when memory becomes free.
        largest: most bytes of one record. wall_ms: the time of records that have none.
    """

    # Of the base class, here with their types.
    direct: DirectSends | None
    incomplete: set[Batch]
    unnotified: set[Delivery]
    waiting: dict[TopicPartition, deque[Batch]]

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        gate: Gate,
        largest: int = 2**31 - 1,
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        super().__init__(
            gate,
            RecordFuture,
            batch_size,
            buffer_memory,
            min(largest, buffer_memory),
            wall_ms,
            delivery_timeout_ms,
            Delivery,
            BatchBuilder,
            Batch,
        )
        self._linger_ms = linger_ms
        if linger_ms:
            self.expedite = self._expedite
        self._ready: dict[TopicPartition, None] = {}
        """Of those partitions, the ones whose oldest batch is full or has lingered. The others are not visited: there
        may be thousands."""
        self._lingers: list[tuple[int, int, TopicPartition]] = []
        """A heap for the others: (end of the oldest batch's linger, serial number, partition). It also has entries of
        batches that are gone."""
        self._serial = 0
        self.blocked = 0
        """The number of callers that wait for memory. While there are any, batches do not linger."""
        self.flushing = 0
        """The number of callers that wait for everything to be sent."""
        self._awaited: set[Delivery] = set()
        """Of the batches that were never sent, those that a caller waits for."""
        self.wakeup: Callable[[], None] = lambda: None
        """Wakes the network thread."""
        self.measures = Measures()

    def send_by(self, direct: DirectSends) -> None:
        """Batches may be sent on the thread that appends or awaits them. Before the first one."""
        self.direct = direct
        if not self._linger_ms:
            self.expedite = direct.awaited

    def has_room(self, size: int) -> bool:
        """True if a record of ``size`` bytes fits. The first record always does, or it could never be sent."""
        return self.used_bytes + size <= self.buffer_memory or not self.incomplete

    def append(
        self,
        tp: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        size: int,
        now: int,
    ) -> tuple[RecordFuture, bool]:
        """Add a record; return its future, and whether to call `announce`.

        The network thread must know of a batch that was begun (its linger must be timed) or filled.
        """
        try:
            batch, is_news = self.batch_for(tp, size, now)
            index = batch.count
            batch.builder.append(timestamp, key, value, headers)
        except BaseException:
            # No memory, or Ctrl-C.
            self.unbegin_empty(tp)
            raise
        batch.size += size
        self.used_bytes += size
        if batch.size >= batch.limit:
            self.filled(tp)
            is_news = True
        return RecordFuture(batch.delivery, index, timestamp), is_news or self.has_news

    def announce(self) -> None:
        """Wake the network thread for what was queued."""
        self.wakeup()
        self.has_news = False

    def filled(self, tp: TopicPartition) -> None:
        """A partition's batch has reached its limit: it does not linger."""
        if tp in self.waiting:
            self._ready[tp] = None

    def batch_for(self, tp: TopicPartition, size: int, now: int) -> tuple[Batch, bool]:
        """Return the batch for a record of ``size`` bytes, and whether it was begun for this record."""
        batches = self.waiting.get(tp)
        last = batches[-1] if batches else None
        # A batch that was sent directly is still in line where a signal has interrupted that.
        is_new = last is None or last.builder.is_sealed or (last.size + size > last.limit and last.count > 0)
        if last is None or is_new:
            if last is not None:
                last.is_open = False
            last = self.new_batch(tp, now)
            self.queue(last)
        else:
            self._fill(last)
        return last, is_new

    def queue(self, batch: Batch) -> None:
        """A batch was begun, behind the others of its partition."""
        self.has_news = True
        try:
            batches = self.waiting.get(batch.tp)
            if batches is None:
                # In one step: a signal may come before or after it.
                self.waiting[batch.tp] = deque((batch,))
            else:
                batches.append(batch)
            self._arrange(batch.tp)
            self.hold(batch)
            self._fill(batch)
        except BaseException:
            # Ctrl-C: a batch that is here and not arranged would never be sent, nor what is added to it.
            self._unbegin(batch)
            raise

    def _fill(self, batch: Batch) -> None:
        """The next records of its partition go into this batch."""
        place = self.places.get(batch.tp.topic)
        if place is not None and batch.tp.partition < place.count:
            place.open_batches[batch.tp.partition] = batch

    def unbegin_empty(self, tp: TopicPartition) -> None:
        """Forget the last batch of ``tp`` if it was begun for a record that was not added."""
        batches = self.waiting.get(tp)
        if batches and not batches[-1].count:
            self._unbegin(batches[-1])

    def _unbegin(self, batch: Batch) -> None:
        """Forget a batch that was begun, the last of its partition."""
        batch.is_open = False
        batches = self.waiting.get(batch.tp)
        if batches is not None and batches[-1] is batch:
            if len(batches) == 1:
                self._ready.pop(batch.tp, None)
                del self.waiting[batch.tp]
            else:
                batches.pop()
        place = self.places.get(batch.tp.topic)
        if place is not None and batch.tp.partition < place.count:
            place.open_batches[batch.tp.partition] = None
        self._never_awaited(batch)
        self.release(batch)
        self.unnotified.discard(batch.delivery)

    def _expedite(self, delivery: Delivery) -> None:
        """A caller waits for a batch that was never sent.

        It goes at once where everything undecided is such a batch: nothing would come to fill it. Else it lingers until
        the others are acknowledged, so that programs which wait for many records at once keep their batches.
        """
        self._awaited.add(delivery)
        direct = self.direct
        if direct is not None:
            direct.awaited(delivery)
        if self._is_all_awaited and (direct is None or not direct.send_awaited()):
            self.wakeup()

    @property
    def _is_all_awaited(self) -> bool:
        """True if no batch is on its way, and a caller waits for each of the others."""
        return bool(self._awaited) and len(self._awaited) == len(self.incomplete)

    def _never_awaited(self, batch: Batch) -> None:
        """Whether a caller waits for a batch makes no difference any more."""
        batch.delivery.expedite = None
        self._awaited.discard(batch.delivery)

    def ready_at(self, tp: TopicPartition) -> int:
        """The time to send the oldest batch of ``tp``: at once if it is full or a caller waits for it."""
        batches = self.waiting[tp]
        oldest = batches[0]
        if len(batches) > 1 or oldest.size >= oldest.limit or not oldest.lingers:
            return 0
        if self.blocked or self.flushing:
            return 0
        return add_ms(oldest.created, self._linger_ms)

    def _arrange(self, tp: TopicPartition) -> None:
        """Update a partition with another oldest batch, or one more: it is ready now, or after its linger."""
        batches = self.waiting[tp]
        oldest = batches[0]
        if len(batches) > 1 or oldest.size >= oldest.limit or not self._linger_ms:
            self._ready[tp] = None
            return
        self._serial += 1
        heapq.heappush(self._lingers, (add_ms(oldest.created, self._linger_ms), self._serial, tp))
        if len(self._lingers) > _REBUILD_ABOVE and len(self._lingers) > 2 * len(self.waiting):
            self._lingers = [each for each in self._lingers if self._is_lingering(each)]
            heapq.heapify(self._lingers)

    def _is_lingering(self, entry: tuple[int, int, TopicPartition]) -> bool:
        at, _, tp = entry
        batches = self.waiting.get(tp)
        return (
            batches is not None
            and tp not in self._ready
            and add_ms(batches[0].created, self._linger_ms) == at
        )

    def ready(self, now: int) -> Collection[TopicPartition]:
        """The partitions whose oldest batch should be sent."""
        if self.blocked or self.flushing:
            return self.waiting
        if self._is_all_awaited:
            for tp, batches in self.waiting.items():
                batches[0].lingers = False
                self._ready[tp] = None
        while self._lingers and self._lingers[0][0] <= now:
            entry = heapq.heappop(self._lingers)
            if self._is_lingering(entry):
                self._ready[entry[2]] = None
        return self._ready

    def next_ready(self) -> int:
        """The time at which the next of the other partitions is ready; FOREVER if there is none."""
        if self.blocked or self.flushing:
            return FOREVER
        while self._lingers and not self._is_lingering(self._lingers[0]):
            heapq.heappop(self._lingers)
        return self._lingers[0][0] if self._lingers else FOREVER

    def behind(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield each partition with more than one batch, and the number of batches beyond the first."""
        for tp in self._ready:
            if (more := len(self.waiting[tp]) - 1) > 0:
                yield tp, more

    def take(self, tp: TopicPartition) -> Batch:
        """Remove and return the oldest waiting batch of ``tp``; it takes no more records from now on."""
        batches = self.waiting[tp]
        batch = batches[0]
        batch.is_open = False
        self._never_awaited(batch)
        place = self.places.get(tp.topic)
        if place is not None and tp.partition < place.count and place.open_batches[tp.partition] is batch:
            place.open_batches[tp.partition] = None
        if batch.size > batch.limit // 8:
            self._busy.add(tp)
        else:
            self._busy.discard(tp)
        # A signal may end it at any point on the application's thread, and leaves nothing that is no batch.
        self._ready.pop(tp, None)
        del self.waiting[tp]
        batches.popleft()
        if batches:
            # To the end of the line: a partition that fills faster than it is sent must not starve others.
            self.waiting[tp] = batches
            self._arrange(tp)
        return batch

    def forget(self, topics: set[str]) -> None:
        """Drop the batch limits and sizes that were learnt for these topics."""
        self._busy = {tp for tp in self._busy if tp.topic not in topics}
        for topic in topics:
            self._limits.pop(topic, None)

    def expired(self, now: int) -> list[Batch]:
        """Remove and return the waiting batches whose delivery timeout is over."""
        late = []
        for tp in list(self.waiting):
            # Batches of one partition are in the order of their deadlines.
            while tp in self.waiting and self.waiting[tp][0].deadline <= now:
                late.append(self.take(tp))
        return late

    def next_deadline(self) -> int:
        """The earliest deadline of a waiting batch."""
        return min((batches[0].deadline for batches in self.waiting.values()), default=FOREVER)

    def pieces_of(self, batch: Batch) -> tuple[Batch, Batch]:
        """Split a sent batch into two that share its delivery, its deadline and its range of sequence numbers.

        Called without the lock: encoding takes long, and a batch that was sent takes no more records.
        """
        middle = batch.count // 2
        pieces = []
        for first, last in ((0, middle), (middle, batch.count)):
            records = batch.builder.records_between(first, last)
            builder = BatchBuilder()
            builder.extend(records)
            piece = Batch(batch.tp, batch.created, batch.deadline, builder, batch.delivery, batch.limit)
            piece.is_open = False
            piece.first = batch.first + first
            piece.size += sum(estimated_size(key, value, headers) for _, key, value, headers in records)
            piece.attempts = batch.attempts
            piece.last_error = batch.last_error
            if batch.base_sequence >= 0:
                piece.producer_id, piece.epoch = batch.producer_id, batch.epoch
                piece.base_sequence = (batch.base_sequence + first) & 0x7FFFFFFF
            pieces.append(piece)
        return pieces[0], pieces[1]

    def refused(self, batch: Batch) -> None:
        """A broker found a batch too large: the topic's next ones are half as large.

        They do not grow again while the topic is in use: a new ``max.message.bytes`` is not known to the producer, and
        each try of a larger batch would cost a request and hold up its partition.
        """
        topic, limit = batch.tp.topic, batch.size // 2
        if limit >= self._limits.get(topic, self.batch_size):
            return
        self._limits[topic] = limit
        for tp, batches in self.waiting.items():
            if tp.topic == topic:
                batches[-1].limit = limit
                if batches[-1].size >= limit:
                    self.filled(tp)

    def split(self, batch: Batch, pieces: tuple[Batch, Batch]) -> None:
        """Replace a batch by its pieces."""
        batch.delivery.outstanding += 1
        self.incomplete.discard(batch)
        self.used_bytes -= batch.size
        self.incomplete.update(pieces)
        self.used_bytes += pieces[0].size + pieces[1].size

    def is_decided(self, batch: Batch) -> bool:
        """True if the outcome of a batch is decided, for its futures."""
        return batch not in self.incomplete

    @property
    def undecided(self) -> int:
        """The number of undecided records."""
        return sum(batch.count for batch in self.incomplete)

    def release(self, batch: Batch) -> None:
        """A batch's delivery is decided: free its memory."""
        if batch in self.incomplete:
            self.incomplete.discard(batch)
            self.unnotified.add(batch.delivery)
            self.used_bytes -= batch.size
            self.gate.notify_all()

    def lose_all(self, error: KafkaError) -> list[Batch]:
        """Forget everything undecided, sent or not, and return it, to be failed with ``error``. Logs the number."""
        with self.gate:
            count = self.undecided
            dropped = sorted(self.incomplete, key=lambda batch: batch.created)
            for batch in dropped:
                batch.is_open = False
            self.unnotified.update(batch.delivery for batch in dropped)
            self.incomplete.clear()
            self.waiting.clear()
            self._ready.clear()
            self._lingers.clear()
            self._awaited.clear()
            self.used_bytes = 0
            self.gate.notify_all()
        if count:
            _log.warning("records lost: %d in %d batches: %s", count, len(dropped), error)
        return dropped

    def __repr__(self) -> str:
        return (
            f"<Accumulator {len(self.incomplete)} batches, {self.used_bytes} of {self.buffer_memory} bytes, "
            f"{len(self.waiting)} partitions waiting>"
        )
