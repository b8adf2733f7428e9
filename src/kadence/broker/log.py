"""One partition's records, in memory.

Batches are copied once, into segments: byte arrays of growing fixed size, never resized, so that a fetch
can hand out memoryviews of them while the next batch is being appended. Neighbours in a segment are
neighbours in memory: an answer of many small batches is still one buffer per segment, which is what makes
a scatter write of megabytes cheap. Batches are found by bisection over base offsets.

The high watermark is the end of the log (one replica), and without transactions the last stable offset
is the high watermark.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from kadence.records import BatchHeader, assign_offsets

__all__ = ["PartitionLog"]

_FIRST_SEGMENT: Final = 16 * 1024
_LARGEST_SEGMENT: Final = 8 * 1024 * 1024


@dataclass(slots=True)
class _Segment:
    """``first`` is the index of its first batch; ``used`` bytes are filled."""

    data: bytearray
    first: int
    position: int
    used: int = 0


@dataclass(slots=True)
class _Index:
    """One entry per batch, column-wise. ``ends`` are byte positions counted from the birth of the log."""

    bases: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    max_timestamps: list[int] = field(default_factory=list)


class PartitionLog:
    """Append-only batches with offsets ``start_offset`` <= o < ``end_offset``.

    Offsets below ``start_offset`` were there once (`delete_before`). Not thread-safe: one thread owns it.
    """

    __slots__ = ("_epochs", "_index", "_segments", "end_offset", "start_offset")

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self._index = _Index()
        self._segments: list[_Segment] = []
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, first offset of it), ascending."""

    def __repr__(self) -> str:
        return f"<PartitionLog offsets {self.start_offset}..{self.end_offset}, {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """Bytes that a reader from the start would get."""
        if not self._segments:
            return 0
        return self._index.ends[-1] - self._position_before(0)

    @property
    def last_position(self) -> int:
        """Bytes appended since the birth of the log."""
        return self._index.ends[-1] if self._index.ends else self._born_at()

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int) -> int:
        """Copy one batch in and give it the next offsets.

        Returns:
            The offset of its first record.
        """
        size = len(batch)
        segment = self._segments[-1] if self._segments else None
        if segment is None or len(segment.data) - segment.used < size:
            segment = self._roll(size)
        at = segment.used
        segment.data[at : at + size] = batch
        base = self.end_offset
        assign_offsets(memoryview(segment.data)[at : at + size], base, leader_epoch)
        segment.used += size
        index = self._index
        index.ends.append(self.last_position + size)
        index.bases.append(base)
        index.max_timestamps.append(header.max_timestamp)
        self.end_offset = base + header.last_offset_delta + 1
        if not self._epochs or self._epochs[-1][0] < leader_epoch:
            self._epochs.append((leader_epoch, base))
        return base

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> list[memoryview]:
        """Whole batches from the one that holds ``offset`` on, at most ``max_bytes`` of them.

        With ``at_least_one`` the first batch comes whatever its size (KIP-74), so that a batch above every
        limit cannot stop a reader. Empty at the end of the log. The first batch may begin before ``offset``.
        """
        first, stop = self._range(offset, max_bytes, at_least_one)
        return self._slices(first, stop)

    def available(self, offset: int, max_bytes: int) -> int:
        """Bytes from ``offset`` to the end, counted up to ``max_bytes``."""
        if offset >= self.end_offset or not self._index.bases:
            return 0
        first = bisect_right(self._index.bases, offset) - 1
        return min(self.last_position - self._position_before(max(first, 0)), max_bytes)

    def batch_for_timestamp(self, timestamp: int) -> memoryview | None:
        """The first batch with a record at or after ``timestamp``; None if there is none."""
        for number, newest in enumerate(self._index.max_timestamps):
            if newest >= timestamp:
                return self._slices(number, number + 1)[0]
        return None

    def batch_of_max_timestamp(self) -> memoryview | None:
        """The first batch that holds the largest timestamp of the log; None if the log is empty."""
        newest = self._index.max_timestamps
        if not newest:
            return None
        number = newest.index(max(newest))
        return self._slices(number, number + 1)[0]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and the offset where it ends; (-1, -1) if there is none (KIP-320)."""
        number = bisect_right(self._epochs, epoch, key=lambda entry: entry[0]) - 1
        if number < 0:
            return -1, -1
        following = number + 1
        end = self._epochs[following][1] if following < len(self._epochs) else self.end_offset
        return self._epochs[number][0], end

    def epoch_at_end(self) -> int:
        """Leader epoch of the newest batch; -1 if nothing was ever appended."""
        return self._epochs[-1][0] if self._epochs else -1

    def epoch_of(self, offset: int) -> int:
        """Leader epoch of the batch that holds ``offset``; -1 if it is not known."""
        number = bisect_right(self._epochs, offset, key=lambda entry: entry[1]) - 1
        return self._epochs[number][0] if number >= 0 else -1

    def delete_before(self, offset: int) -> None:
        """Let everything below ``offset`` go. Memory returns segment by segment.

        Raises:
            ValueError: ``offset`` is above the end of the log.
        """
        if offset > self.end_offset:
            raise ValueError(f"cannot delete up to {offset}: the log ends at {self.end_offset}")
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        index = self._index
        gone = 0
        while len(self._segments) > 1 and self._first_offset_after(self._segments[0]) <= offset:
            self._segments.pop(0)
            gone = self._segments[0].first
        if gone:
            del index.bases[:gone], index.ends[:gone], index.max_timestamps[:gone]
            for segment in self._segments:
                segment.first -= gone

    def truncate(self, offset: int) -> None:
        """Let everything from ``offset`` on go, as if it had never been replicated; whole batches only."""
        index = self._index
        keep = bisect_left(index.bases, offset)
        following = index.bases[keep] if keep < len(index.bases) else self.end_offset
        if keep and following > offset:
            # The last batch before it reaches beyond it.
            keep -= 1
        if keep == len(index.bases):
            return
        self.end_offset = index.bases[keep]
        self.start_offset = min(self.start_offset, self.end_offset)
        del index.bases[keep:], index.ends[keep:], index.max_timestamps[keep:]
        self._epochs = [entry for entry in self._epochs if entry[1] < self.end_offset]
        while self._segments and self._segments[-1].first >= keep:
            self._segments.pop()
        if self._segments:
            last = self._segments[-1]
            used = index.ends[-1] - last.position
            # A copy: what is cut off may still be on its way to a reader, and must not be written over.
            data = bytearray(len(last.data))
            data[:used] = last.data[:used]
            self._segments[-1] = _Segment(data, last.first, last.position, used)

    def retain(self, max_bytes: int) -> None:
        """Let the oldest segments go while at least ``max_bytes`` stay; the newest always stays."""
        while len(self._segments) > 1 and self.size_bytes - self._segments[0].used >= max_bytes:
            self.delete_before(self._first_offset_after(self._segments[0]))

    def _roll(self, size: int) -> _Segment:
        previous = len(self._segments[-1].data) if self._segments else 0
        capacity = max(size, min(max(2 * previous, _FIRST_SEGMENT), _LARGEST_SEGMENT))
        segment = _Segment(bytearray(capacity), first=len(self._index.bases), position=self.last_position)
        self._segments.append(segment)
        return segment

    def _born_at(self) -> int:
        return self._segments[0].position if self._segments else 0

    def _position_before(self, number: int) -> int:
        return self._index.ends[number - 1] if number else self._born_at()

    def _first_offset_after(self, segment: _Segment) -> int:
        """Base offset of the segment behind ``segment`` (which is not the last)."""
        following = self._segments[self._segments.index(segment) + 1]
        return (
            self._index.bases[following.first]
            if following.first < len(self._index.bases)
            else self.end_offset
        )

    def _range(self, offset: int, max_bytes: int, at_least_one: bool) -> tuple[int, int]:
        """Numbers of the batches to hand out, as a half-open range."""
        index = self._index
        if offset >= self.end_offset or not index.bases:
            return 0, 0
        first = max(bisect_right(index.bases, offset) - 1, 0)
        limit = self._position_before(first) + max_bytes
        stop = bisect_right(index.ends, limit, lo=first)
        if stop == first and at_least_one:
            stop = first + 1
        return first, stop

    def _slices(self, first: int, stop: int) -> list[memoryview]:
        """The bytes of batches ``first`` to ``stop``, one view per segment touched."""
        if stop <= first:
            return []
        begin, end = self._position_before(first), self._position_before(stop)
        number = bisect_right(self._segments, first, key=lambda segment: segment.first) - 1
        views: list[memoryview] = []
        while begin < end:
            segment = self._segments[number]
            upto = min(end, segment.position + segment.used)
            views.append(memoryview(segment.data)[begin - segment.position : upto - segment.position])
            begin = upto
            number += 1
        return views
