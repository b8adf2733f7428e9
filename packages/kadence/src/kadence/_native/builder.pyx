"""The encoder: records appended to one growing piece of memory, then sealed into a batch.

frame.h writes the records; an append that raises leaves the encoder as it was.
"""

import cython
from cython.cimports.cpython.buffer import (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.libc.stdlib import free
from cython.cimports.libc.string import memcpy

from kadence.errors import IllegalStateError, RecordTooLargeError

kd_crc32c_init()

HEADER = cython.declare(cython.Py_ssize_t, 61)
# Below it a copy and a checksum take less than 500 µs. A thread that releases the GIL beside one that computes
# gets it back after 5 ms: with batches of 1 MB each a producer could send no more than 200 MB/s.
UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 2097152)


@cython.final
@cython.cclass
class _View:
    """Keeps the memory of a key or value that is not bytes where it is, while it is copied."""

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(cython.address(self.view))


@cython.cfunc
def _point(
    value: object, data: cython.pointer[cython.p_uchar], size: cython.pointer[cython.Py_ssize_t]
) -> object:
    """Point at a value's bytes; size -1 for None. Returns what must live as long as the pointer is used."""
    if value is None:
        data[0] = cython.NULL
        size[0] = -1
        return None
    if type(value) is bytes:
        data[0] = cython.cast(cython.p_uchar, PyBytes_AS_STRING(value))
        size[0] = PyBytes_GET_SIZE(value)
        return value
    held: _View = _View.__new__(_View)
    PyObject_GetBuffer(value, cython.address(held.view), PyBUF_SIMPLE)
    held.is_held = True
    data[0] = cython.cast(cython.p_uchar, held.view.buf)
    size[0] = held.view.len
    return held


