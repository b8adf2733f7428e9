"""A stretch of a log: batches one behind the other, found by a sparse index, as Kafka lays them out.

The index has an entry for about every 4 KiB: the last offset of a batch and where the batch begins. A look-up takes the
nearest entry and walks over headers from there. A second index does the same for timestamps. The bytes lie in pieces,
which begin at a batch each; they are never moved or resized, so that a fetch can hand out views of them.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from kadence.records import BatchHeader

__all__ = ["INDEX_INTERVAL", "Found", "MemorySegment", "Segment"]

INDEX_INTERVAL: Final = 4096

_WALK: Final = struct.Struct(">qi11xi")
"""Base offset, length, delta of the last offset."""
_WALK_SIZE: Final = _WALK.size
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_EPOCH_AT: Final = 12
_OVERHEAD: Final = 12
_FRESH_PAGES: Final = 256 * 1024


class Found(NamedTuple):
    """A batch in a segment. ``position`` counts from the segment's first byte."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int


class Segment:
    """Batches from ``base_offset`` on. Its creator sets the first piece.

    Attributes:
        position: bytes of the log before it.
        size: bytes in it. next_offset: the offset after its last record.
        max_timestamp: the largest of its batches, -1 without one; max_timestamp_offset: last offset of the first batch
            that has it.
        began_at: when its first batch was appended (ms since 1970), 0 without one; touched_at: its last one.
    """

    __slots__ = (
        "_since_entry",
        "_starts",
        "_views",
        "base_offset",
        "began_at",
        "index_offsets",
        "index_positions",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "position",
        "size",
        "time_offsets",
        "timestamps",
        "touched_at",
    )

    def __init__(self, base_offset: int, position: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.position = position
        self.size = 0
        self.began_at = self.touched_at = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.index_offsets = array("q")
        self.index_positions = array("q")
        self.timestamps = array("q")
        self.time_offsets = array("q")
        self._since_entry = 0
        self._starts: list[int] = []
        self._views: list[memoryview] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_offset}..{self.next_offset}, {self.size} bytes>"

    # Methods of each kind of segment

    def has_room(self, size: int, last_offset: int) -> bool:
        """True if a batch of ``size`` bytes that ends at ``last_offset`` still belongs here."""
        raise NotImplementedError

    def _room(self, size: int) -> memoryview:
        """The memory for the next batch."""
        raise NotImplementedError

    def _store(self, batch: memoryview) -> None:
        """The batch lies in its room, with its offsets."""

    # In

    def append(self, batch: memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
        """Copy a batch in and write its offset and leader epoch into the copy.

        Raises:
            OSError: it could not be stored; the segment is as before.
        """
        size = len(batch)
        room = self._room(size)
        room[:] = batch
        _OFFSET.pack_into(room, 0, base_offset)
        _EPOCH.pack_into(room, _EPOCH_AT, leader_epoch)
        self._store(room)
        self.note(size, base_offset + header.last_offset_delta, header.max_timestamp)

    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Take the next batch of ``size`` bytes into the indexes."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._since_entry > INDEX_INTERVAL:
            self.index_offsets.append(last_offset)
            self.index_positions.append(self.size)
            self.note_time()
            self._since_entry = 0
        self._since_entry += size
        self.size += size
        self.next_offset = last_offset + 1

    def note_time(self) -> None:
        """Enter the largest timestamp so far into its index, if it has grown."""
        if self.max_timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(self.max_timestamp)
            self.time_offsets.append(self.max_timestamp_offset)

    # Out

    def views(self, begin: int, end: int) -> list[memoryview]:
        """The bytes from ``begin`` to ``end``, a view for each piece touched."""
        views: list[memoryview] = []
        number = bisect_right(self._starts, begin) - 1
        while begin < end:
            start = self._starts[number]
            stop = self._starts[number + 1] if number + 1 < len(self._starts) else self.size
            upto = min(end, stop)
            views.append(self._views[number][begin - start : upto - start])
            begin = upto
            number += 1
        return views

    def position_of(self, offset: int) -> int:
        """The start of the first batch that ends at ``offset`` or later; `size` if there is none."""
        number = bisect_right(self.index_offsets, offset) - 1
        at = self.index_positions[number] if number >= 0 else 0
        while at < self.size:
            view, start, stop = self._piece(at)
            while at < stop:
                base, length, delta = _WALK.unpack_from(view, at - start)
                if base + delta >= offset:
                    return at
                at += length + _OVERHEAD
        return self.size

    def boundary(self, begin: int, limit: int) -> int:
        """The end of the last complete batch between ``begin`` (a batch) and ``limit``."""
        if limit >= self.size:
            return self.size
        number = bisect_right(self.index_positions, limit) - 1
        at = max(self.index_positions[number] if number >= 0 else 0, begin)
        while True:
            after = at + self.batch_size(at)
            if after > limit:
                return at
            at = after

    def batch_size(self, at: int) -> int:
        """Bytes of the batch that begins at ``at``."""
        view, start, _ = self._piece(at)
        return int(_WALK.unpack_from(view, at - start)[1]) + _OVERHEAD

    def batches(self, at: int) -> Iterator[Found]:
        """The batches from the one at ``at`` on, by their headers."""
        while at < self.size:
            view, start, _ = self._piece(at)
            base, length, delta = _WALK.unpack_from(view, at - start)
            (newest,) = _MAX_TIMESTAMP.unpack_from(view, at - start + _MAX_TIMESTAMP_AT)
            size = length + _OVERHEAD
            yield Found(at, base, base + delta, newest, size)
            at += size

    def since_timestamp(self, timestamp: int, offset: int) -> Iterator[Found]:
        """The batches that end at ``offset`` or later and hold a record of ``timestamp`` or later."""
        if self.max_timestamp < timestamp:
            return
        number = bisect_right(self.timestamps, timestamp) - 1
        at = self.position_of(max(self.time_offsets[number] if number >= 0 else self.base_offset, offset))
        for found in self.batches(at):
            if found.max_timestamp >= timestamp:
                yield found

    def _piece(self, at: int) -> tuple[memoryview, int, int]:
        """The piece that holds position ``at``, where it begins and where it ends."""
        number = bisect_right(self._starts, at) - 1
        stop = self._starts[number + 1] if number + 1 < len(self._starts) else self.size
        return self._views[number], self._starts[number], stop

    # Cutting

    def cut(self, position: int) -> None:
        """Forget what lies at ``position`` and behind it; the bytes may still be on their way to a reader."""
        kept = [found for found in self.batches(0) if found.position < position]
        self.forget()
        for found in kept:
            self.note(found.size, found.last_offset, found.max_timestamp)

    def forget(self) -> None:
        """Be empty, without touching the bytes."""
        self.size, self.next_offset, self._since_entry = 0, self.base_offset, 0
        self.max_timestamp = self.max_timestamp_offset = -1
        for column in (self.index_offsets, self.index_positions, self.timestamps, self.time_offsets):
            del column[:]


def _memory(capacity: int) -> bytearray | mmap.mmap:
    """Writable memory. Of a large one, pages that are never written are never allocated nor zeroed."""
    return bytearray(capacity) if capacity < _FRESH_PAGES else mmap.mmap(-1, capacity)


class MemorySegment(Segment):
    """One stretch of memory of a fixed size."""

    __slots__ = ("_data",)

    def __init__(self, base_offset: int, position: int, capacity: int) -> None:
        super().__init__(base_offset, position)
        self._use(_memory(capacity))

    def has_room(self, size: int, last_offset: int) -> bool:
        return self.size + size <= len(self._data)

    def cut(self, position: int) -> None:
        super().cut(position)
        # A fetch in progress may still send the bytes that are cut off, so they must not be overwritten.
        data = _memory(len(self._data))
        data[:position] = self._data[:position]
        self._use(data)

    def _room(self, size: int) -> memoryview:
        return self._views[0][self.size : self.size + size]

    def _use(self, data: bytearray | mmap.mmap) -> None:
        self._data = data
        self._starts, self._views = [0], [memoryview(data)]
