# mypy: ignore-errors
"""The compiled half of the encoder: records appended to one growing piece of memory, then sealed into a batch.

Cython in pure-Python syntax; `_builder_py` is the plain twin with the same interface. A record is measured
before its first byte is written, and the size moves only when all of it stands: an append that raises
leaves the encoder as it was.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy

from kadence.errors import RecordTooLargeError

if not cython.compiled:
    raise ImportError("kadence.records._builder_c is not compiled")

kd_crc32c_init()

HEADER = cython.declare(cython.Py_ssize_t, 61)
LIMIT = cython.declare(cython.Py_ssize_t, 2147483647)
UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 32768)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(p: cython.p_uchar, number: cython.longlong) -> cython.p_uchar:
    """Write a zig-zag number (32 and 64 bits look the same) and return the place after it."""
    raw: cython.ulonglong = cython.cast(cython.ulonglong, number) << 1
    if number < 0:
        raw = ~raw
    while raw >= 0x80:
        p[0] = cython.cast(cython.uchar, (raw & 0x7F) | 0x80)
        p += 1
        raw >>= 7
    p[0] = cython.cast(cython.uchar, raw)
    return p + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _width(number: cython.longlong) -> cython.Py_ssize_t:
    """Bytes that `_put` needs for a number."""
    raw: cython.ulonglong = cython.cast(cython.ulonglong, number) << 1
    if number < 0:
        raw = ~raw
    width: cython.Py_ssize_t = 1
    while raw >= 0x80:
        raw >>= 7
        width += 1
    return width


@cython.final
@cython.cclass
class _Bytes:
    """A key or value while it is copied: where it lies, and what keeps it there."""

    data: cython.p_uchar
    size: cython.Py_ssize_t
    is_held: cython.bint
    view: Py_buffer

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(cython.address(self.view))

    @cython.cfunc
    def hold(self, value: object) -> cython.void:
        """Point at a value's bytes; size -1 for None."""
        if value is None:
            self.data = cython.NULL
            self.size = -1
        elif type(value) is bytes:
            self.data = cython.cast(cython.p_uchar, PyBytes_AS_STRING(value))
            self.size = PyBytes_GET_SIZE(value)
        else:
            PyObject_GetBuffer(value, cython.address(self.view), PyBUF_SIMPLE)
            self.is_held = True
            self.data = cython.cast(cython.p_uchar, self.view.buf)
            self.size = self.view.len

    @cython.cfunc
    @cython.exceptval(check=False)
    def let_go(self) -> cython.void:
        if self.is_held:
            self.is_held = False
            PyBuffer_Release(cython.address(self.view))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_bytes(p: cython.p_uchar, data: cython.p_uchar, size: cython.Py_ssize_t) -> cython.p_uchar:
    p = _put(p, size)
    if size > 0:
        memcpy(p, data, size)
        p += size
    return p


