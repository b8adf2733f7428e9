"""Records on their way to a request: one queue of batches per partition, under a bound of memory.

Application threads append, the network thread drains; both hold the producer's lock while they do. Nothing here
takes a lock, blocks or reads a clock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from kadence.clock import FOREVER, add_ms
from kadence.errors import KafkaError
from kadence.producer.futures import Delivery, RecordFuture
from kadence.types import TopicPartition

__all__ = ["Accumulator", "Batch", "Header", "estimated_size"]

Header = tuple[str, bytes | None]

_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21
_HEADER_OVERHEAD = 10


def estimated_size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Most bytes that a record can take in an uncompressed batch: Kafka's bound on its varints, and the data."""
    size = _RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, data in headers:
        # A character of a header name takes at most four bytes of UTF-8.
        size += _HEADER_OVERHEAD + len(name) * 4 + (0 if data is None else len(data))
    return size


class Batch:
    """Records of one partition that travel together.

    Attributes:
        first: index of its first record in the delivery; above 0 for a later piece of a batch that was split.
        records: (timestamp, key, value, headers) of each, as `kadence.records.encode_batch` takes them.
        size: estimated uncompressed bytes. created: when its first record came. deadline: when it fails.
        attempts: how often it was sent. not_before: earliest time of the next attempt.
        producer_id, epoch, base_sequence: its identity at the broker once it has one; -1 before.
        encoded: its bytes, kept for retries: a repeated batch must be the same to be recognised.
        last_error: why the last attempt failed.
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "created",
        "deadline",
        "delivery",
        "encoded",
        "epoch",
        "first",
        "last_error",
        "not_before",
        "producer_id",
        "records",
        "size",
        "tp",
    )

    def __init__(self, tp: TopicPartition, created: int, deadline: int, gate: threading.Condition) -> None:
        self.tp = tp
        self.created = created
        self.deadline = deadline
        self.delivery = Delivery(tp.topic, tp.partition, gate)
        self.first = 0
        self.records: list[tuple[int, bytes | None, bytes | None, Sequence[Header]]] = []
        self.size = _BATCH_OVERHEAD
        self.attempts = 0
        self.not_before = 0
        self.producer_id = -1
        self.epoch = -1
        self.base_sequence = -1
        self.encoded: bytes | None = None
        self.last_error: KafkaError | None = None

    def __repr__(self) -> str:
        return (
            f"<Batch {self.tp} {len(self.records)} records {self.size} bytes "
            f"sequence {self.base_sequence} epoch {self.epoch} attempts {self.attempts}>"
        )


class Accumulator:
    """See the head of this file.

    Args:
        gate: the producer's condition; handed to the deliveries, and notified when memory is given back.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        gate: threading.Condition,
    ) -> None:
        self.gate = gate
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._buffer_memory = buffer_memory
        self._delivery_timeout_ms = delivery_timeout_ms
        self.waiting: dict[TopicPartition, deque[Batch]] = {}
        """Batches that were never sent, by partition, oldest first. A partition without any is not here."""
        self.incomplete: set[Batch] = set()
        """Every batch whose delivery is undecided, sent or not."""
        self.used_bytes = 0
        self.blocked = 0
        """How many callers wait for memory. Then lingering makes no sense."""
        self.flushing = 0
        """How many callers wait for everything to be sent."""

    def has_room(self, size: int) -> bool:
        """Whether a record of ``size`` bytes may come in. The first one always may, or it never could."""
        return self.used_bytes + size <= self._buffer_memory or not self.incomplete

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
        """Add a record; give its future, and whether the network thread has reason to look.

        It has when a batch was begun (its linger must be timed) or filled.
        """
        batches = self.waiting.get(tp)
        news = False
        if batches is None:
            self.waiting[tp] = batches = deque()
        if not batches or (batches[-1].size + size > self._batch_size and batches[-1].records):
            news = True
            batch = Batch(tp, now, add_ms(now, self._delivery_timeout_ms), self.gate)
            batches.append(batch)
            self.incomplete.add(batch)
            self.used_bytes += batch.size
        else:
            batch = batches[-1]
        future = RecordFuture(batch.delivery, len(batch.records), timestamp)
        batch.records.append((timestamp, key, value, headers))
        batch.size += size
        self.used_bytes += size
        return future, news or batch.size >= self._batch_size

    def ready_at(self, tp: TopicPartition) -> int:
        """When the oldest waiting batch of ``tp`` should be sent: at once if it is full or somebody waits for it."""
        batches = self.waiting[tp]
        oldest = batches[0]
        if len(batches) > 1 or oldest.size >= self._batch_size or self.blocked or self.flushing:
            return 0
        return add_ms(oldest.created, self._linger_ms)

    def take(self, tp: TopicPartition) -> Batch:
        """Remove and give the oldest waiting batch of ``tp``; from now on it takes no more records."""
        batches = self.waiting[tp]
        batch = batches.popleft()
        del self.waiting[tp]
        if batches:
            # To the end of the line: a partition that fills faster than it is sent must not starve others.
            self.waiting[tp] = batches
        return batch

    def expired(self, now: int) -> list[Batch]:
        """Remove and give the waiting batches whose time is over."""
        late = []
        for tp in list(self.waiting):
            # Batches of one partition are in the order of their deadlines.
            while tp in self.waiting and self.waiting[tp][0].deadline <= now:
                late.append(self.take(tp))
        return late

    def next_deadline(self) -> int:
        """When the first waiting batch expires."""
        return min((batches[0].deadline for batches in self.waiting.values()), default=FOREVER)

    def split(self, batch: Batch) -> tuple[Batch, Batch]:
        """Cut a sent batch in two that share its delivery, its deadline and its range of sequence numbers."""
        middle = len(batch.records) // 2
        pieces = []
        for first, last in ((0, middle), (middle, len(batch.records))):
            piece = Batch(batch.tp, batch.created, batch.deadline, self.gate)
            piece.delivery = batch.delivery
            piece.first = batch.first + first
            piece.records = batch.records[first:last]
            piece.size += sum(estimated_size(key, value, headers) for _, key, value, headers in piece.records)
            piece.attempts = batch.attempts
            piece.last_error = batch.last_error
            if batch.base_sequence >= 0:
                piece.producer_id, piece.epoch = batch.producer_id, batch.epoch
                piece.base_sequence = (batch.base_sequence + first) & 0x7FFFFFFF
            pieces.append(piece)
        batch.delivery.outstanding += 1
        self.incomplete.discard(batch)
        self.used_bytes -= batch.size
        self.incomplete.update(pieces)
        self.used_bytes += pieces[0].size + pieces[1].size
        return pieces[0], pieces[1]

    def is_decided(self, batch: Batch) -> bool:
        """Whether the fate of a batch is known to those who wait for it."""
        return batch not in self.incomplete

    def release(self, batch: Batch) -> None:
        """A batch's delivery is decided: its memory is free."""
        if batch in self.incomplete:
            self.incomplete.discard(batch)
            self.used_bytes -= batch.size
            self.gate.notify_all()

    def drop_all(self) -> list[Batch]:
        """Forget everything undecided, sent or not, and give it: the producer is closing by force."""
        dropped = sorted(self.incomplete, key=lambda batch: batch.created)
        self.incomplete.clear()
        self.waiting.clear()
        self.used_bytes = 0
        self.gate.notify_all()
        return dropped

    def __repr__(self) -> str:
        return (
            f"<Accumulator {len(self.incomplete)} batches, {self.used_bytes} of {self._buffer_memory} bytes, "
            f"{len(self.waiting)} partitions waiting>"
        )
