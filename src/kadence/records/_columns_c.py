# mypy: ignore-errors
"""The compiled half of the decoder: one cursor over a batch's records feeds record objects and columns.

Cython in pure-Python syntax, so that editors and ruff read it; it is never run uncompiled (that would be ten
times slower than `_columns_py`, the tuned twin with the same interface). The rules of the file:

- No byte is read without comparing with an end first. Lengths come from the wire and may say anything.
- A cursor reads lengths into locals before it compares, so bytes that change meanwhile cannot move a check.
- Numbers from the wire are signed before they are compared: with an unsigned temporary the zig-zag of a null
  key (-1) becomes 4294967295 and passes as a length.
- Whatever may take long and touches no Python object runs outside the interpreter's lock.
"""

import cython
from cython.cimports.cpython.buffer import (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import INT64_MAX, INT64_MIN
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset

from kadence.records._shared import RecordFormatError, describe, rebuild_record, replace
from kadence.records.columns import BinaryColumn, Columns, HeaderColumn

if not cython.compiled:
    raise ImportError("kadence.records._columns_c is not compiled")

kd_crc32c_init()  # noqa: F821 - from _columns_c.pxd

UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 32768)
"""Work on this many bytes and more gives up the interpreter's lock: some 2 µs of work against 0.1 µs to come back."""

LIMIT = cython.declare(cython.Py_ssize_t, 2147483647)

Row = cython.struct(
    offset=cython.longlong,
    timestamp=cython.longlong,
    key=cython.p_uchar,
    key_size=cython.int,
    value=cython.p_uchar,
    value_size=cython.int,
    headers=cython.p_uchar,
    header_count=cython.int,
    end=cython.p_uchar,
)

Pile = cython.struct(data=cython.p_uchar, size=cython.Py_ssize_t, room=cython.Py_ssize_t)

Strings = cython.struct(ends=Pile, data=Pile, nulls=Pile, null_count=cython.Py_ssize_t)


# --- numbers ------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varint(
    at: cython.pointer(cython.p_uchar), end: cython.p_uchar, into: cython.pointer(cython.int)
) -> cython.bint:
    """Read a zig-zag 32-bit number and step over it; False when it is cut off or too long."""
    p: cython.p_uchar = at[0]
    if p >= end:
        return False
    byte: cython.uint = p[0]
    raw: cython.uint = byte & 0x7F
    shift: cython.uint = 7
    while byte & 0x80:
        p += 1
        if p >= end or shift > 28:
            return False
        byte = p[0]
        if shift == 28 and byte > 0x0F:
            return False
        raw |= (byte & 0x7F) << shift
        shift += 7
    half: cython.int = cython.cast(cython.int, raw >> 1)
    into[0] = ~half if raw & 1 else half
    at[0] = p + 1
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _varlong(
    at: cython.pointer(cython.p_uchar), end: cython.p_uchar, into: cython.pointer(cython.longlong)
) -> cython.bint:
    """Read a zig-zag 64-bit number and step over it; False when it is cut off or too long."""
    p: cython.p_uchar = at[0]
    if p >= end:
        return False
    byte: cython.ulonglong = p[0]
    raw: cython.ulonglong = byte & 0x7F
    shift: cython.uint = 7
    while byte & 0x80:
        p += 1
        if p >= end or shift > 63:
            return False
        byte = p[0]
        if shift == 63 and byte > 1:
            return False
        raw |= (byte & 0x7F) << shift
        shift += 7
    half: cython.longlong = cython.cast(cython.longlong, raw >> 1)
    into[0] = ~half if raw & 1 else half
    at[0] = p + 1
    return True


def crc32c(data: object, crc: cython.uint = 0, *, portable: bool = False) -> int:
    """CRC-32C of a buffer, going on from ``crc``. ``portable`` leaves the processor's instruction unused."""
    view: Py_buffer  # noqa: F821
    plain: cython.bint = portable
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        if view.len >= UNLOCKED_FROM:
            with cython.nogil:
                crc = kd_crc32c(crc, cython.cast(cython.p_uchar, view.buf), view.len, plain)  # noqa: F821
        else:
            crc = kd_crc32c(crc, cython.cast(cython.p_uchar, view.buf), view.len, plain)  # noqa: F821
    finally:
        PyBuffer_Release(cython.address(view))
    return crc


