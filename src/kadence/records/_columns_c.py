# mypy: ignore-errors
"""The compiled half of the columns: rows of a cursor gathered into buffers in Arrow's layout.

Cython in pure-Python syntax; `_columns_py` is the twin with the same interface. Rows are copied in one pass into
memory that grows, so a batch needs no index first. Gathering touches no Python object and runs outside the
interpreter's lock.
"""

import cython
from cython.cimports.cpython.buffer import PyBuffer_FillInfo
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.pythread import (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.kadence.records._records_c import Cursor, Row
from cython.cimports.libc.stdint import INT64_MAX, INT64_MIN
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset

from kadence.records._shared import RecordFormatError
from kadence.records.columns import OWN_COLUMNS, BinaryColumn, Columns, HeaderColumn

if not cython.compiled:
    raise ImportError("kadence.records._columns_c is not compiled")

UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 32768)
LIMIT = cython.declare(cython.Py_ssize_t, 2147483647)

FULL = cython.declare(cython.int, -2)
OUT_OF_MEMORY = cython.declare(cython.int, -3)

Pile = cython.struct(data=cython.p_uchar, size=cython.Py_ssize_t, room=cython.Py_ssize_t)

Strings = cython.struct(ends=Pile, data=Pile, nulls=Pile, null_count=cython.Py_ssize_t)


# --- memory that was used before ----------------------------------------------------------------------------

# A page of fresh memory costs a fault when it is first written, which for large columns is three quarters of all
# their cost. So blocks are kept when they are given up, down to sizes for which malloc maps no memory of its own: with
# the columns of a table it frees a megabyte at the end of its heap, gives that back to the system, and asks for it
# again for the next table. The lock is only ever tried: whoever does not get it goes without, so nobody waits, and a
# fork in a bad moment leaves no child hanging.

SPARE_FROM = cython.declare(cython.Py_ssize_t, 16384)
SPARE_BYTES = cython.declare(cython.Py_ssize_t, 67108864)
SPARES = cython.declare(cython.int, 8)

Spare = cython.struct(data=cython.p_uchar, room=cython.Py_ssize_t, is_idle=cython.bint)

spares = cython.declare(Spare[128])
spare_count = cython.declare(cython.int, 0)
spare_bytes = cython.declare(cython.Py_ssize_t, 0)
spare_lock = cython.declare(PyThread_type_lock, PyThread_allocate_lock())


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _drop_spare(place: cython.int) -> cython.p_uchar:
    """Take a spare out of the list; the lock is held."""
    global spare_count, spare_bytes
    data: cython.p_uchar = spares[place].data
    spare_bytes -= spares[place].room
    spare_count -= 1
    while place < spare_count:
        spares[place] = spares[place + 1]
        place += 1
    return data


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _take_spare(room: cython.pointer(cython.Py_ssize_t)) -> cython.p_uchar:
    """The smallest spare of at least this room, which becomes its own; NULL when none is fit for it."""
    data: cython.p_uchar = cython.NULL
    best: cython.int = -1
    i: cython.int
    if room[0] < SPARE_FROM or room[0] > SPARE_BYTES or spare_lock == cython.NULL:
        return cython.NULL
    if not PyThread_acquire_lock(spare_lock, NOWAIT_LOCK):
        return cython.NULL
    for i in range(spare_count):
        if room[0] <= spares[i].room <= room[0] + room[0] // 2 and (
            best < 0 or spares[i].room < spares[best].room
        ):
            best = i
    if best >= 0:
        room[0] = spares[best].room
        data = _drop_spare(best)
    PyThread_release_lock(spare_lock)
    return data


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _give_up(data: cython.p_uchar, room: cython.Py_ssize_t) -> cython.void:
    """Free memory, or keep it for the next column in place of what was given up first."""
    global spare_count, spare_bytes
    if (
        data == cython.NULL
        or room < SPARE_FROM
        or room > SPARE_BYTES // 2
        or spare_lock == cython.NULL
        or not PyThread_acquire_lock(spare_lock, NOWAIT_LOCK)
    ):
        free(data)
        return
    while spare_count == SPARES or spare_bytes + room > SPARE_BYTES:
        free(_drop_spare(0))
    spares[spare_count].data = data
    spares[spare_count].room = room
    spares[spare_count].is_idle = False
    spare_count += 1
    spare_bytes += room
    PyThread_release_lock(spare_lock)


def spare_memory() -> int:
    """Bytes kept for the next columns."""
    return spare_bytes


def release_idle(everything: bool = False) -> None:
    """Free the kept memory that nobody used since the last such call; all of it if ``everything``."""
    i: cython.int = 0
    if spare_lock == cython.NULL or not PyThread_acquire_lock(spare_lock, NOWAIT_LOCK):
        return
    while i < spare_count:
        if everything or spares[i].is_idle:
            free(_drop_spare(i))
        else:
            spares[i].is_idle = True
            i += 1
    PyThread_release_lock(spare_lock)


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
    data: cython.p_uchar = _take_spare(cython.address(room))
    if data != cython.NULL:
        if pile.size:
            memcpy(data, pile.data, pile.size)
        _give_up(pile.data, pile.room)
    else:
        data = cython.cast(cython.p_uchar, realloc(pile.data, room))
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
    room: cython.Py_ssize_t
    is_writable: cython.bint

    def __dealloc__(self):
        _give_up(self.data, self.room)

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, not self.is_writable, flags)

    def __len__(self) -> cython.Py_ssize_t:
        return self.size


