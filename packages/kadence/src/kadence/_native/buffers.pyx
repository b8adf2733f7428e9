"""Memory that grows while columns are gathered, and the buffers made of it. Slices of the memory of answers.

Functions that are called for each record are in buffers.pxd, to be compiled into their callers.
"""

import cython
from cython.cimports.cpython.buffer import (
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.pythread import (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from cython.cimports.cpython.slice import PySlice_AdjustIndices, PySlice_Check, PySlice_Unpack
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memcpy, memset

from kadence._native.shared import BinaryColumn


# --- memory that was used before ----------------------------------------------------------------------------

# Fresh memory costs a page fault when it is first written, three quarters of the cost of large columns. So blocks
# are kept when they are freed, down to sizes for which malloc maps no memory of its own: with
# the columns of a table it frees a megabyte at the end of its heap, gives that back to the system, and asks for it
# again for the next table. Threads only try the lock: one that does not get it allocates fresh memory, so none waits,
# and a fork in a bad moment leaves no child hanging.

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
    """The smallest spare that is large enough; NULL if none fits. ``room`` becomes the size of the spare."""
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
def give_up(data: cython.p_uchar, room: cython.Py_ssize_t) -> cython.void:
    """Free memory, or keep it for the next column and free the oldest spare instead."""
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
    """Free the kept memory that was not used since the last such call; all of it if ``everything``."""
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
def grow(byte_buffer: cython.pointer(ByteBuffer), more: cython.Py_ssize_t) -> cython.bint:
    """Grow, at least by half, to have room for ``more`` bytes. False: there is no memory."""
    room: cython.Py_ssize_t = byte_buffer.size + more
    if room < byte_buffer.room + byte_buffer.room // 2:
        room = byte_buffer.room + byte_buffer.room // 2
    if room < 64:
        room = 64
    room = kd_whole_pages(room)
    data: cython.p_uchar = _take_spare(cython.address(room))
    if data != cython.NULL:
        if byte_buffer.size:
            memcpy(data, byte_buffer.data, byte_buffer.size)
        give_up(byte_buffer.data, byte_buffer.room)
    else:
        data = cython.cast(cython.p_uchar, kd_grow(byte_buffer.data, byte_buffer.size, room))
    if data == cython.NULL:
        return False
    byte_buffer.data = data
    byte_buffer.room = room
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def mark_null(byte_buffer: cython.pointer(ByteBuffer), row: cython.Py_ssize_t) -> cython.bint:
    """Set a row's bit in a bitmap of nulls, which reaches only as far as its last null."""
    need: cython.Py_ssize_t = (row >> 3) + 1
    if need > byte_buffer.size:
        if not make_room(byte_buffer, need - byte_buffer.size):
            return False
        memset(byte_buffer.data + byte_buffer.size, 0, need - byte_buffer.size)
        byte_buffer.size = need
    byte_buffer.data[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
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
        give_up(self.data, self.room)

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
def block(byte_buffer: cython.pointer(ByteBuffer)) -> Block:
    """Hand a buffer's memory over to a buffer object, giving back what it does not need."""
    made: Block = Block.__new__(Block)
    data: cython.p_uchar
    if byte_buffer.data == cython.NULL and not make_room(byte_buffer, 1):
        raise MemoryError
    if (
        byte_buffer.room - byte_buffer.size > 4096
        and byte_buffer.room - byte_buffer.size > byte_buffer.size >> 3
    ):
        if byte_buffer.size < SPARE_FROM and byte_buffer.room >= SPARE_FROM:
            # A small column must not keep a block that the next large one can use.
            data = cython.cast(cython.p_uchar, malloc(byte_buffer.size or 1))
            if data != cython.NULL:
                memcpy(data, byte_buffer.data, byte_buffer.size)
                give_up(byte_buffer.data, byte_buffer.room)
                byte_buffer.data = data
                byte_buffer.room = byte_buffer.size or 1
        elif byte_buffer.room > byte_buffer.size + byte_buffer.size // 2 or byte_buffer.room < SPARE_FROM:
            data = cython.cast(cython.p_uchar, realloc(byte_buffer.data, byte_buffer.size or 1))
            if data != cython.NULL:
                byte_buffer.data = data
                byte_buffer.room = byte_buffer.size or 1
    made.data = byte_buffer.data
    made.size = byte_buffer.size
    made.room = byte_buffer.room
    byte_buffer.data = cython.NULL
    byte_buffer.size = byte_buffer.room = 0
    return made


@cython.cfunc
def validity(nulls: cython.pointer(ByteBuffer), rows: cython.Py_ssize_t) -> object:
    """Arrow's bitmap (1 = present) from ours (1 = null)."""
    need: cython.Py_ssize_t = (rows + 7) >> 3
    i: cython.Py_ssize_t
    if nulls.size < need:
        if not make_room(nulls, need - nulls.size):
            raise MemoryError
        memset(nulls.data + nulls.size, 0, need - nulls.size)
        nulls.size = need
    for i in range(need):
        nulls.data[i] = cython.cast(cython.uchar, ~nulls.data[i] & 0xFF)
    if rows & 7:
        nulls.data[need - 1] &= cython.cast(cython.uchar, (1 << (rows & 7)) - 1)
    return block(nulls)


@cython.cfunc
def column(strings: cython.pointer(Strings), rows: cython.Py_ssize_t) -> object:
    null_count: cython.Py_ssize_t = strings.null_count
    present = validity(cython.address(strings.nulls), rows) if null_count else None
    return BinaryColumn(
        block(cython.address(strings.ends)), block(cython.address(strings.data)), present, null_count
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def free_strings(strings: cython.pointer(Strings)) -> cython.void:
    give_up(strings.ends.data, strings.ends.room)
    give_up(strings.data.data, strings.data.room)
    give_up(strings.nulls.data, strings.nulls.room)


# --- memory that several threads have parts of --------------------------------------------------------------

# The cycle collector looks into neither class: they lead to bytes only, so there is no cycle through them, and it must
# not take the owner away from a buffer that is given back later.


@cython.no_gc
@cython.final
@cython.cclass
class _Held:
    """The buffer of an owner's memory, which keeps it where it is."""

    view: Py_buffer

    def __dealloc__(self):
        PyBuffer_Release(cython.address(self.view))


@cython.no_gc
@cython.final
@cython.cclass
class MemorySlice:
    """A part of another object's memory, writable; for threads that make and drop parts of the same memory at once.

    It does what is needed of a memoryview, which is not safe there: CPython counts by plain additions how many views
    share a buffer, and how often a bytearray or a mapping is exported (gh-127716). Without the interpreter's lock two
    threads lose a count now and then, and the memory is freed while one of them reads it, or never. A slice has a
    reference to what keeps the memory, which is counted atomically, and no other count.

    A memoryview of a slice shares nothing with other ones, but the slices of that view share it.
    """

    held: _Held
    data: cython.p_uchar
    size: cython.Py_ssize_t

    def __getbuffer__(self, view: cython.pointer(Py_buffer), flags: cython.int):
        PyBuffer_FillInfo(view, self, self.data, self.size, False, flags)

    def __len__(self) -> cython.Py_ssize_t:
        return self.size

    def __getitem__(self, key: object) -> object:
        """A byte, or what lies in a slice without a step."""
        start: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = 0
        step: cython.Py_ssize_t = 0
        if PySlice_Check(key):
            PySlice_Unpack(key, cython.address(start), cython.address(end), cython.address(step))
            if step != 1:
                raise ValueError("a slice of memory is cut without steps")
            size: cython.Py_ssize_t = PySlice_AdjustIndices(
                self.size, cython.address(start), cython.address(end), step
            )
            return _part(self.held, self.data + start, size)
        start = key
        if start < 0:
            start += self.size
        if not 0 <= start < self.size:
            raise IndexError("a place outside of the slice")
        return self.data[start]

    def __repr__(self) -> str:
        return f"<MemorySlice of {self.size} bytes>"


@cython.cfunc
def _part(held: _Held, data: cython.p_uchar, size: cython.Py_ssize_t) -> MemorySlice:
    part: MemorySlice = MemorySlice.__new__(MemorySlice)
    part.held = held
    part.data = data
    part.size = size
    return part


def memory_slice(memory: object) -> MemorySlice:
    """All of a writable object's memory. Once for each: the object's own count of exports may not be atomic."""
    held: _Held = _Held.__new__(_Held)
    PyObject_GetBuffer(memory, cython.address(held.view), PyBUF_WRITABLE)
    return _part(held, cython.cast(cython.p_uchar, held.view.buf), held.view.len)
