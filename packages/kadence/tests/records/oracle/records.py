"""What reading a batch's records means, in plain Python: what the compiled cursor is compared with.

It makes lists, one per field; record objects and columns are made from those.
"""

from __future__ import annotations

import struct
import sys
from itertools import repeat
from typing import TYPE_CHECKING, Final

from kadence._native.shared import MOST_HEADERS, SMALLEST_RECORD, RecordFormatError
from kadence.records import Record
from kadence.records.batch import CONTROL, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, frame_fault

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Cursor", "Headers", "Rows", "scan"]

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_NEAR_EDGE: Final = 2**62
"""Below this, a timestamp and a difference of a few bytes cannot leave 64 bits together."""


_FRAME: Final = struct.Struct(">qi4xb")
_MAGIC_AT: Final = 16

Headers = tuple[tuple[str, bytes | None], ...]


def _long_number(data: bytes, pos: int, end: int, longest: int, top: int) -> tuple[int, int]:
    """A number before zig-zag, of at most ``longest`` bytes with at most ``top`` in the last; and where it ends."""
    raw = shift = 0
    last = min(end, pos + longest)
    while pos < last:
        byte = data[pos]
        pos += 1
        if shift == 7 * (longest - 1) and byte > top:
            break
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, pos
        shift += 7
    raise RecordFormatError(1)


def _int(data: bytes, pos: int, end: int) -> tuple[int, int]:
    raw, pos = _long_number(data, pos, end, 5, 0x0F)
    return (raw >> 1) ^ -(raw & 1), pos


def _headers(data: bytes, pos: int, end: int, count: int) -> Headers:
    """A record's headers, which must end where the record does."""
    out: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = _int(data, pos, end)
        if size < 0 or size > end - pos:
            raise RecordFormatError(4)
        name = data[pos : pos + size].decode("utf-8", "replace")
        pos += size
        size, pos = _int(data, pos, end)
        if size < -1 or size > end - pos:
            raise RecordFormatError(4)
        if size < 0:
            out.append((name, None))
        else:
            out.append((name, data[pos : pos + size]))
            pos += size
    if pos != end:
        raise RecordFormatError(5)
    return tuple(out)