def crc32c_kernel() -> str:
    """The kernel that this processor gets."""
    return "sse4.2" if kd_hardware else "slicing-by-8"  # noqa: F821


# --- the record ---------------------------------------------------------------------------------------------


@cython.final
@cython.freelist(512)
@cython.cclass
class Record:
    """One record. Immutable, hashable, picklable; equality is by value.

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

    topic = cython.declare(object, visibility="readonly")
    partition = cython.declare(cython.int, visibility="readonly")
    offset = cython.declare(cython.longlong, visibility="readonly")
    timestamp = cython.declare(cython.longlong, visibility="readonly")
    timestamp_type = cython.declare(cython.int, visibility="readonly")
    key = cython.declare(object, visibility="readonly")
    value = cython.declare(object, visibility="readonly")
    headers = cython.declare(object, visibility="readonly")
    leader_epoch = cython.declare(object, visibility="readonly")

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp=-1,
        timestamp_type=0,
        key=None,
        value=None,
        headers=(),
        leader_epoch=None,
    ):
        if self.topic is not None:
            raise TypeError("a record is immutable")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers if type(headers) is tuple else tuple(headers)
        self.leader_epoch = leader_epoch

    def _fields(self):
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

    def replace(self, **changes):
        """A copy with some fields changed."""
        return replace(self, changes)

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return self._fields() == cython.cast(Record, other)._fields()

    def __hash__(self):
        # Not key and value: a deserialiser may have made unhashable things of them.
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        return describe(self)

    def __reduce__(self):
        return (rebuild_record, self._fields())


# --- the cursor ---------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class Cursor:
    """Reads the records of one batch after the other; `open` gives it a batch's records, decompressed.

    Attributes:
        remaining: records of the open batch that are not read yet.
        next_offset: offset after the last record read.
    """

    topic: object
    partition: cython.int
    remaining = cython.declare(cython.Py_ssize_t, visibility="readonly")
    next_offset = cython.declare(cython.longlong, visibility="readonly")
    view: Py_buffer  # noqa: F821
    is_open: cython.bint
    at: cython.p_uchar
    end: cython.p_uchar
    base_offset: cython.longlong
    last_offset: cython.longlong
    base_timestamp: cython.longlong
    timestamp_type: cython.int
    append_time: cython.longlong
    leader_epoch: object

    def __cinit__(self, topic: str, partition: cython.int):
        self.topic = topic
        self.partition = partition

    def __dealloc__(self):
        if self.is_open:
            PyBuffer_Release(cython.address(self.view))

    def close(self) -> None:
        """Let go of the batch."""
        self.remaining = 0
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(cython.address(self.view))

    def open(
        self,
        data: object,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        first_wanted: cython.longlong,
        base_timestamp: cython.longlong,
        timestamp_type: cython.int,
        append_time: cython.longlong,
        leader_epoch: object,
    ) -> None:
        """Begin with the batch whose records are ``data[start:end]``.

        Records below ``first_wanted`` are stepped over. With ``timestamp_type`` 1 every record has the
        timestamp ``append_time``.

        Raises:
            RecordFormatError: the batch cannot hold ``count`` records.
        """
        self.close()
        PyObject_GetBuffer(data, cython.address(self.view), PyBUF_SIMPLE)
        self.is_open = True
        if start < 0 or end < start or end > self.view.len:
            self.close()
            raise ValueError("the range lies outside the data")
        if count > (end - start) // 7:
            self.close()
            raise RecordFormatError(9)
        self.at = cython.cast(cython.p_uchar, self.view.buf) + start
        self.end = cython.cast(cython.p_uchar, self.view.buf) + end
        self.remaining = count
        self.next_offset = first_wanted
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.base_timestamp = base_timestamp
        self.timestamp_type = timestamp_type
        self.append_time = append_time
        self.leader_epoch = leader_epoch

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _step(self, row: cython.pointer(Row)) -> cython.int:
        """Read one record's fields. 0: it is in ``row``; -1: it is below the wanted offset; else a reason.

        Nothing moves when a reason is returned, so asking again gives the same answer.
        """
        at: cython.p_uchar = self.at
        end: cython.p_uchar = self.end
        size: cython.int = 0
        delta: cython.int = 0
        time: cython.longlong = 0
        if not _varint(cython.address(at), end, cython.address(size)):
            return 1
        if size < 0 or size > end - at:
            return 2
        end = at + size
        if at >= end:
            return 1
        at += 1
        if not _varlong(cython.address(at), end, cython.address(time)):
            return 1
        if not _varint(cython.address(at), end, cython.address(delta)):
            return 1
        row.offset = self.base_offset + delta
        if delta < 0 or row.offset > self.last_offset:
            return 6
        if row.offset < self.next_offset:
            self.at = end
            self.remaining -= 1
            return -1
        if self.timestamp_type == 1:
            row.timestamp = self.append_time
        else:
            if time > 0:
                if self.base_timestamp > INT64_MAX - time:
                    return 7
            elif self.base_timestamp < INT64_MIN - time:
                return 7
            row.timestamp = self.base_timestamp + time
        if not _varint(cython.address(at), end, cython.address(row.key_size)):
            return 1
        if row.key_size < -1 or row.key_size > end - at:
            return 3
        row.key = at
        if row.key_size > 0:
            at += row.key_size
        if not _varint(cython.address(at), end, cython.address(row.value_size)):
            return 1
        if row.value_size < -1 or row.value_size > end - at:
            return 3
        row.value = at
        if row.value_size > 0:
            at += row.value_size
        if not _varint(cython.address(at), end, cython.address(row.header_count)):
            return 1
        if row.header_count < 0 or row.header_count > (end - at) // 2:
            return 4
        if row.header_count == 0 and at != end:
            return 5
        row.headers = at
        row.end = end
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _accept(self, row: cython.pointer(Row)) -> cython.void:
        """Step over the record that `_step` read."""
        self.at = row.end
        self.remaining -= 1
        self.next_offset = row.offset + 1

    @cython.cfunc
    @cython.inline
    def _leftover(self) -> cython.int:
        """Reason 8 when the batch has bytes beyond its last record."""
        return 8 if self.remaining == 0 and self.is_open and self.at != self.end else 0

    def take(self, out: list, limit: cython.Py_ssize_t) -> None:
        """Append up to ``limit`` records to ``out``.

        Raises:
            RecordFormatError: the next record cannot be read; those before it are in ``out``.
        """
        row: Row
        reason: cython.int
        record: Record
        topic: object = self.topic
        epoch: object = self.leader_epoch
        headers: object
        empty: tuple = ()
        while limit > 0 and self.remaining > 0:
            reason = self._step(cython.address(row))
            if reason < 0:
                continue
            if reason > 0:
                raise RecordFormatError(reason)
            headers = _headers(row.headers, row.end, row.header_count) if row.header_count else empty
            record = Record.__new__(Record)
            record.topic = topic
            record.partition = self.partition
            record.offset = row.offset
            record.timestamp = row.timestamp
            record.timestamp_type = self.timestamp_type
            if row.key_size >= 0:
                record.key = PyBytes_FromStringAndSize(cython.cast(cython.p_char, row.key), row.key_size)
            if row.value_size >= 0:
                record.value = PyBytes_FromStringAndSize(
                    cython.cast(cython.p_char, row.value), row.value_size
                )
            record.headers = headers
            record.leader_epoch = epoch
            out.append(record)
            self._accept(cython.address(row))
            limit -= 1
        if self._leftover():
            raise RecordFormatError(8)

    def gather(
        self, into: ColumnsBuilder, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t
    ) -> cython.bint:
        """Append up to ``limit`` records to columns; stop early when they hold ``byte_limit`` bytes of keys and values.

        Returns whether the columns are full.

        Raises:
            RecordFormatError: the next record cannot be read; those before it are in the columns.
        """
        reason: cython.int
        if limit > self.remaining:
            limit = self.remaining
        guess: cython.Py_ssize_t = 0
        if self.remaining > 0:
            guess = cython.cast(
                cython.Py_ssize_t, cython.cast(cython.double, self.end - self.at) * limit / self.remaining
            )
        if not into.reserve(limit, guess):
            raise MemoryError
        if self.end - self.at >= UNLOCKED_FROM:
            with cython.nogil:
                reason = into.fill(self, limit, byte_limit)
        else:
            reason = into.fill(self, limit, byte_limit)
        if reason == 0:
            reason = self._leftover()
        if reason == OUT_OF_MEMORY:
            raise MemoryError
        if reason > 0:
            raise RecordFormatError(reason)
        return reason == FULL


FULL = cython.declare(cython.int, -2)
OUT_OF_MEMORY = cython.declare(cython.int, -3)


@cython.cfunc
def _headers(at: cython.p_uchar, end: cython.p_uchar, count: cython.int) -> tuple:
    """Decode a record's headers, which must end where the record does."""
    size: cython.int = 0
    out: list = []
    key: object
    value: object
    while count > 0:
        count -= 1
        if not _varint(cython.address(at), end, cython.address(size)):
            raise RecordFormatError(1)
        if size < 0 or size > end - at:
            raise RecordFormatError(4)
        key = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, "replace")
        at += size
        if not _varint(cython.address(at), end, cython.address(size)):
            raise RecordFormatError(1)
        if size < -1 or size > end - at:
            raise RecordFormatError(4)
        value = None
        if size >= 0:
            value = PyBytes_FromStringAndSize(cython.cast(cython.p_char, at), size)
            at += size
        out.append((key, value))
    if at != end:
        raise RecordFormatError(5)
    return tuple(out)


