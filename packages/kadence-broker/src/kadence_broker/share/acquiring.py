"""Gives records of a share-partition to a member: which, how many, and with which delivery counts (KIP-932, KIP-1206).

A read brings whole batches of the log. In the batch-optimized mode a member gets whole batches until it has
``max_records``, so up to a batch more; what was read for the first time becomes one batch in flight, or several of
about ``batch_size`` offsets, cut where the log's batches end. In the record-limit mode it gets at most ``max_records``
offsets; the rest of the batch is available to others.

Records that may be what makes members fail come with fewer others from half of their attempts on, and on their last
attempt alone, so that good records are not archived for a bad one's sake.

After Apache Kafka 4.4's SharePartition.acquire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kadence_broker.share.delivery import Delivery, InFlightBatch, RecordState
from kadence_broker.share.interface import ShareSettings
from kadence_broker.share.partition import SharePartition

__all__ = ["Acquired", "LogBatch", "Wish", "acquire"]

_FEWEST_BEFORE_SUSPICION: Final = 2


class LogBatch(NamedTuple):
    """The offsets of one batch that was read from the log, by its header."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Offsets that a member got, and the how-manieth delivery of them this is."""

    first: int
    last: int
    deliveries: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Wish:
    """What a member asks for.

    Attributes:
        max_records: how many offsets it wants of this partition.
        fetch_offset: where the read began: `SharePartition.next_offset` then.
    """

    member: str
    max_records: int
    fetch_offset: int
    batch_size: int
    is_record_limit: bool = False


def acquire(
    partition: SharePartition,
    now: int,
    wish: Wish,
    log: Sequence[LogBatch],
    settings: ShareSettings,
    aborted: Sequence[LogBatch] = (),
) -> tuple[list[Acquired], int]:
    """Give a member what it asks for of the batches ``log``, which were read for it.

    Args:
        aborted: those of ``log`` that belong to aborted transactions, for a group that reads committed records only:
            they are archived, and the member does not get them.

    Returns:
        what it got, and how many offsets that is as far as ``max_records`` is concerned.
    """
    if partition.is_fenced or wish.max_records <= 0 or not log or log[-1].last < partition.start_offset:
        return [], 0
    most, last = _bounds(partition, wish, log[-1].last, settings)
    if most <= 0:
        return [], 0
    acquiring = _Acquiring(partition, now, wish, log, settings, most, last)
    acquiring.run()
    if not aborted:
        return acquiring.result, acquiring.taken
    for each in aborted:
        partition.archive(each.first, each.last, _touched(partition, each), RecordState.ACQUIRED)
    left = _without(acquiring.result, aborted)
    return left, sum(each.size for each in left)


def _bounds(
    partition: SharePartition, wish: Wish, last_read: int, settings: ShareSettings
) -> tuple[int, int]:
    """How many offsets may be acquired, and up to which: in a full window only what was released in it."""
    most = min(wish.max_records, settings.max_record_locks - partition.window)
    if most > 0 or wish.fetch_offset > partition.end_offset:
        return most, last_read
    inside = partition.end_offset - wish.fetch_offset + 1
    return min(wish.max_records, inside), min(last_read, partition.end_offset)