def scratch(size: cython.Py_ssize_t) -> Block:
    """A writable buffer that is not zeroed: pages that are never written cost nothing."""
    block: Block = Block.__new__(Block)
    if size < 0:
        raise ValueError("a size below zero")
    block.room = size or 1
    block.data = _take_spare(cython.address(block.room))
    if block.data == cython.NULL:
        block.data = cython.cast(cython.p_uchar, malloc(block.room))
    if block.data == cython.NULL:
        block.room = 0
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
        if pile.size < SPARE_FROM and pile.room >= SPARE_FROM:
            # A column that turned out small must not hold memory that a large one could have used before.
            data = cython.cast(cython.p_uchar, malloc(pile.size or 1))
            if data != cython.NULL:
                memcpy(data, pile.data, pile.size)
                _give_up(pile.data, pile.room)
                pile.data = data
                pile.room = pile.size or 1
        elif pile.room > pile.size + pile.size // 2 or pile.room < SPARE_FROM:
            data = cython.cast(cython.p_uchar, realloc(pile.data, pile.size or 1))
            if data != cython.NULL:
                pile.data = data
                pile.room = pile.size or 1
    block.data = pile.data
    block.size = pile.size
    block.room = pile.room
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
    if rows & 7:
        nulls.data[need - 1] &= cython.cast(cython.uchar, (1 << (rows & 7)) - 1)
    return _block(nulls)


@cython.cfunc
def _column(strings: cython.pointer(Strings), rows: cython.Py_ssize_t) -> object:
    null_count: cython.Py_ssize_t = strings.null_count
    validity = _validity(cython.address(strings.nulls), rows) if null_count else None
    return BinaryColumn(
        _block(cython.address(strings.ends)), _block(cython.address(strings.data)), validity, null_count
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _free_strings(strings: cython.pointer(Strings)) -> cython.void:
    _give_up(strings.ends.data, strings.ends.room)
    _give_up(strings.data.data, strings.data.room)
    _give_up(strings.nulls.data, strings.nulls.room)


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

    def __cinit__(self, columns: object = OWN_COLUMNS):
        self.with_key = "key" in columns
        self.with_value = "value" in columns
        self.with_timestamps = "timestamp" in columns
        self.with_types = "timestampType" in columns
        self.with_headers = "headers" in columns

    def __dealloc__(self):
        _give_up(self.offsets.data, self.offsets.room)
        _give_up(self.timestamps.data, self.timestamps.room)
        _give_up(self.types.data, self.types.room)
        free(self.header_ends.data)
        free(self.header_nulls.data)
        _free_strings(cython.address(self.key))
        _free_strings(cython.address(self.value))
        _free_strings(cython.address(self.header_key))
        _free_strings(cython.address(self.header_value))

    def gather(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> bool:
        """Append up to ``limit`` records of a cursor; stop early when keys and values reach ``byte_limit`` bytes.

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
        cursor.is_busy = False
        if reason == OUT_OF_MEMORY:
            raise MemoryError
        if reason == 0 and cursor.has_leftover():
            reason = 8
        if reason > 0:
            raise RecordFormatError(reason)
        return reason == FULL

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def prepare(self, cursor: Cursor, limit: cython.Py_ssize_t, byte_limit: cython.Py_ssize_t) -> cython.bint:
        """Room for what is to come of the open batch; its values are taken to be alike.

        Where the bytes are bounded there is room for all of them from the beginning, if the fetch has as many: memory
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
            _room(cython.address(self.offsets), 8 * rows)
            and (not self.with_timestamps or _room(cython.address(self.timestamps), 8 * rows))
            and (not self.with_types or _room(cython.address(self.types), 4 * rows))
            and (not self.with_key or _room(cython.address(self.key.ends), 4 * rows + first))
            and (not self.with_value or _room(cython.address(self.value.ends), 4 * rows + first))
            and (not self.with_value or _room(cython.address(self.value.data), data))
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
        if self.with_key and self.key.ends.size == 0:
            _put_int(cython.address(self.key.ends), 0)
        if self.with_value and self.value.ends.size == 0:
            _put_int(cython.address(self.value.ends), 0)
        if self.with_headers and self.header_ends.size == 0:
            _put_int(cython.address(self.header_ends), 0)
            _put_int(cython.address(self.header_key.ends), 0)
            _put_int(cython.address(self.header_value.ends), 0)
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
        return _room(cython.address(self.key.data), most if most > size else size)

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
            if self.payload >= byte_limit and self.rows:
                return FULL
            reason = cursor.step(cython.address(row))
            if reason < 0:
                continue
            if reason > 0:
                return reason
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
                if not _add_string(cython.address(self.key), self.rows, row.key, row.key_size):
                    return OUT_OF_MEMORY
            if self.with_value and not _add_string(
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
                _put_int(cython.address(self.types), cursor.timestamp_type)
            self.rows += 1
            limit -= 1
            cursor.at = row.end
            cursor.remaining -= 1
            cursor.previous = row.offset
            cursor.next_offset = row.offset + 1
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
            kd_varint(cython.address(at), row.end, cython.address(size))
            if not self._add_name(at, size):
                return OUT_OF_MEMORY
            at += size
            kd_varint(cython.address(at), row.end, cython.address(size))
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
        if self.with_headers:
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
            _block(cython.address(self.timestamps)) if self.with_timestamps else None,
            _block(cython.address(self.types)) if self.with_types else None,
            _column(cython.address(self.key), rows) if self.with_key else None,
            _column(cython.address(self.value), rows) if self.with_value else None,
            headers,
            self.payload,
        )
        self.rows = self.payload = 0
        self.key.null_count = self.value.null_count = 0
        self.header_key.null_count = self.header_value.null_count = 0
        self.header_null_count = self.header_count = 0
        return columns