# --- memory that grows --------------------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _room(pile: cython.pointer(Pile), more: cython.Py_ssize_t) -> cython.bint:
    """Make room for ``more`` bytes, growing by half; False without memory."""
    if pile.room - pile.size >= more:
        return True
    room: cython.Py_ssize_t = pile.size + more
    if room < pile.room + pile.room // 2:
        room = pile.room + pile.room // 2
    if room < 64:
        room = 64
    data: cython.p_uchar = cython.cast(cython.p_uchar, realloc(pile.data, room))
    if data == cython.NULL:
        return False
    pile.data = data
    pile.room = room
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int(pile: cython.pointer(Pile), number: cython.Py_ssize_t) -> cython.void:
    """Append an int32; room was made before."""
    cython.cast(cython.p_int, pile.data + pile.size)[0] = cython.cast(cython.int, number)
    pile.size += 4


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _mark_null(pile: cython.pointer(Pile), row: cython.Py_ssize_t) -> cython.bint:
    """Set a row's bit in a bitmap of nulls, which reaches only as far as its last null."""
    need: cython.Py_ssize_t = (row >> 3) + 1
    if need > pile.size:
        if not _room(pile, need - pile.size):
            return False
        memset(pile.data + pile.size, 0, need - pile.size)
        pile.size = need
    pile.data[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add_string(
    strings: cython.pointer(Strings), row: cython.Py_ssize_t, data: cython.p_uchar, size: cython.Py_ssize_t
) -> cython.bint:
    """Append one byte string, null when its size is negative; room for its end was made before."""
    if size > 0:
        if not _room(cython.address(strings.data), size):
            return False
        memcpy(strings.data.data + strings.data.size, data, size)
        strings.data.size += size
    elif size < 0:
        if not _mark_null(cython.address(strings.nulls), row):
            return False
        strings.null_count += 1
    _put_int(cython.address(strings.ends), strings.data.size)
    return True


@cython.final
@cython.cclass
class Block:
    """Memory from malloc that Python sees as a buffer (read-only unless it is scratch); Arrow holds it by reference."""

    data: cython.p_uchar
    size: cython.Py_ssize_t
    is_writable: cython.bint

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):  # noqa: F821
        PyBuffer_FillInfo(view, self, self.data, self.size, not self.is_writable, flags)

    def __len__(self) -> cython.Py_ssize_t:
        return self.size