class Rows:
    """Fields of consecutive records, one list per field."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []


class Cursor:
    """Reads the records of one batch after the other; `open_batch` gives it a batch's records, decompressed.

    Attributes:
        topic: name of the topic. partition: its partition.
        remaining: records of the open batch that are not read yet.
        next_offset: offset after the last record read.
        after: where the open batch ends in the bytes of the fetch.
        after_offset: offset after the open batch.
        leader_epoch: epoch of the leader that wrote the open batch; None: unknown.
    """

    __slots__ = (
        "_append_time",
        "_base_offset",
        "_base_timestamp",
        "_data",
        "_last_offset",
        "_pos",
        "_previous",
        "after",
        "after_offset",
        "leader_epoch",
        "next_offset",
        "partition",
        "remaining",
        "timestamp_type",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.remaining = 0
        self.next_offset = 0
        self.after = 0
        self.after_offset = 0
        self.leader_epoch: int | None = None
        self._data = b""
        self._pos = 0

    def close_batch(self) -> None:
        """Let go of the batch."""
        self.remaining = 0
        self._data = b""
        self._pos = 0

    def open_batch(
        self,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        last_offset: int,
        first_wanted: int,
        base_timestamp: int,
        timestamp_type: int,
        append_time: int,
        leader_epoch: int,
        after: int,
        goes_on: bool,
        check_crcs: bool,
    ) -> None:
        """Begin with the batch whose records are ``data[start:end]``.

        Records below ``first_wanted`` are stepped over. With ``timestamp_type`` 1 every record has the
        timestamp ``append_time``. ``after`` is where the batch ends in the fetch. This one never goes on to the next
        batch by itself, so the other two are the compiled one's.

        Raises:
            RecordFormatError: the batch cannot hold ``count`` records.
        """
        self.close_batch()
        view = memoryview(data)
        if start < 0 or end < start or end > view.nbytes:
            raise ValueError("the range lies outside the data")
        if count > (end - start) // SMALLEST_RECORD:
            raise RecordFormatError(9)
        self._data = bytes(view[start:end])
        self.next_offset = first_wanted
        self._base_offset = base_offset
        self._previous = base_offset - 1
        self._last_offset = last_offset
        self._base_timestamp = base_timestamp
        self.timestamp_type = timestamp_type
        self._append_time = append_time
        self.leader_epoch = leader_epoch if leader_epoch >= 0 else None
        self.after = after
        self.after_offset = last_offset + 1
        self.remaining = count

    @property
    def left(self) -> int:
        """Bytes of the batch that are not read yet."""
        return len(self._data) - self._pos

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Where the cursor stands in its batch; set it to go back there."""
        return self._pos, self._previous, self.remaining, self.next_offset

    @place.setter
    def place(self, place: tuple[int, int, int, int]) -> None:
        self._pos, self._previous, self.remaining, self.next_offset = place

    def read(self, out: list[Record], limit: int, room: int = sys.maxsize) -> int:
        """Append up to ``limit`` records to ``out``; stop after the one with which they take ``room`` bytes.

        Returns how many bytes of the batch they take.

        Raises:
            RecordFormatError: the next record cannot be read; those before it are in ``out``.
        """
        rows = Rows()
        start = self._pos
        try:
            self.read_rows(rows, limit, True, room)
        finally:
            out.extend(
                map(
                    Record,
                    repeat(self.topic),
                    repeat(self.partition),
                    rows.offsets,
                    rows.timestamps,
                    repeat(self.timestamp_type),
                    rows.keys,
                    rows.values,
                    rows.headers,
                    repeat(self.leader_epoch),
                )
            )
        return self._pos - start

    def read_rows(  # noqa: C901, PLR0912, PLR0915
        self, rows: Rows, limit: int, with_headers: bool, room: int = sys.maxsize
    ) -> None:
        """Read up to ``limit`` records, and none after the one with which they take ``room`` bytes.

        When one cannot be read, those before it are in ``rows`` and stepped over.

        Single numbers may be read past the end of their record, never past the batch (that is an IndexError):
        the place only grows, so the check at the record's end refuses such a record.
        """
        data, pos, remaining = self._data, self._pos, self.remaining
        end = len(data)
        base_offset, last_offset, wanted = self._base_offset, self._last_offset, self.next_offset
        previous = self._previous
        base_time, is_append_time = self._base_timestamp, self.timestamp_type == 1
        timestamp = self._append_time
        is_near_edge = not -_NEAR_EDGE < base_time < _NEAR_EDGE
        add_offset, add_time = rows.offsets.append, rows.timestamps.append
        add_key, add_value, add_headers = rows.keys.append, rows.values.append, rows.headers.append
        headers: Headers = ()
        start = pos
        full = pos + room
        try:
            while limit > 0 and remaining > 0 and pos < full:
                start = pos
                # The record's length.
                raw = data[pos]
                if raw < 0x80:
                    pos += 1
                elif (high := data[pos + 1]) < 0x80:
                    raw += (high << 7) - 0x80
                    pos += 2
                else:
                    raw, pos = _long_number(data, pos, end, 5, 0x0F)
                if raw & 1 or pos + (raw >> 1) > end:
                    raise RecordFormatError(2)
                stop = pos + (raw >> 1)
                # Attributes, of which none is defined; then the timestamp's difference.
                pos += 1
                raw = data[pos]
                if raw < 0x80:
                    pos += 1
                elif (high := data[pos + 1]) < 0x80:
                    raw += (high << 7) - 0x80
                    pos += 2
                else:
                    raw, pos = _long_number(data, pos, stop, 10, 1)
                time_raw = raw
                # The offset's difference.
                raw = data[pos]
                if raw < 0x80:
                    pos += 1
                elif (high := data[pos + 1]) < 0x80:
                    raw += (high << 7) - 0x80
                    pos += 2
                else:
                    raw, pos = _long_number(data, pos, stop, 5, 0x0F)
                offset = base_offset + (raw >> 1)
                if raw & 1 or not previous < offset <= last_offset:
                    raise RecordFormatError(6)
                if pos > stop:
                    raise RecordFormatError(1)
                if offset < wanted:
                    pos = stop
                    previous = offset
                    remaining -= 1
                    continue
                if not is_append_time:
                    timestamp = base_time + ((time_raw >> 1) ^ -(time_raw & 1))
                    if (is_near_edge or time_raw >= _NEAR_EDGE) and not _INT64_MIN <= timestamp <= _INT64_MAX:
                        raise RecordFormatError(7)
                # The key.
                raw = data[pos]
                if raw < 0x80:
                    pos += 1
                elif (high := data[pos + 1]) < 0x80:
                    raw += (high << 7) - 0x80
                    pos += 2
                else:
                    raw, pos = _long_number(data, pos, stop, 5, 0x0F)
                if raw & 1:
                    if raw != 1:
                        raise RecordFormatError(3)
                    key = None
                else:
                    after = pos + (raw >> 1)
                    if after > stop:
                        raise RecordFormatError(3)
                    key = data[pos:after]
                    pos = after
                # The value.
                raw = data[pos]
                if raw < 0x80:
                    pos += 1
                elif (high := data[pos + 1]) < 0x80:
                    raw += (high << 7) - 0x80
                    pos += 2
                else:
                    raw, pos = _long_number(data, pos, stop, 5, 0x0F)
                if raw & 1:
                    if raw != 1:
                        raise RecordFormatError(3)
                    value = None
                else:
                    after = pos + (raw >> 1)
                    if after > stop:
                        raise RecordFormatError(3)
                    value = data[pos:after]
                    pos = after
                # The headers.
                raw = data[pos]
                if raw == 0:
                    pos += 1
                    if pos != stop:
                        raise RecordFormatError(5)
                    headers = ()
                else:
                    count, pos = _int(data, pos, stop)
                    if count < 0 or count > (stop - pos) // 2:
                        raise RecordFormatError(4)
                    if count > MOST_HEADERS:
                        raise RecordFormatError(10)
                    if count == 0 and pos != stop:
                        raise RecordFormatError(5)
                    headers = _headers(data, pos, stop, count) if with_headers else ()
                    pos = stop
                add_offset(offset)
                add_time(timestamp)
                add_key(key)
                add_value(value)
                add_headers(headers)
                previous = offset
                wanted = offset + 1
                limit -= 1
                remaining -= 1
            start = pos
        except IndexError:
            raise RecordFormatError(1) from None
        finally:
            self._pos, self._previous, self.remaining, self.next_offset = start, previous, remaining, wanted
        if remaining == 0 and pos != end:
            raise RecordFormatError(8)


def scan(data: Buffer, fetch_offset: int) -> tuple[int, int, int]:
    """See `kadence.records.batch.scan`."""
    view = memoryview(data)
    pos, end = 0, view.nbytes
    next_offset, records = fetch_offset, 0
    while end - pos > _MAGIC_AT:
        base, length, magic = _FRAME.unpack_from(view, pos)
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
            return next_offset, records, end
        if length + LOG_OVERHEAD > end - pos:
            break
        fields = HEADER.unpack_from(view, pos)
        delta, count = fields[6], fields[12]
        if frame_fault(base, length, delta, count):
            return next_offset, records, end
        after = base + delta + 1
        if after > next_offset:
            if not fields[5] & CONTROL:
                records += min(count, after - next_offset)
            next_offset = after
        pos += length + LOG_OVERHEAD
    return next_offset, records, pos
