"""Compaction of one partition: which part of its log is due, and one pass over it, piece by piece.

    log start ──── clean ──── first dirty offset ──── dirty ──── active segment, open transactions, lag ──▶

A pass reads the keys of the dirty part, and then rewrites the segments from the start of the log on: a record stays if
no later one of that part has its key. Small segments become one. The active segment is never touched, nor what is not
decided yet. After Apache Kafka 4.4's LogCleanerManager and Cleaner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kadence.records import BatchHeader
from kadence_broker.storage.cleaning import Raw, digest, emptied, horizon_of, raw_records, rewritten
from kadence_broker.storage.segment import Found, Segment

if TYPE_CHECKING:
    from kadence_broker.storage.partition import Partition

__all__ = ["Due", "compacting", "due_of"]

_MOST_KEYS: Final = 500_000
"""Keys of one pass; what lies behind them waits for the next. They take about 60 MB."""
_BYTES_A_US: Final = 20
"""About how fast a pass works."""
_LARGEST_DELTA: Final = 2**31 - 1


class Due:
    """The part of a partition's log that may be compacted.

    Attributes:
        first_dirty: no pass has seen what lies at or above it. end: nothing from there on may be touched.
        ratio: bytes of the dirty part among all bytes that may be compacted.
        is_overdue: something of it is older than ``max.compaction.lag.ms``.
    """

    __slots__ = ("end", "first_dirty", "is_overdue", "ratio")

    def __init__(self, first_dirty: int, end: int, ratio: float, *, is_overdue: bool) -> None:
        self.first_dirty = first_dirty
        self.end = end
        self.ratio = ratio
        self.is_overdue = is_overdue


def due_of(partition: Partition, now: int) -> Due | None:
    """The part that a pass is worth while for at the time ``now`` (ms since 1970); None: there is none."""
    config, log = partition.config, partition.log
    if not config.is_compacted or partition.topic.is_internal or len(log.segments) < 2:
        return None
    end = min(partition.last_stable_offset, log.segments[-1].base_offset)
    first_dirty = partition.cleaned_upto
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    clean = dirty = 0
    oldest = now
    for segment in log.segments[:-1]:
        if segment.next_offset > end or _is_young(segment, now - config.min_compaction_lag_ms, now):
            end = min(end, segment.base_offset)
            break
        if segment.next_offset <= first_dirty:
            clean += segment.size
        else:
            dirty += segment.size
            oldest = min(oldest, segment.began_at or now)
    if not dirty:
        return None
    is_overdue = now - oldest > config.max_compaction_lag_ms
    ratio = dirty / (clean + dirty)
    if ratio <= config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return Due(first_dirty, end, ratio, is_overdue=is_overdue)


def _is_young(segment: Segment, since: int, now: int) -> bool:
    return since < now and segment.max_timestamp > since


def compacting(partition: Partition, due: Due, now: int) -> Generator[int, None, bool]:
    """Do one pass; yields about how many µs a step took. Readers see a group of segments change at once.

    Returns:
        whether it is whole. It ends early if the segments change meanwhile in another way than by an append.

    Raises:
        OSError: the disk does not take what is left.
    """
    aborted = _Aborted(partition)
    latest, end = yield from _latest_offsets(partition, due, aborted)
    segments = [each for each in partition.log.segments[:-1] if each.base_offset < end]
    batches = _Batches(partition, latest, end, aborted, now)
    for group in _groups(segments, partition.config.segment_bytes):
        if not (yield from _rewrite(partition, group, batches)):
            return False
    partition.cleaned(end)
    return True


def _latest_offsets(
    partition: Partition, due: Due, aborted: _Aborted
) -> Generator[int, None, tuple[dict[bytes, int], int]]:
    """The last offset of each key in the dirty part, and up to where that has been read."""
    latest: dict[bytes, int] = {}
    end = due.first_dirty
    for segment in [each for each in partition.log.segments[:-1] if each.base_offset < due.end]:
        for found in segment.batches(segment.position_of(due.first_dirty)):
            if len(latest) >= _MOST_KEYS:
                return latest, end
            batch, header = _batch(segment, found)
            if not header.is_control and not aborted.has(header):
                for each in raw_records(batch, header):
                    if each.key is not None:
                        latest[digest(each.key)] = each.offset
            end = found.last_offset + 1
            yield found.size // _BYTES_A_US
    return latest, due.end


def _groups(segments: Sequence[Segment], most_bytes: int) -> Iterator[list[Segment]]:
    """Neighbours that fit into one segment."""
    group: list[Segment] = []
    size = 0
    for each in segments:
        if group and (
            size + each.size > most_bytes or each.next_offset - group[0].base_offset > _LARGEST_DELTA
        ):
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    if group:
        yield group


def _rewrite(partition: Partition, group: list[Segment], batches: _Batches) -> Generator[int, None, bool]:
    """Put one segment with what is left in the place of some; return False if they are not there any more."""
    new = partition.log.begin_cleaned(group)
    is_changed = len(group) > 1
    try:
        for segment in group:
            for found in segment.batches(0):
                batch, header = _batch(segment, found)
                left = batches.left_of(batch, header)
                is_changed |= left is not batch
                if left is not None:
                    new.append(left, BatchHeader.parse(left), header.base_offset, header.leader_epoch)
                yield found.size // _BYTES_A_US
    except BaseException:
        partition.log.drop_cleaned(new)
        raise
    if not is_changed:
        partition.log.drop_cleaned(new)
        return True
    return partition.replace(group, new)


def _batch(segment: Segment, found: Found) -> tuple[memoryview, BatchHeader]:
    (batch,) = segment.views(found.position, found.position + found.size)
    return batch, BatchHeader.parse(batch)


class _Aborted:
    """Which batches belong to aborted transactions."""

    __slots__ = ("_ranges",)

    def __init__(self, partition: Partition) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for each in partition.producers.aborted.entries:
            self._ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))

    def has(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return False
        ranges = self._ranges.get(header.producer_id, [])
        number = bisect_right(ranges, header.base_offset, key=lambda each: each[0]) - 1
        return number >= 0 and header.base_offset <= ranges[number][1]


class _Batches:
    """What a pass leaves of each batch, from the start of the log on."""

    __slots__ = ("_aborted", "_delete_retention_ms", "_end", "_latest", "_now", "_producers", "_with_records")

    def __init__(
        self, partition: Partition, latest: Mapping[bytes, int], end: int, aborted: _Aborted, now: int
    ) -> None:
        self._producers = partition.producers.known
        self._delete_retention_ms = partition.config.delete_retention_ms
        self._latest = latest
        self._end = end
        self._aborted = aborted
        self._now = now
        self._with_records: set[int] = set()
        """Producers with records of a transaction whose marker has not come yet."""

    def left_of(self, batch: memoryview, header: BatchHeader) -> memoryview | None:
        """The batch itself if all of it stays, another one, or None."""
        horizon = horizon_of(header)
        is_over = horizon is not None and horizon <= self._now
        if header.is_control:
            return self._marker(batch, header, horizon, is_over=is_over)
        if header.is_transactional:
            self._with_records.add(header.producer_id)
        is_aborted = self._aborted.has(header)
        if not is_aborted and header.base_offset >= self._end:
            return batch
        records = list(raw_records(batch, header))
        kept = [] if is_aborted else [each for each in records if self._stays(each, is_over=is_over)]
        if not kept:
            return self._empty(batch, header)
        has_tombstones = any(not each.has_value for each in kept)
        begins = has_tombstones and horizon is None
        if len(kept) == len(records) and not begins:
            return batch
        return rewritten(header, kept, self._now + self._delete_retention_ms if begins else None)

    def _stays(self, record: Raw, *, is_over: bool) -> bool:
        if record.offset >= self._end:
            return True
        if record.key is None or record.offset < self._latest.get(digest(record.key), -1):
            return False
        return record.has_value or not is_over

    def _marker(
        self, batch: memoryview, header: BatchHeader, horizon: int | None, *, is_over: bool
    ) -> memoryview | None:
        """The end of a transaction stays until its records have gone, and then as long as a tombstone."""
        if header.producer_id in self._with_records:
            self._with_records.discard(header.producer_id)
            return batch
        if is_over:
            return self._empty(batch, header)
        if horizon is not None or header.base_offset >= self._end:
            return batch
        return rewritten(header, list(raw_records(batch, header)), self._now + self._delete_retention_ms)

    def _empty(self, batch: memoryview, header: BatchHeader) -> memoryview | None:
        """Without records a batch stays if nothing else tells its producer's last sequence, or last epoch."""
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return None
        is_last = (
            header.last_offset == known.last_offset
            if known.last_offset >= 0
            else header.is_control and header.producer_epoch == known.epoch
        )
        if not is_last:
            return None
        return emptied(header) if header.record_count else batch