def scratch(size: cython.Py_ssize_t) -> Block:
    """A writable buffer that is not zeroed: pages that are never written cost nothing."""
    block: Block = Block.__new__(Block)
    if size < 0:
        raise ValueError("a size below zero")
    block.data = cython.cast(cython.p_uchar, malloc(size if size else 1))
    if block.data == cython.NULL:
        raise MemoryError
    block.size = size
    block.is_writable = True
    return block


@cython.cfunc
def _block(pile: cython.pointer(Pile)) -> Block:
    """Hand a pile's memory over to a buffer object, giving back what it does not need."""
    block: Block = Block.__new__(Block)
    data: cython.p_uchar
    if pile.data == cython.NULL and not _room(pile, 1):
        raise MemoryError
    if pile.room - pile.size > 4096 and pile.room - pile.size > pile.size >> 3:
        data = cython.cast(cython.p_uchar, realloc(pile.data, pile.size if pile.size else 1))
        if data != cython.NULL:
            pile.data = data
    block.data = pile.data
    block.size = pile.size
    pile.data = cython.NULL
    pile.size = pile.room = 0
    return block


@cython.cfunc
def _validity(nulls: cython.pointer(Pile), rows: cython.Py_ssize_t) -> object:
    """Arrow's bitmap (1 = present) from ours (1 = null)."""
    need: cython.Py_ssize_t = (rows + 7) >> 3
    i: cython.Py_ssize_t
    if nulls.size < need:
        if not _room(nulls, need - nulls.size):
            raise MemoryError
        memset(nulls.data + nulls.size, 0, need - nulls.size)
        nulls.size = need
    for i in range(need):
        nulls.data[i] = cython.cast(cython.uchar, ~nulls.data[i] & 0xFF)
    return _block(nulls)