@cython.cclass
class RecordEncoder:
    """Records of one batch under construction, uncompressed.

    Attributes:
        count: records so far.
        size: bytes of the batch if it were sealed now without compression, header included.
        base_timestamp: timestamp of the first record (ms), -1 before it.
        max_timestamp: the latest timestamp (ms), -1 before the first record.
    """

    count = cython.declare(cython.int, visibility="readonly")
    base_timestamp = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    data: cython.p_uchar
    used: cython.Py_ssize_t
    room: cython.Py_ssize_t
    key: _Bytes
    value: _Bytes

    def __cinit__(self):
        self.key = _Bytes.__new__(_Bytes)
        self.value = _Bytes.__new__(_Bytes)
        self.base_timestamp = self.max_timestamp = -1

    def __dealloc__(self):
        free(self.data)

    @property
    def size(self) -> int:
        return HEADER + self.used

    def append(self, timestamp: cython.longlong, key, value, headers=()) -> int:
        """Add a record and return the new `size`.

        Args:
            timestamp: milliseconds since 1970 UTC.
            key: bytes-like or None. value: bytes-like or None.
            headers: pairs of (str, bytes-like or None).

        Raises:
            RecordTooLargeError: the batch would pass 2 GiB.
            TypeError: a key, value or header of another type.
        """
        self._append(timestamp, key, value, headers)
        return HEADER + self.used

    def extend(self, records) -> None:
        """Add many records, each (timestamp, key, value, headers)."""
        for timestamp, key, value, headers in records:
            self._append(timestamp, key, value, headers)

    @cython.cfunc
    def _append(self, timestamp: cython.longlong, key, value, headers) -> cython.void:
        try:
            self.key.hold(key)
            self.value.hold(value)
            self._write(timestamp, None if not headers else tuple(headers))
        finally:
            self.key.let_go()
            self.value.let_go()

    @cython.cfunc
    def _write(self, timestamp: cython.longlong, headers: tuple | None) -> cython.void:
        # A difference that does not fit 64 bits wraps, here as in every reader that adds it back.
        base: cython.longlong = timestamp if self.count == 0 else self.base_timestamp
        delta: cython.longlong = cython.cast(
            cython.longlong, cython.cast(cython.ulonglong, timestamp) - cython.cast(cython.ulonglong, base)
        )
        name_size: cython.Py_ssize_t = 0
        name: cython.p_const_char
        encoded: list = []
        size: cython.Py_ssize_t = 1 + _width(delta) + _width(self.count)
        size += _width(self.key.size) + max(self.key.size, 0)
        size += _width(self.value.size) + max(self.value.size, 0)
        if headers is None:
            size += 1
        else:
            size += _width(len(headers))
            for key, value in headers:
                if type(key) is not str:
                    raise TypeError(f"a header's key must be str, not {type(key).__name__}")
                PyUnicode_AsUTF8AndSize(key, cython.address(name_size))
                if value is not None and type(value) is not bytes:
                    value = bytes(memoryview(value))
                encoded.append((key, value))
                size += _width(name_size) + name_size
                size += 1 if value is None else _width(PyBytes_GET_SIZE(value)) + PyBytes_GET_SIZE(value)
        if self.used + size + 5 + HEADER > LIMIT:
            raise RecordTooLargeError(f"a batch of {self.used + size} bytes; Kafka's format ends at 2 GiB")
        self._reserve(size + 5)
        p: cython.p_uchar = _put(self.data + self.used, size)
        p[0] = 0
        p = _put(p + 1, delta)
        p = _put(p, self.count)
        p = _put_bytes(p, self.key.data, self.key.size)
        p = _put_bytes(p, self.value.data, self.value.size)
        p = _put(p, len(encoded))
        for key, value in encoded:
            name = PyUnicode_AsUTF8AndSize(key, cython.address(name_size))
            p = _put_bytes(p, cython.cast(cython.p_uchar, name), name_size)
            if value is None:
                p = _put(p, -1)
            else:
                p = _put_bytes(
                    p, cython.cast(cython.p_uchar, PyBytes_AS_STRING(value)), PyBytes_GET_SIZE(value)
                )
        self.used = p - self.data
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1

    @cython.cfunc
    def _reserve(self, more: cython.Py_ssize_t) -> cython.void:
        if self.room - self.used >= more:
            return
        room: cython.Py_ssize_t = max(self.used + more, self.room + self.room // 2, 1024)
        data: cython.p_uchar = cython.cast(cython.p_uchar, realloc(self.data, room))
        if data == cython.NULL:
            raise MemoryError
        self.data = data
        self.room = room

    def records(self) -> bytes:
        """The records' bytes as they lie in an uncompressed batch."""
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.data), self.used)

    def seal(self, header: bytes, body: bytes | None) -> bytes:
        """``header`` (61 bytes) and ``body`` (our own records when None) as one batch, with its checksum in place."""
        data: cython.p_uchar = self.data
        size: cython.Py_ssize_t = self.used
        crc: cython.uint
        if body is not None:
            data = cython.cast(cython.p_uchar, PyBytes_AS_STRING(body))
            size = PyBytes_GET_SIZE(body)
        if PyBytes_GET_SIZE(header) != HEADER:
            raise ValueError("a batch header has 61 bytes")
        batch: bytes = PyBytes_FromStringAndSize(cython.NULL, HEADER + size)
        p: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(batch))
        memcpy(p, PyBytes_AS_STRING(header), HEADER)
        if size >= UNLOCKED_FROM:
            with cython.nogil:
                memcpy(p + HEADER, data, size)
                crc = kd_crc32c(0, p + 21, HEADER - 21 + size, False)
        else:
            if size:
                memcpy(p + HEADER, data, size)
            crc = kd_crc32c(0, p + 21, HEADER - 21 + size, False)
        p[17] = cython.cast(cython.uchar, crc >> 24)
        p[18] = cython.cast(cython.uchar, crc >> 16 & 0xFF)
        p[19] = cython.cast(cython.uchar, crc >> 8 & 0xFF)
        p[20] = cython.cast(cython.uchar, crc & 0xFF)
        return batch
