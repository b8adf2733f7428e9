"""One partition's batches: segments of them, oldest first, and which offsets they hold.

The segments are in the log's `Store` (memory here, files in `kadence_broker.storage.files`). Segments are
neighbours: a fetch reads on from one into the next, so an answer of many small batches is a few buffers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from kadence.records import BatchHeader
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.epochs import LeaderEpochs
from kadence_broker.storage.segment import Found, MemorySegment, Segment

__all__ = ["Log", "MemoryStore", "Store"]

_FIRST_SEGMENT: Final = 16 * 1024
_LARGEST_SEGMENT: Final = 8 * 1024 * 1024


class Store(Protocol):
    """Creates segments, and disposes of them."""

    @property
    def segment_ms(self) -> int:
        """The time for which a segment is written to."""
        ...

    def new_segment(self, base_offset: int, position: int, size: int) -> Segment:
        """The segment for a batch of ``size`` bytes at ``base_offset``; the one before it is complete.

        Raises:
            OSError: there is no room for it.
        """
        ...

    def seal(self, segment: Segment) -> None:
        """This segment is complete."""
        ...

    def drop(self, segments: Sequence[Segment]) -> None:
        """Remove these segments; only fetches in progress still read them."""
        ...

    def new_cleaned(self, base_offset: int, size: int) -> Segment:
        """A segment for what compaction leaves of ``size`` bytes. It is not part of the log yet.

        Raises:
            OSError: there is no room for it.
        """
        ...

    def drop_cleaned(self, segment: Segment) -> None:
        """Remove one that does not become part of the log."""
        ...

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Let a cleaned segment be where the old ones are. They do not come back after a crash."""
        ...


class MemoryStore:
    """Segments as byte arrays, each twice as large as the one before, up to a bound."""

    __slots__ = ("_capacity", "_config")

    def __init__(self, config: Callable[[], LogConfig] = LogConfig) -> None:
        self._config = config
        self._capacity = _FIRST_SEGMENT // 2

    @property
    def segment_ms(self) -> int:
        return self._config().roll_ms

    def new_segment(self, base_offset: int, position: int, size: int) -> Segment:
        largest = min(_LARGEST_SEGMENT, self._config().segment_bytes)
        self._capacity = max(size, min(2 * self._capacity, largest))
        return MemorySegment(base_offset, position, self._capacity)

    def seal(self, segment: Segment) -> None:
        """There is nothing to do."""

    def drop(self, segments: Sequence[Segment]) -> None:
        """The memory goes with the last view of it."""

    def new_cleaned(self, base_offset: int, size: int) -> Segment:
        # A delete horizon makes records longer: by nine bytes each at most, of eight at least.
        return MemorySegment(base_offset, 0, 3 * size)

    def drop_cleaned(self, segment: Segment) -> None:
        """As `drop`."""

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """As `drop`."""