class _Acquiring:
    """One acquisition. ``taken`` counts offsets towards ``most``."""

    __slots__ = (
        "last",
        "log",
        "most",
        "now",
        "partition",
        "result",
        "settings",
        "suspect_at",
        "taken",
        "wish",
    )

    def __init__(
        self,
        partition: SharePartition,
        now: int,
        wish: Wish,
        log: Sequence[LogBatch],
        settings: ShareSettings,
        most: int,
        last: int,
    ) -> None:
        self.partition = partition
        self.now = now
        self.wish = wish
        self.log = log
        self.settings = settings
        self.most = most
        self.last = last
        self.result: list[Acquired] = []
        self.taken = 0
        half = -(-settings.delivery_count_limit // 2)
        self.suspect_at = max(_FEWEST_BEFORE_SUSPICION, half)

    def run(self) -> None:
        partition, first_read = self.partition, self.log[0].first
        self._archive_skipped(first_read)
        begin = first_read
        floor = partition.in_flight.floor(first_read)
        if floor is None:
            begin = max(begin, partition.start_offset)
        elif floor.last >= begin:
            begin = floor.first
        known = partition.in_flight.between(min(first_read, begin), self.last)
        if not known:
            self._take_new(begin, self.last)
            return
        gap = begin
        for batch in known:
            if self.taken >= self.most:
                break
            if partition.has_gaps:
                if gap < batch.first:
                    self._take_new(gap, batch.first - 1)
                gap = batch.last + 1
                if self.taken >= self.most:
                    break
            if not self._take_known(batch, first_read):
                break
        if self.taken < self.most and known[-1].last < self.last:
            self._take_new(known[-1].last + 1, self.last)
        if self.result:
            partition.read_up_to(self.result[-1].last + 1)

    def _archive_skipped(self, first_read: int) -> None:
        """The read jumped over offsets: compaction took them, so what is available of them can never be read."""
        partition, offset = self.partition, self.wish.fetch_offset
        if not len(partition.in_flight) or offset >= first_read:
            return
        floor = partition.in_flight.floor(offset)
        begin = floor.first if floor is not None and floor.last >= offset else offset
        skipped = partition.in_flight.between(begin, first_read - 1)
        partition.archive(offset, first_read - 1, skipped, RecordState.AVAILABLE)
        partition.read_jumped(offset, first_read)

    # What is in flight already

    def _take_known(self, batch: InFlightBatch, first_read: int) -> bool:
        """Take what is available of a batch in flight. False: nothing may come with what was taken."""
        left = self.most - self.taken
        is_suspect = self._is_suspect(batch, first_read)
        if is_suspect and self.taken:
            self.most = 0
            return False
        whole = batch.whole
        if (
            whole is not None
            and batch.lies_within(first_read, self.last)
            and not is_suspect
            and not (self.wish.is_record_limit and batch.size > left)
        ):
            if whole.is_available:
                self._give(batch, batch.first, batch.last, whole)
                self._lock(batch, [whole])
            return True
        if whole is not None:
            if not whole.is_available:
                return True
            batch.split()
        taken = self._take_offsets(batch, first_read, left)
        if is_suspect and taken:
            self.most = 0
            return False
        return True

    def _is_suspect(self, batch: InFlightBatch, first_read: int) -> bool:
        if batch.whole is not None:
            return batch.whole.is_available and batch.whole.count >= self.suspect_at
        counts = (each.count for _, each in batch.within(first_read, self.last) if each.is_available)
        return max(counts, default=0) >= self.suspect_at

    def _take_offsets(self, batch: InFlightBatch, first_read: int, left: int) -> int:
        """Take available offsets of a batch one by one; fewer the more attempts they had."""
        limit = self.settings.delivery_count_limit
        got: list[tuple[int, Delivery]] = []
        most_suspects: int | None = None
        for offset, delivery in batch.within(first_read, self.last):
            if not delivery.is_available:
                continue
            if limit > 2 and delivery.count == limit - 1 and got:
                break  # Its last attempt: it comes alone, with the next fetch.
            if delivery.count >= self.suspect_at and most_suspects is None:
                halvings = delivery.count - self.suspect_at + 1
                most_suspects = max(1, batch.size >> halvings)
            got.append((offset, delivery))
            if (
                (limit > 2 and delivery.count + 1 == limit)
                or (self.wish.is_record_limit and len(got) == left)
                or len(got) == most_suspects
            ):
                break
        for offset, delivery in got:
            self._give(batch, offset, offset, delivery)
        if got:
            self._lock(batch, [delivery for _, delivery in got])
        return len(got)

    def _give(self, batch: InFlightBatch, first: int, last: int, delivery: Delivery) -> None:
        delivery.state = RecordState.ACQUIRED
        delivery.count += 1
        delivery.member = self.wish.member
        self.taken += last - first + 1
        before = self.result[-1] if self.result else None
        if (
            batch.whole is None
            and before is not None
            and before.first >= batch.first
            and (before.last + 1, before.deliveries) == (first, delivery.count)
        ):
            self.result[-1] = before._replace(last=last)
        else:
            self.result.append(Acquired(first, last, delivery.count))

    def _lock(self, batch: InFlightBatch, deliveries: Sequence[Delivery]) -> None:
        self.partition.lock(self.now, batch, deliveries, self.settings)

    # What is read for the first time

    def _take_new(self, first: int, last: int) -> None:
        partition, left = self.partition, self.most - self.taken
        if not len(partition.in_flight):
            first = max(first, partition.end_offset)
        if left < last - first + 1:
            end = self._batch_end(first + left - 1)
            last = min(end, last) if partition.has_gaps else end
        if last < first:
            return
        new = self._add_new(first, last, left)
        if partition.in_flight.first.first == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, last)
        self.result += new
        self.taken += new[-1].last - first + 1
        partition.read_up_to(new[-1].last + 1)

    def _batch_end(self, offset: int) -> int:
        """The end of the log's batch with ``offset``; the offset itself if it is in none."""
        for each in reversed(self.log):
            if each.first <= offset:
                return max(each.last, offset)
        return offset

    def _add_new(self, first: int, last: int, left: int) -> list[Acquired]:
        """Put new offsets in flight, for this member."""
        if self.wish.is_record_limit and last - first + 1 > left:
            batch = InFlightBatch(first, last, Delivery(RecordState.AVAILABLE, 0))
            batch.split()
            got = batch.each[:left]
            for delivery in got:
                delivery.state, delivery.count = RecordState.ACQUIRED, 1
                delivery.member = self.wish.member
            self.partition.in_flight.add(batch)
            self.partition.look_for_available()
            self._lock(batch, got)
            return [Acquired(first, first + left - 1, 1)]
        bounds = [first]
        if not self.wish.is_record_limit and last - first + 1 > self.wish.batch_size:
            for each in self.log:
                # A client that names no size gets a part for each batch of the log.
                if each.first <= last and each.first - bounds[-1] >= max(self.wish.batch_size, 1):
                    bounds.append(each.first)
        result: list[Acquired] = []
        for begin, end in zip(bounds, [*(each - 1 for each in bounds[1:]), last], strict=True):
            delivery = Delivery(RecordState.ACQUIRED, 1, self.wish.member)
            batch = InFlightBatch(begin, end, delivery)
            self.partition.in_flight.add(batch)
            self._lock(batch, [delivery])
            result.append(Acquired(begin, end, 1))
        return result


def _touched(partition: SharePartition, log: LogBatch) -> list[InFlightBatch]:
    floor = partition.in_flight.floor(log.first)
    return partition.in_flight.between(log.first if floor is None else floor.first, log.last)


def _without(acquired: Sequence[Acquired], aborted: Sequence[LogBatch]) -> list[Acquired]:
    """``acquired`` without the offsets of ``aborted``; both ascend."""
    left: list[Acquired] = []
    for each in acquired:
        first = each.first
        for batch in aborted:
            if batch.last < first or batch.first > each.last:
                continue
            if batch.first > first:
                left.append(each._replace(first=first, last=batch.first - 1))
            first = batch.last + 1
        if first <= each.last:
            left.append(each._replace(first=first))
    return left