@cython.cfunc
def _column(strings: cython.pointer(Strings), rows: cython.Py_ssize_t) -> object:
    null_count: cython.Py_ssize_t = strings.null_count
    validity = _validity(cython.address(strings.nulls), rows) if null_count else None
    return BinaryColumn(
        _block(cython.address(strings.ends)), _block(cython.address(strings.data)), validity, null_count
    )


@cython.final
@cython.cclass
class ColumnsBuilder:
    """Columns under construction, from any number of batches of one partition.

    Attributes:
        rows: records gathered so far.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    with_headers: cython.bint
    offsets: Pile
    timestamps: Pile
    types: Pile
    key: Strings
    value: Strings
    header_ends: Pile
    header_nulls: Pile
    header_null_count: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    header_key: Strings
    header_value: Strings

    def __cinit__(self, headers: cython.bint = False):
        self.with_headers = headers

    def __dealloc__(self):
        free(self.offsets.data)
        free(self.timestamps.data)
        free(self.types.data)
        free(self.header_ends.data)
        free(self.header_nulls.data)
        _free_strings(cython.address(self.key))
        _free_strings(cython.address(self.value))
        _free_strings(cython.address(self.header_key))
        _free_strings(cython.address(self.header_value))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def reserve(self, rows: cython.Py_ssize_t, data: cython.Py_ssize_t) -> cython.bint:
        """Room for the fixed-width fields of ``rows`` more records, and ``data`` bytes of values as a guess."""
        first: cython.Py_ssize_t = 4 if self.rows == 0 else 0
        if not (
            _room(cython.address(self.offsets), 8 * rows)
            and _room(cython.address(self.timestamps), 8 * rows)
            and _room(cython.address(self.types), 4 * rows)
            and _room(cython.address(self.key.ends), 4 * rows + first)
            and _room(cython.address(self.value.ends), 4 * rows + first)
            and _room(cython.address(self.value.data), data)
            and (not self.with_headers or _room(cython.address(self.header_ends), 4 * rows + first))
            and (
                not self.with_headers
                or first == 0
                or (
                    _room(cython.address(self.header_key.ends), 4)
                    and _room(cython.address(self.header_value.ends), 4)
                )
            )
        ):
            return False
        if self.key.ends.size == 0:
            _put_int(cython.address(self.key.ends), 0)
            _put_int(cython.address(self.value.ends), 0)
            if self.with_headers:
                _put_int(cython.address(self.header_ends), 0)
                _put_int(cython.address(self.header_key.ends), 0)
                _put_int(cython.address(self.header_value.ends), 0)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> cython.int:
        """Gather records until a limit; 0, FULL, OUT_OF_MEMORY or the reason why the next one cannot be read."""
        row: Row
        reason: cython.int
        micros: cython.longlong
        while limit > 0 and cursor.remaining > 0:
            if self.key.data.size + self.value.data.size >= byte_limit and self.rows:
                return FULL
            reason = cursor._step(cython.address(row))
            if reason < 0:
                continue
            if reason > 0:
                return reason
            if (
                self.key.data.size + row.key_size > LIMIT or self.value.data.size + row.value_size > LIMIT
            ) and self.rows:
                return FULL
            if self.with_headers:
                reason = self._add_headers(cython.address(row))
                if reason != 0:
                    return reason
            if not _add_string(cython.address(self.key), self.rows, row.key, row.key_size):
                return OUT_OF_MEMORY
            if not _add_string(cython.address(self.value), self.rows, row.value, row.value_size):
                return OUT_OF_MEMORY
            if row.timestamp > INT64_MAX // 1000:
                micros = INT64_MAX
            elif row.timestamp < -(INT64_MAX // 1000):
                micros = INT64_MIN
            else:
                micros = row.timestamp * 1000
            cython.cast(cython.p_longlong, self.offsets.data + self.offsets.size)[0] = row.offset
            self.offsets.size += 8
            cython.cast(cython.p_longlong, self.timestamps.data + self.timestamps.size)[0] = micros
            self.timestamps.size += 8
            _put_int(cython.address(self.types), cursor.timestamp_type)
            self.rows += 1
            limit -= 1
            cursor._accept(cython.address(row))
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_headers(self, row: cython.pointer(Row)) -> cython.int:
        """Add a record's headers after checking all of them, so that a bad one leaves nothing behind."""
        at: cython.p_uchar = row.headers
        size: cython.int = 0
        count: cython.int = row.header_count
        while count > 0:
            count -= 1
            if not _varint(cython.address(at), row.end, cython.address(size)):
                return 1
            if size < 0 or size > row.end - at:
                return 4
            at += size
            if not _varint(cython.address(at), row.end, cython.address(size)):
                return 1
            if size < -1 or size > row.end - at:
                return 4
            if size > 0:
                at += size
        if at != row.end:
            return 5
        if 3 * (row.end - row.headers) > LIMIT:
            return 4
        if self.rows and (
            self.header_key.data.size + 3 * (row.end - row.headers) > LIMIT
            or self.header_value.data.size + (row.end - row.headers) > LIMIT
        ):
            return FULL
        if row.header_count == 0:
            if not _mark_null(cython.address(self.header_nulls), self.rows):
                return OUT_OF_MEMORY
            self.header_null_count += 1
        at = row.headers
        count = row.header_count
        if not _room(cython.address(self.header_key.ends), 4 * count):
            return OUT_OF_MEMORY
        if not _room(cython.address(self.header_value.ends), 4 * count):
            return OUT_OF_MEMORY
        while count > 0:
            count -= 1
            _varint(cython.address(at), row.end, cython.address(size))
            if not self._add_name(at, size):
                return OUT_OF_MEMORY
            at += size
            _varint(cython.address(at), row.end, cython.address(size))
            if not _add_string(cython.address(self.header_value), self.header_count, at, size):
                return OUT_OF_MEMORY
            if size > 0:
                at += size
            self.header_count += 1
        _put_int(cython.address(self.header_ends), self.header_count)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_name(self, at: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Add a header's name, which Arrow wants as UTF-8 without error."""
        i: cython.Py_ssize_t
        for i in range(size):
            if at[i] & 0x80:
                with cython.gil:
                    return self._add_repaired(at, size)
        return _add_string(cython.address(self.header_key), 0, at, size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add_repaired(self, at: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        try:
            name = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, "replace").encode("utf-8")
        except MemoryError:
            return False
        return _add_string(
            cython.address(self.header_key),
            0,
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(name)),
            PyBytes_GET_SIZE(name),
        )

    def finish(self, topic: str, partition: int) -> object:
        """The columns gathered; the builder is empty afterwards."""
        rows: cython.Py_ssize_t = self.rows
        headers: object = None
        if not self.reserve(0, 0):
            raise MemoryError
        nbytes: cython.Py_ssize_t = (
            self.offsets.size * 3 + self.key.data.size + self.value.data.size + self.key.ends.size * 2
        )
        if self.with_headers:
            nbytes += (
                self.header_ends.size
                + self.header_key.ends.size * 2
                + self.header_key.data.size
                + self.header_value.data.size
            )
            null_count: cython.Py_ssize_t = self.header_null_count
            headers = HeaderColumn(
                _block(cython.address(self.header_ends)),
                _validity(cython.address(self.header_nulls), rows) if null_count else None,
                null_count,
                self.header_count,
                _column(cython.address(self.header_key), self.header_count),
                _column(cython.address(self.header_value), self.header_count),
            )
        columns = Columns(
            topic,
            partition,
            rows,
            _block(cython.address(self.offsets)),
            _block(cython.address(self.timestamps)),
            _block(cython.address(self.types)),
            _column(cython.address(self.key), rows),
            _column(cython.address(self.value), rows),
            headers,
            nbytes,
        )
        self.rows = 0
        self.key.null_count = self.value.null_count = 0
        self.header_key.null_count = self.header_value.null_count = 0
        self.header_null_count = self.header_count = 0
        return columns


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _free_strings(strings: cython.pointer(Strings)) -> cython.void:
    free(strings.ends.data)
    free(strings.data.data)
    free(strings.nulls.data)