class Log:
    """Append-only batches with offsets ``start_offset`` <= o < ``end_offset``. Not thread-safe: one thread owns it.

    Offsets below ``start_offset`` were there once (`delete_before`).
    """

    __slots__ = ("_store", "end_offset", "epochs", "segments", "start_offset")

    def __init__(
        self,
        store: Store | None = None,
        segments: Sequence[Segment] = (),
        epochs: LeaderEpochs | None = None,
        start_offset: int = 0,
    ) -> None:
        self._store = MemoryStore() if store is None else store
        self.segments: list[Segment] = list(segments)
        self.epochs = LeaderEpochs() if epochs is None else epochs
        self.end_offset = self.segments[-1].next_offset if self.segments else start_offset
        self.start_offset = max(start_offset, self.segments[0].base_offset if self.segments else 0)

    def __repr__(self) -> str:
        return f"<Log offsets {self.start_offset}..{self.end_offset}, {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """Bytes that are kept."""
        if not self.segments:
            return 0
        last = self.segments[-1]
        return last.position + last.size - self.segments[0].position

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now: int = 0) -> int:
        """Copy one batch in and give it the next offsets; ``now`` is milliseconds since 1970.

        Returns:
            The offset of its first record.

        Raises:
            OSError: it could not be stored; the log is as before.
        """
        base = self.end_offset
        segment = self.segments[-1] if self.segments else None
        if (
            segment is None
            or not segment.has_room(len(batch), base + header.last_offset_delta)
            or (segment.size and now - segment.began_at >= self._store.segment_ms)
        ):
            segment = self.roll(len(batch))
        segment.append(batch, header, base, leader_epoch)
        segment.began_at, segment.touched_at = segment.began_at or now, now
        self.end_offset = base + header.last_offset_delta + 1
        self.epochs.appended(leader_epoch, base)
        return base

    def roll(self, size: int = 0) -> Segment:
        """Begin a new segment, for a batch of ``size`` bytes; an empty one is as good as new."""
        last = self.segments[-1] if self.segments else None
        if last is not None and not last.size and last.has_room(size, self.end_offset):
            return last
        position = 0 if last is None else last.position + last.size
        segment = self._store.new_segment(self.end_offset, position, size)
        if last is not None and last.size == 0:
            self._store.drop([self.segments.pop()])
        elif last is not None:
            self._store.seal(last)
        self.segments.append(segment)
        return segment

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool, upto: int | None = None
    ) -> list[memoryview]:
        """Whole batches from the one that holds ``offset`` on, at most ``max_bytes`` of them.

        With ``at_least_one`` the first batch comes whatever its size (KIP-74), so that a batch above every
        limit cannot stop a reader. The first batch may begin before ``offset``. ``upto`` is an offset where a batch
        begins: none comes from there on.
        """
        number, begin, end = self._range(offset, upto)
        if begin >= end:
            return []
        views: list[memoryview] = []
        limit = begin + max_bytes
        while begin < end:
            segment = self.segments[number]
            inside = begin - segment.position
            stop = segment.boundary(inside, min(limit, end) - segment.position)
            if stop == inside and at_least_one and not views:
                stop += segment.batch_size(inside)
            if stop > inside:
                views += segment.views(inside, stop)
            begin = segment.position + stop
            if stop < segment.size:
                break
            number += 1
        return views

    def available(self, offset: int, max_bytes: int, upto: int | None = None) -> int:
        """Bytes from ``offset`` on, counted up to ``max_bytes``; ``upto`` as for `read`."""
        _, begin, end = self._range(offset, upto)
        return min(max(end - begin, 0), max_bytes)

    def batches(self, offset: int) -> Iterator[tuple[Segment, Found]]:
        """All batches from the one that holds ``offset`` on, by their headers."""
        for segment in self.segments[max(self._number(offset), 0) :]:
            for found in segment.batches(segment.position_of(offset)):
                yield segment, found

    def since_timestamp(self, timestamp: int) -> Iterator[tuple[Segment, Found]]:
        """The batches that may hold a record of ``timestamp`` or later at or above the log start."""
        for segment in self.segments:
            for found in segment.since_timestamp(timestamp, self.start_offset):
                yield segment, found

    def newest(self, offset: int) -> int:
        """The largest timestamp of the batches that end at ``offset`` or later; -1 without any."""
        newest = -1
        for segment in self.segments:
            if segment.max_timestamp <= newest or segment.next_offset <= offset:
                continue
            if segment.max_timestamp_offset >= offset:
                newest = segment.max_timestamp
            else:
                left = segment.batches(segment.position_of(offset))
                newest = max(newest, max((found.max_timestamp for found in left), default=-1))
        return newest

    def delete_before(self, offset: int) -> None:
        """Remove everything below ``offset``, segment by segment.

        Raises:
            ValueError: ``offset`` is above the end of the log.
        """
        if offset > self.end_offset:
            raise ValueError(f"cannot delete up to {offset}: the log ends at {self.end_offset}")
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        gone = 0
        while gone < len(self.segments) - 1 and self.segments[gone].next_offset <= offset:
            gone += 1
        self._store.drop(self.segments[:gone])
        del self.segments[:gone]

    # Compaction

    def begin_cleaned(self, old: Sequence[Segment]) -> Segment:
        """An empty segment for what is left of some neighbours. Raises `OSError`."""
        return self._store.new_cleaned(old[0].base_offset, sum(each.size for each in old))

    def drop_cleaned(self, new: Segment) -> None:
        """It is not needed."""
        self._store.drop_cleaned(new)

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put ``new`` in the place of some neighbours; False: they are not as they were any more."""
        at = next((number for number, each in enumerate(self.segments) if each is old[0]), 0)
        place = slice(at, at + len(old))
        if [id(each) for each in self.segments[place]] != [id(each) for each in old]:
            self._store.drop_cleaned(new)
            return False
        new.next_offset = old[-1].next_offset
        new.began_at, new.touched_at = old[0].began_at, old[-1].touched_at
        position = self.segments[0].position
        self.segments[place] = [new]
        for each in self.segments:
            each.position = position
            position += each.size
        self._store.replace(old, new)
        return True

    def truncate(self, offset: int) -> None:
        """Let everything from ``offset`` on go, as if it had never been replicated; whole batches only."""
        while self.segments and self.segments[-1].base_offset >= offset:
            self._cut_to(self.segments[-1].base_offset)
            if len(self.segments) == 1:
                break
            self._store.drop([self.segments.pop()])
        if self.segments:
            last = self.segments[-1]
            if offset < last.next_offset:
                last.cut(last.position_of(offset))
            self._cut_to(last.next_offset)

    def _cut_to(self, offset: int) -> None:
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.epochs.truncate(offset)

    def _number(self, offset: int) -> int:
        """The index of the segment that holds ``offset``."""
        return bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1

    def _range(self, offset: int, upto: int | None) -> tuple[int, int, int]:
        """Segment and position of the first batch, and where the readable bytes end."""
        end_offset = self.end_offset if upto is None else min(upto, self.end_offset)
        if offset >= end_offset or not self.segments:
            return 0, 0, 0
        number = max(self._number(offset), 0)
        first = self.segments[number]
        begin = first.position + first.position_of(offset)
        # A file that was lost leaves a hole in the offsets; what follows the hole comes from the next segment.
        while begin == self.segments[number].position + self.segments[number].size and number + 1 < len(
            self.segments
        ):
            number += 1
        last = self.segments[-1]
        if end_offset == self.end_offset:
            return number, begin, last.position + last.size
        last = self.segments[self._number(end_offset)]
        return number, begin, last.position + last.position_of(end_offset)
