"""The plain half of the decoder: the same interface as `_records_c`, tuned for CPython's interpreter.

The one loop reads a batch as `bytes` (indexing and slicing those is faster than a memoryview) and takes the one
and two byte cases of each number inline: a call per number would cost more than the number. It makes lists,
one per field; record objects and columns are made from those lists by functions that loop in C.
"""

from __future__ import annotations

import sys
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn

from kadence.records._shared import (
    MOST_HEADERS,
    SMALLEST_RECORD,
    RecordFormatError,
    describe,
    rebuild_record,
    replace,
)
from kadence.types import K_co, MaybeNone, V_co

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer

__all__ = ["Cursor", "Headers", "Record", "Rows", "crc32c", "crc32c_kernel"]

crc32c: Callable[..., int] | None = None
"""None: `kadence.records.batch` looks for a package."""


scan: Callable[[Buffer, int], tuple[int, int, int]] | None = None
"""None: `kadence.records.batch` has its own."""


def crc32c_kernel() -> str:
    """The kernel of our own checksum; there is none in this half."""
    return "python"


_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_NEAR_EDGE: Final = 2**62
"""Below this, a timestamp and a difference of a few bytes cannot leave 64 bits together."""


Headers = tuple[tuple[str, bytes | None], ...]


class _Fields(Generic[K_co, V_co]):
    """The slots of a record and a constructor that may still write them."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K_co | MaybeNone
    value: V_co | MaybeNone
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class Record(_Fields[K_co, V_co]):
    """One record. Immutable, hashable, picklable; equality is by value.

    ``Record[str, Order]`` has keys that are strings and values that are orders.

    Attributes:
        topic: name of the topic. partition: its partition.
        offset: place in the partition.
        timestamp: milliseconds since 1970 UTC, -1 when the record has none.
        timestamp_type: 0 set by the producer, 1 by the broker, -1 none.
        key: bytes or None; what the deserialiser made of them where one is configured.
        value: as key.
        headers: tuple of (str, bytes or None); a name that is not UTF-8 has U+FFFD in place of what is wrong.
        leader_epoch: epoch of the leader that wrote it, None when unknown.
    """

    __slots__ = ()

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: K_co | None = None,
        value: V_co | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int | None = None,
    ) -> Record[K_co, V_co]:
        return _make(
            topic,
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers if type(headers) is tuple else tuple(headers),
            leader_epoch,
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a record is immutable: {name!r} cannot be set; replace() makes a changed copy")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a record is immutable: {name!r} cannot be deleted")

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def replace(self, **changes: Any) -> Record[Any, Any]:
        """A copy with some fields changed."""
        return replace(self, changes)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        # Not key and value: a deserialiser may have made unhashable things of them.
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return describe(self)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return (rebuild_record, self._fields())


def _make(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: Any,
    value: Any,
    headers: tuple[tuple[str, bytes | None], ...],
    leader_epoch: int | None,
) -> Record[Any, Any]:
    """A record, written as its mutable base and then locked by changing its class.

    Both have the same layout. Going through object.__setattr__ for nine fields would cost four times as much.
    """
    record: Any = _Fields()
    record.topic = topic
    record.partition = partition
    record.offset = offset
    record.timestamp = timestamp
    record.timestamp_type = timestamp_type
    record.key = key
    record.value = value
    record.headers = headers
    record.leader_epoch = leader_epoch
    record.__class__ = Record
    locked: Record[Any, Any] = record
    return locked


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
        timestamp ``append_time``. ``after`` is where the batch ends in the fetch. This half never goes on to the
        next batch by itself, so the other two are the compiled half's.

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
                    _make,
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