@cython.no_gc
@cython.cclass
class RecordEncoder:
    """Records of one batch under construction, uncompressed.

    The cycle collector does not look at it: it refers to text, numbers and bytes alone.

    Attributes:
        count: records so far.
        size: bytes of the batch if it were sealed now without compression, header included.
        base_timestamp: timestamp of the first record (ms), -1 before it.
        max_timestamp: the latest timestamp (ms), -1 before the first record.
        packed: the records compressed, with what they were compressed with and their number; None before.
    """

    def __cinit__(self):
        self.frame.base = self.frame.latest = -1
        self.frame.used = HEADER

    def __dealloc__(self):
        free(self.frame.data)

    @property
    def count(self) -> int:
        return self.frame.count

    @property
    def is_sealed(self) -> bool:
        """Whether it was sealed in place."""
        return self.frame.is_sealed != 0

    @property
    def base_timestamp(self) -> int:
        return self.frame.base

    @property
    def max_timestamp(self) -> int:
        return self.frame.latest

    @property
    def size(self) -> int:
        return self.frame.used

    def reserve(self, size: cython.Py_ssize_t) -> None:
        """Reserve the number of bytes that the caller expects to need."""
        if self.frame.is_sealed:
            # The memory is in use, and stays where it is.
            raise IllegalStateError("a batch that was sealed in place takes no more records")
        if not kd_reserve(cython.address(self.frame), size):
            raise MemoryError

    def append(self, timestamp: cython.longlong, key, value, headers=()) -> int:
        """Add a record and return the new `size`.

        Args:
            timestamp: milliseconds since 1970 UTC.
            key: bytes-like or None. value: bytes-like or None.
            headers: pairs of (str, bytes-like or None).

        Raises:
            RecordTooLargeError: the batch would pass 2 GiB.
            IllegalStateError: `seal_in_place` was called.
            TypeError: a key, value or header of another type.
        """
        self._append(timestamp, key, value, headers)
        return self.frame.used

    def extend(self, records) -> None:
        """Add many records, each (timestamp, key, value, headers)."""
        for timestamp, key, value, headers in records:
            self._append(timestamp, key, value, headers)

    @cython.cfunc
    def _append(self, timestamp: cython.longlong, key, value, headers) -> cython.void:
        key_data: cython.p_uchar = cython.NULL
        value_data: cython.p_uchar = cython.NULL
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        name_size: cython.Py_ssize_t = 0
        name: cython.p_const_char
        encoded: list | None = None
        count: cython.Py_ssize_t = 0
        tail: cython.Py_ssize_t = 1
        p: cython.p_uchar
        # Local to this call: reading buffers and headers may run other code, which may append here, too.
        key_held = _point(key, cython.address(key_data), cython.address(key_size))
        value_held = _point(value, cython.address(value_data), cython.address(value_size))
        if headers:
            encoded = []
            for name_text, content in headers:
                if type(name_text) is not str:
                    raise TypeError(f"a header's key must be str, not {type(name_text).__name__}")
                PyUnicode_AsUTF8AndSize(name_text, cython.address(name_size))
                if content is not None and type(content) is not bytes:
                    content = bytes(memoryview(content))
                encoded.append((name_text, content))
                tail += kd_width(name_size) + name_size
                tail += 1 if content is None else kd_width(PyBytes_GET_SIZE(content)) + PyBytes_GET_SIZE(content)
            count = len(encoded)
            tail += kd_width(count) - 1
        # From here on no Python object is made: the names' UTF-8 was made above, and their strings keep it.
        done: cython.int = kd_add(
            cython.address(self.frame),
            timestamp,
            key_data,
            key_size,
            value_data,
            value_size,
            tail,
            cython.address(p),
        )
        if done == 0:
            raise MemoryError
        if done < 0 and self.frame.is_sealed:
            raise IllegalStateError("a batch that was sealed in place takes no more records")
        if done < 0:
            raise RecordTooLargeError(
                f"a batch of more than {self.frame.used} bytes; Kafka's format ends at 2 GiB"
            )
        p = kd_put(p, count)
        if encoded is None:
            return
        for name_text, content in encoded:
            name = PyUnicode_AsUTF8AndSize(name_text, cython.address(name_size))
            p = kd_put_bytes(p, cython.cast(cython.p_uchar, name), name_size)
            if content is None:
                p = kd_put(p, -1)
            else:
                p = kd_put_bytes(
                    p, cython.cast(cython.p_uchar, PyBytes_AS_STRING(content)), PyBytes_GET_SIZE(content)
                )

    def records(self) -> bytes:
        """The records' bytes as they lie in an uncompressed batch."""
        if self.frame.data == cython.NULL:
            return b""
        return PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, self.frame.data + HEADER), self.frame.used - HEADER
        )

    def seal(self, header: bytes, body: bytes | None) -> bytes:
        """``header`` (61 bytes) and ``body`` (our own records when None) as one batch, with its checksum in place."""
        data: cython.p_uchar = self.frame.data + HEADER
        size: cython.Py_ssize_t = self.frame.used - HEADER
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
        elif size:
            memcpy(p + HEADER, data, size)
        _check(p, HEADER + size)
        return batch

    def seal_in_place(self, header: bytes) -> memoryview:
        """As `seal`, without a copy: the batch lies where its records were written, and takes no more of them.

        It may be called again with another header, once the result of an earlier call is no longer used.
        """
        if PyBytes_GET_SIZE(header) != HEADER or self.frame.data == cython.NULL:
            raise ValueError("a batch has a header of 61 bytes, and records")
        memcpy(self.frame.data, PyBytes_AS_STRING(header), HEADER)
        self.frame.is_sealed = True
        _check(self.frame.data, self.frame.used)
        return memoryview(self)

    def __getbuffer__(self, buffer: cython.pointer(Py_buffer), flags: cython.int):
        if not self.frame.is_sealed:
            raise BufferError("a batch has bytes once it was sealed in place")
        PyBuffer_FillInfo(buffer, self, self.frame.data, self.frame.used, True, flags)


@cython.cfunc
def _check(batch: cython.p_uchar, size: cython.Py_ssize_t) -> cython.void:
    """Put the checksum of a batch in its place."""
    crc: cython.uint
    if size >= UNLOCKED_FROM:
        with cython.nogil:
            crc = kd_crc32c(0, batch + 21, size - 21, False)
    else:
        crc = kd_crc32c(0, batch + 21, size - 21, False)
    batch[17] = cython.cast(cython.uchar, crc >> 24)
    batch[18] = cython.cast(cython.uchar, crc >> 16 & 0xFF)
    batch[19] = cython.cast(cython.uchar, crc >> 8 & 0xFF)
    batch[20] = cython.cast(cython.uchar, crc & 0xFF)
