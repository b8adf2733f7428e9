"""Columns: rows of a cursor gathered into buffers in Arrow's layout.

Rows are copied in one pass into memory that grows, so a batch needs no index first. Gathering touches no Python object
and runs outside the interpreter's lock.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.kadence._native.buffers import (
    ByteBuffer,
    Strings,
    add_string,
    block,
    column,
    free_strings,
    give_up,
    make_room,
    mark_null,
    put_int,
    validity,
)
from cython.cimports.kadence._native.records import Cursor, Row, kd_let_go
from cython.cimports.libc.stdint import INT64_MAX, INT64_MIN

from kadence._native.shared import OWN_COLUMNS, Columns, HeaderColumn, RecordFormatError

cdef extern from "varint.h" nogil:
    bint kd_varint(unsigned char** at, unsigned char* end, int* into)
    void kd_prefetch(unsigned char* at, Py_ssize_t size)

UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 32768)
LIMIT = cython.declare(cython.Py_ssize_t, 2147483647)

FULL = cython.declare(cython.int, -2)
OUT_OF_MEMORY = cython.declare(cython.int, -3)


@cython.final
@cython.cclass
class ColumnsBuilder:
    """Columns under construction, from any number of batches of one partition.

    Args:
        columns: names of the columns to make (`ALL_COLUMNS`); offsets are always there.

    Attributes:
        rows: records gathered so far.
        payload: bytes of their keys and values, whether there are columns of them or not.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    payload = cython.declare(cython.Py_ssize_t, visibility="readonly")
    with_key: cython.bint
    with_value: cython.bint
    with_timestamps: cython.bint
    with_types: cython.bint
    with_headers: cython.bint
    offsets: ByteBuffer
    timestamps: ByteBuffer
    types: ByteBuffer
    key: Strings
    value: Strings
    header_ends: ByteBuffer
    header_nulls: ByteBuffer
    header_null_count: cython.Py_ssize_t
    header_count: cython.Py_ssize_t
    header_key: Strings
    header_value: Strings

    def __cinit__(self, columns: object = OWN_COLUMNS):
        self.with_key = "key" in columns
        self.with_value = "value" in columns
        self.with_timestamps = "timestamp" in columns
        self.with_types = "timestampType" in columns
        self.with_headers = "headers" in columns

    def __dealloc__(self):
        give_up(self.offsets.data, self.offsets.room)
        give_up(self.timestamps.data, self.timestamps.room)
        give_up(self.types.data, self.types.room)
        give_up(self.header_ends.data, self.header_ends.room)
        give_up(self.header_nulls.data, self.header_nulls.room)
        free_strings(cython.address(self.key))
        free_strings(cython.address(self.value))
        free_strings(cython.address(self.header_key))
        free_strings(cython.address(self.header_value))

    def gather(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> bool:
        """Append up to ``limit`` records of a cursor; stop early when ``byte_limit`` bytes are reached.

        That is by keys and values together, or by the column of headers.

        Returns whether the columns are full.

        Raises:
            RecordFormatError: the next record cannot be read; those before it are in the columns.
        """
        reason: cython.int
        cursor.begin()
        if cursor.is_open and cursor.view.len >= UNLOCKED_FROM:
            with cython.nogil:
                reason = self.fill(cursor, limit, byte_limit)
        else:
            reason = self.fill(cursor, limit, byte_limit)
        if reason == 0 and cursor.has_leftover():
            reason = 8
        kd_let_go(cython.address(cursor.is_busy))
        if reason == OUT_OF_MEMORY:
            raise MemoryError
        if reason > 0:
            raise RecordFormatError(reason)
        return reason == FULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def prepare(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> cython.bint:
        """Room for what is to come of the open batch; its values are taken to be alike.

        If the bytes are bounded there is room for all of them from the beginning, if the fetch has as many: memory
        that grows is copied, and memory of ever the same size is used again.
        """
        left: cython.double = cursor.end - cursor.at
        rows: cython.Py_ssize_t = cursor.remaining
        whole: cython.Py_ssize_t
        if limit < rows:
            left = left * limit / rows
            rows = limit
        if byte_limit < LIMIT and self.rows == 0:
            whole = cython.cast(cython.p_uchar, cursor.view.buf) + cursor.view.len - cursor.at
            if byte_limit + (byte_limit >> 3) < whole:
                whole = byte_limit + (byte_limit >> 3)
            if left > whole or limit > cursor.remaining:
                left = whole
        return self.reserve(rows, cython.cast(cython.Py_ssize_t, left))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def reserve(self, rows: cython.Py_ssize_t, data: cython.Py_ssize_t) -> cython.bint:
        """Room for the fixed-width fields of ``rows`` more records, and ``data`` bytes of values as a guess."""
        first: cython.Py_ssize_t = 4 if self.rows == 0 else 0
        if not (
            make_room(cython.address(self.offsets), 8 * rows)
            and (not self.with_timestamps or make_room(cython.address(self.timestamps), 8 * rows))
            and (not self.with_types or make_room(cython.address(self.types), 4 * rows))
            and (not self.with_key or make_room(cython.address(self.key.ends), 4 * rows + first))
            and (not self.with_value or make_room(cython.address(self.value.ends), 4 * rows + first))
            and (not self.with_value or make_room(cython.address(self.value.data), data))
            and (not self.with_headers or make_room(cython.address(self.header_ends), 4 * rows + first))
            and (
                not self.with_headers
                or first == 0
                or (
                    make_room(cython.address(self.header_key.ends), 4)
                    and make_room(cython.address(self.header_value.ends), 4)
                )
            )
        ):
            return False
        if self.with_key and self.key.ends.size == 0:
            put_int(cython.address(self.key.ends), 0)
        if self.with_value and self.value.ends.size == 0:
            put_int(cython.address(self.value.ends), 0)
        if self.with_headers and self.header_ends.size == 0:
            put_int(cython.address(self.header_ends), 0)
            put_int(cython.address(self.header_key.ends), 0)
            put_int(cython.address(self.header_value.ends), 0)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _guess_keys(self, cursor: Cursor, size: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.bint:
        """Room for the keys of the open batch, all as long as its first; no more than the batch has bytes."""
        if size <= 0:
            return True
        rows: cython.Py_ssize_t = cursor.remaining
        if limit < rows:
            rows = limit
        most: cython.Py_ssize_t = cursor.end - cursor.at
        if rows < most // size:
            most = size * rows
        return make_room(cython.address(self.key.data), most if most > size else size)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> cython.int:
        """Gather records until a limit; 0, FULL, OUT_OF_MEMORY or the reason why the next one cannot be read."""
        row: Row
        reason: cython.int
        micros: cython.longlong
        if not self.prepare(cursor, limit, byte_limit):
            return OUT_OF_MEMORY
        while limit > 0:
            if cursor.remaining == 0:
                if not cursor.next_batch(LIMIT):
                    break
                if not self.prepare(cursor, limit, byte_limit):
                    return OUT_OF_MEMORY
            if self.rows and (self.payload >= byte_limit or self.header_bytes() >= byte_limit):
                return FULL
            reason = cursor.step(cython.address(row))
            if reason < 0:
                continue
            if reason > 0:
                return reason
            if row.end != cursor.end:
                kd_prefetch(row.end, row.end - cursor.at)
            if (
                (self.with_key and self.key.data.size + row.key_size > LIMIT)
                or (self.with_value and self.value.data.size + row.value_size > LIMIT)
            ) and self.rows:
                return FULL
            if self.with_headers:
                reason = self._add_headers(cython.address(row))
                if reason != 0:
                    return reason
            if self.with_key:
                if (
                    self.key.data.data == cython.NULL
                    and row.key_size > 0
                    and not self._guess_keys(cursor, row.key_size, limit)
                ):
                    return OUT_OF_MEMORY
                if not add_string(cython.address(self.key), self.rows, row.key, row.key_size):
                    return OUT_OF_MEMORY
            if self.with_value and not add_string(
                cython.address(self.value), self.rows, row.value, row.value_size
            ):
                return OUT_OF_MEMORY
            if row.key_size > 0:
                self.payload += row.key_size
            if row.value_size > 0:
                self.payload += row.value_size
            cython.cast(cython.p_longlong, self.offsets.data + self.offsets.size)[0] = row.offset
            self.offsets.size += 8
            if self.with_timestamps:
                if row.timestamp > INT64_MAX // 1000:
                    micros = INT64_MAX
                elif row.timestamp < -(INT64_MAX // 1000):
                    micros = INT64_MIN
                else:
                    micros = row.timestamp * 1000
                cython.cast(cython.p_longlong, self.timestamps.data + self.timestamps.size)[0] = micros
                self.timestamps.size += 8
            if self.with_types:
                put_int(cython.address(self.types), cursor.timestamp_type)
            self.rows += 1
            limit -= 1
            cursor.at = row.end
            cursor.remaining -= 1
            cursor.previous = row.offset
            cursor.next_offset = row.offset + 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def header_bytes(self) -> cython.Py_ssize_t:
        """Bytes of headers, with the least that their lengths take in a batch: an empty header counts, too."""
        return self.header_key.data.size + self.header_value.data.size + 2 * self.header_count

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
            if not kd_varint(cython.address(at), row.end, cython.address(size)):
                return 1
            if size < 0 or size > row.end - at:
                return 4
            at += size
            if not kd_varint(cython.address(at), row.end, cython.address(size)):
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
            if not mark_null(cython.address(self.header_nulls), self.rows):
                return OUT_OF_MEMORY
            self.header_null_count += 1
        at = row.headers
        count = row.header_count
        if not make_room(cython.address(self.header_key.ends), 4 * count):
            return OUT_OF_MEMORY
        if not make_room(cython.address(self.header_value.ends), 4 * count):
            return OUT_OF_MEMORY
        while count > 0:
            count -= 1
            kd_varint(cython.address(at), row.end, cython.address(size))
            if not self._add_name(at, size):
                return OUT_OF_MEMORY
            at += size
            kd_varint(cython.address(at), row.end, cython.address(size))
            if not add_string(cython.address(self.header_value), self.header_count, at, size):
                return OUT_OF_MEMORY
            if size > 0:
                at += size
            self.header_count += 1
        put_int(cython.address(self.header_ends), self.header_count)
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
        return add_string(cython.address(self.header_key), 0, at, size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add_repaired(self, at: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        try:
            name = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, "replace").encode("utf-8")
        except MemoryError:
            return False
        return add_string(
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
        if self.with_headers:
            null_count: cython.Py_ssize_t = self.header_null_count
            headers = HeaderColumn(
                block(cython.address(self.header_ends)),
                validity(cython.address(self.header_nulls), rows) if null_count else None,
                null_count,
                self.header_count,
                column(cython.address(self.header_key), self.header_count),
                column(cython.address(self.header_value), self.header_count),
            )
        columns = Columns(
            topic,
            partition,
            rows,
            block(cython.address(self.offsets)),
            block(cython.address(self.timestamps)) if self.with_timestamps else None,
            block(cython.address(self.types)) if self.with_types else None,
            column(cython.address(self.key), rows) if self.with_key else None,
            column(cython.address(self.value), rows) if self.with_value else None,
            headers,
            self.payload,
        )
        self.rows = self.payload = 0
        self.key.null_count = self.value.null_count = 0
        self.header_key.null_count = self.header_value.null_count = 0
        self.header_null_count = self.header_count = 0
        return columns
