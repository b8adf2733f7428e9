"""The decoder: the checksum, the record, and the cursor that both shapes are read with.

The rules of the file:

- No byte is read without comparing with an end first. Lengths come from the wire and may say anything.
- A length is read into a local before it is compared, so bytes that change meanwhile cannot move a check.
- Whatever may take long and touches no Python object runs outside the interpreter's lock.
"""

from types import GenericAlias

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import INT64_MAX, INT64_MIN, uint32_t, uint64_t

from kadence.errors import ConcurrentAccessError
from kadence._native.shared import MOST_HEADERS, RecordFormatError, describe, rebuild_record, replace

kd_crc32c_init()

UNLOCKED_FROM = cython.declare(cython.Py_ssize_t, 32768)
"""Work on this many bytes and more gives up the interpreter's lock: some 2 µs of work against 0.1 µs to come back."""

CHECKED_AHEAD = cython.declare(cython.Py_ssize_t, 2097152)
"""The bytes that `Cursor.check_ahead` covers: they should still be in the processor's cache when records are made."""

HEADERS = cython.declare(cython.int, MOST_HEADERS)


# --- the checksum ---------------------------------------------------------------------------------------------


def crc32c(data: object, crc: cython.uint = 0, *, portable: bool = False) -> int:
    """CRC-32C of a buffer, going on from ``crc``. ``portable`` leaves the processor's instruction unused."""
    view: Py_buffer
    plain: cython.bint = portable
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        if view.len >= UNLOCKED_FROM:
            with cython.nogil:
                crc = kd_crc32c(crc, cython.cast(cython.p_uchar, view.buf), view.len, plain)
        else:
            crc = kd_crc32c(crc, cython.cast(cython.p_uchar, view.buf), view.len, plain)
    finally:
        PyBuffer_Release(cython.address(view))
    return crc


def crc32c_kernel() -> str:
    """The kernel that this processor gets."""
    return "sse4.2" if kd_hardware else "slicing-by-8"


# --- the record ---------------------------------------------------------------------------------------------


@cython.final
@cython.cclass
class Record:
    """One record. Immutable, hashable, picklable; equality is by value.

    ``Record[str, Order]`` has keys that are strings and values that are orders.

    Attributes:
        topic: name of the topic. partition: its partition.
        offset: place in the partition.
        timestamp: milliseconds since 1970 UTC, -1 when the record has none.
        timestamp_type: 0 set by the producer, 1 by the broker, -1 none.
        key: bytes or None; the deserialiser's result if one is configured.
        value: as key.
        headers: tuple of (str, bytes or None); a name that is not UTF-8 has U+FFFD in place of what is wrong.
        leader_epoch: epoch of the leader that wrote it, None when unknown.
        delivery_count: how often a queue has delivered it, this time included; None when no queue has.
    """

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
        delivery_count=None,
    ):
        number: cython.longlong = offset
        if self.topic is not None:
            raise TypeError("a record is immutable")
        self.topic = topic
        self.partition = partition
        self.offset = number
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers if type(headers) is tuple else tuple(headers)
        self.leader_epoch = leader_epoch
        self.deliveries = 0 if delivery_count is None else delivery_count
        # The decoder's records cannot be part of a cycle; an application's fields may refer to anything.
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)

    __class_getitem__ = classmethod(GenericAlias)

    @property
    def delivery_count(self):
        return self.deliveries or None

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
            self.deliveries or None,
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


@cython.cfunc
def with_content(raw: Record, key: object, value: object) -> Record:
    """A copy with this key and value; for compiled callers."""
    record: Record = Record.__new__(Record)
    record.topic = raw.topic
    record.partition = raw.partition
    record.offset = raw.offset
    record.timestamp = raw.timestamp
    record.timestamp_type = raw.timestamp_type
    record.key = key
    record.value = value
    record.headers = raw.headers
    record.leader_epoch = raw.leader_epoch
    record.deliveries = raw.deliveries
    if PyObject_IS_GC(key) or PyObject_IS_GC(value):
        # See __init__. Texts and numbers lead nowhere.
        PyObject_GC_Track(record)
    return record


def set_delivery_count(records: list, delivery_count: cython.int) -> None:
    """Set the delivery count of records that were just decoded, and that no other code has yet."""
    record: Record
    for record in records:
        record.deliveries = delivery_count


def _prepare_record_type() -> None:
    """Make attribute access and allocation cheaper than Cython does by itself; see record_type.h."""
    marks = [object() for _ in range(4)]
    headers = tuple(marks)
    record: Record = Record(marks[0], 0, 1 << 40, -1, 0, marks[1], marks[2], headers, marks[3])
    kd_add_slot(record, b"topic", marks[0])
    kd_add_slot(record, b"key", marks[1])
    kd_add_slot(record, b"value", marks[2])
    kd_add_slot(record, b"leader_epoch", marks[3])
    kd_add_slot(record, b"headers", headers)
    kd_add_slot(record, b"offset", record.offset)
    kd_keep_bytes(record, marks[1], marks[2], cython.address(record.is_own))
    kd_allocate_untracked(Record)


_prepare_record_type()


# --- the headers of batches -----------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(p: cython.p_uchar) -> cython.int:
    raw: uint32_t = (
        cython.cast(uint32_t, p[0]) << 24
        | cython.cast(uint32_t, p[1]) << 16
        | cython.cast(uint32_t, p[2]) << 8
        | cython.cast(uint32_t, p[3])
    )
    return cython.cast(cython.int, raw)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(p: cython.p_uchar) -> cython.longlong:
    high: uint64_t = cython.cast(uint32_t, _int32(p))
    low: uint64_t = cython.cast(uint32_t, _int32(p + 4))
    return cython.cast(cython.longlong, high << 32 | low)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_header(p: cython.p_uchar, end: cython.p_uchar, header: cython.pointer(Header)) -> cython.Py_ssize_t:
    """Read a batch's header. Its size in bytes; 0 when it is cut off by ``end``, -1 when it cannot be true.

    The same judgement as `kadence.records.batch.frame_fault`, and like there the magic comes first: an old
    message may be shorter than our header.
    """
    if end - p <= 16:
        return 0
    header.length = _int32(p + 8)
    if p[16] != 2 or header.length < 49:
        return -1
    if header.length > end - p - 12:
        return 0
    header.base_offset = _int64(p)
    header.leader_epoch = _int32(p + 12)
    header.crc = cython.cast(uint32_t, _int32(p + 17))
    header.attributes = cython.cast(cython.int, p[21]) << 8 | p[22]
    header.last_delta = _int32(p + 23)
    header.base_timestamp = _int64(p + 27)
    header.max_timestamp = _int64(p + 35)
    header.count = _int32(p + 57)
    if header.base_offset < 0 or header.last_delta < 0 or header.count < 0:
        return -1
    if header.base_offset >= INT64_MAX - header.last_delta:
        return -1
    return cython.cast(cython.Py_ssize_t, header.length) + 12


def scan(data: object, fetch_offset: cython.longlong) -> tuple:
    """Walk over the headers of fetched batches; no checksum, no decompression, no error.

    Where a header cannot be true the walk ends, and the rest counts as complete: its reader gets the error.

    Returns:
        next_offset: offset after the last complete batch, ``fetch_offset`` without one.
        record_count: how many records may come out (not control records, not those below ``fetch_offset``).
        complete_bytes: bytes of complete batches; 0 when there is only the beginning of one.
    """
    view: Py_buffer
    header: Header
    size: cython.Py_ssize_t
    after: cython.longlong
    fresh: cython.longlong
    count: cython.longlong = 0
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    at: cython.p_uchar = cython.cast(cython.p_uchar, view.buf)
    end: cython.p_uchar = at + view.len
    while True:
        size = _read_header(at, end, cython.address(header))
        if size <= 0:
            break
        after = header.base_offset + header.last_delta + 1
        fresh = after - fetch_offset
        if fresh > 0:
            if not header.attributes & 0x20:
                count += fresh if fresh < header.count else header.count
            fetch_offset = after
        at += size
    complete: cython.Py_ssize_t = (end if size < 0 else at) - cython.cast(cython.p_uchar, view.buf)
    PyBuffer_Release(cython.address(view))
    return fetch_offset, count, complete


# --- the cursor ---------------------------------------------------------------------------------------------


# The cycle collector does not look into it, so it takes the memoryview that is read for in use, and leaves it alone
# until the cursor is gone. CPython before 3.12.7 clears memoryviews of garbage though their buffer is in use
# (gh-77894), and crashes when that is given back. A cycle through the owner of the bytes would never be freed; our
# owners refer to nothing.
@cython.no_gc
@cython.cclass
class Cursor:
    """Reads the records of one batch after the other; `open_batch` gives it a batch's records, decompressed.

    From a batch that lies uncompressed among others it goes on by itself to the ones that follow, as long as
    they are ordinary: so a fetch full of small batches costs no call for each of them. Where a batch is anything
    but ordinary it stops, and its subclass `FetchedRecords` has a closer look.

    Attributes:
        topic: name of the topic. partition: its partition.
        remaining: records of the open batch that are not read yet.
        next_offset: offset after the last record read.
        after: where the open batch ends in the bytes of the fetch.
        after_offset: offset after the open batch.
        leader_epoch: epoch of the leader that wrote the open batch; None: unknown.
    """

    def __init__(self, topic: str, partition: cython.int):
        self.topic = topic
        self.partition = partition

    def __dealloc__(self):
        if self.is_open:
            PyBuffer_Release(cython.address(self.view))

    def close_batch(self) -> None:
        """Let go of the batch."""
        self.begin()
        self._release()
        kd_let_go(cython.address(self.is_busy))

    @cython.cfunc
    def _release(self) -> cython.void:
        self.remaining = 0
        if self.is_open:
            self.is_open = False
            PyBuffer_Release(cython.address(self.view))

    def open_batch(
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
        leader_epoch: cython.int,
        after: cython.Py_ssize_t,
        goes_on: cython.bint,
        check_crcs: cython.bint,
    ) -> None:
        """Begin with the batch whose records are ``data[start:end]``.

        Records below ``first_wanted`` are stepped over. With ``timestamp_type`` 1 every record has the
        timestamp ``append_time``. ``after`` is where the batch ends in the fetch; with ``goes_on`` that is a place
        in ``data``, and the batches there are ordinary according to their headers.

        Raises:
            RecordFormatError: the batch cannot hold ``count`` records.
        """
        self.begin()
        try:
            self._hold(data, start, end, count)
        except BaseException:
            kd_let_go(cython.address(self.is_busy))
            raise
        self.at = cython.cast(cython.p_uchar, self.view.buf) + start
        self.end = cython.cast(cython.p_uchar, self.view.buf) + end
        self.remaining = count
        self.next_offset = first_wanted
        self.base_offset = base_offset
        self.previous = base_offset - 1
        self.last_offset = last_offset
        self.base_timestamp = base_timestamp
        self.timestamp_type = timestamp_type
        self.append_time = append_time
        self.epoch = leader_epoch
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch
        self.after = after
        self.after_offset = last_offset + 1
        self.goes_on = goes_on
        self.check_crcs = check_crcs
        self.checked = after if check_crcs else PY_SSIZE_T_MAX
        if goes_on and check_crcs and self.view.len - after > UNLOCKED_FROM:
            with cython.nogil:
                self.check_ahead()
        kd_let_go(cython.address(self.is_busy))

    @cython.cfunc
    def _hold(
        self, data: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t
    ) -> cython.void:
        """Take other bytes in place of those before."""
        self._release()
        PyObject_GetBuffer(data, cython.address(self.view), PyBUF_SIMPLE)
        self.is_open = True
        if start < 0 or end < start or end > self.view.len:
            self._release()
            raise ValueError("the range lies outside the data")
        if count > (end - start) // 7:
            self._release()
            raise RecordFormatError(9)

    @cython.final
    @cython.cfunc
    def begin(self) -> cython.void:
        """Enter a reading, during which no thread may take the bytes away; its end lets go of ``is_busy``."""
        if kd_take(cython.address(self.is_busy)):
            raise ConcurrentAccessError("records are being read by another thread")

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def check_ahead(self) -> cython.void:
        """Verify the large batches that follow, as far as they are ordinary.

        So the cursor can go on to them at once, if the reader keeps the GIL.
        """
        header: Header
        size: cython.Py_ssize_t
        start: cython.p_uchar = cython.cast(cython.p_uchar, self.view.buf)
        until: cython.Py_ssize_t = self.after + CHECKED_AHEAD
        at: cython.Py_ssize_t = self.after
        while at < until:
            size = _read_header(start + at, start + self.view.len, cython.address(header))
            if size <= 0 or size <= UNLOCKED_FROM or header.attributes & 0x27:
                break
            if kd_crc32c(0, start + at + 21, size - 21, False) != header.crc:
                break
            at += size
            self.checked = at

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_batch(self, largest: cython.Py_ssize_t) -> cython.bint:
        """Go on to the following batch if it is ordinary; nothing moves if not.

        One that is to be verified yet may have up to ``largest`` bytes.

        Ordinary: whole, true as far as can be seen, uncompressed, no control batch, of the same leader epoch, with
        records that are wanted. One without any is left by compaction, which keeps the header for its producer.
        """
        header: Header
        if not self.goes_on or not self.is_open or self.at != self.end:
            return False
        data: cython.p_uchar = cython.cast(cython.p_uchar, self.view.buf) + self.after
        size: cython.Py_ssize_t = _read_header(
            data, cython.cast(cython.p_uchar, self.view.buf) + self.view.len, cython.address(header)
        )
        if size <= 0 or header.attributes & 0x27 or header.leader_epoch != self.epoch:
            return False
        is_checked: cython.bint = size <= self.checked - self.after
        if not is_checked and size > largest:
            return False
        wanted: cython.longlong = max(self.next_offset, self.after_offset)
        if header.count == 0 or header.count > (size - 61) // 7:
            return False
        if header.base_offset + header.last_delta < wanted:
            return False
        if not is_checked and kd_crc32c(0, data + 21, size - 21, False) != header.crc:
            return False
        self.at = data + 61
        self.end = data + size
        self.remaining = header.count
        self.next_offset = wanted
        self.base_offset = header.base_offset
        self.previous = header.base_offset - 1
        self.last_offset = header.base_offset + header.last_delta
        self.base_timestamp = header.base_timestamp
        self.timestamp_type = 1 if header.attributes & 8 else 0
        self.append_time = header.max_timestamp
        self.after += size
        self.after_offset = self.last_offset + 1
        return True

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def step(self, row: cython.pointer(Row)) -> cython.int:
        """Read one record's fields. 0: it is in ``row``; -1: it is below the wanted offset; else a reason.

        Nothing moves when a reason is returned, so the next call returns the same.
        """
        at: cython.p_uchar = self.at
        end: cython.p_uchar = self.end
        size: cython.int = 0
        delta: cython.int = 0
        time: cython.longlong = 0
        if not kd_varint(cython.address(at), end, cython.address(size)):
            return 1
        if size < 0 or size > end - at:
            return 2
        end = at + size
        if at >= end:
            return 1
        at += 1
        if not kd_varlong(cython.address(at), end, cython.address(time)):
            return 1
        if not kd_varint(cython.address(at), end, cython.address(delta)):
            return 1
        if delta < 0 or delta > self.last_offset - self.base_offset:
            return 6
        row.offset = self.base_offset + delta
        if row.offset <= self.previous:
            return 6
        if row.offset < self.next_offset:
            self.at = end
            self.remaining -= 1
            self.previous = row.offset
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
        if not kd_varint(cython.address(at), end, cython.address(row.key_size)):
            return 1
        if row.key_size < -1 or row.key_size > end - at:
            return 3
        row.key = at
        if row.key_size > 0:
            at += row.key_size
        if not kd_varint(cython.address(at), end, cython.address(row.value_size)):
            return 1
        if row.value_size < -1 or row.value_size > end - at:
            return 3
        row.value = at
        if row.value_size > 0:
            at += row.value_size
        if not kd_varint(cython.address(at), end, cython.address(row.header_count)):
            return 1
        if row.header_count < 0 or row.header_count > (end - at) // 2:
            return 4
        if row.header_count > HEADERS:
            return 10
        if row.header_count == 0 and at != end:
            return 5
        row.headers = at
        row.end = end
        return 0

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def has_leftover(self) -> cython.bint:
        """True if the batch has bytes beyond its last record."""
        return self.remaining == 0 and self.is_open and self.at != self.end

    def read(
        self, out: list, limit: cython.Py_ssize_t, room: cython.Py_ssize_t = PY_SSIZE_T_MAX
    ) -> cython.Py_ssize_t:
        """Append up to ``limit`` records to ``out``; stop after the one with which they take ``room`` bytes.

        Returns how many bytes of the batches they take.

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
        size: cython.Py_ssize_t = 0
        self.begin()
        try:
            while limit > 0 and size < room and (self.remaining > 0 or self.next_batch(UNLOCKED_FROM)):
                reason = self.step(cython.address(row))
                if reason < 0:
                    continue
                if reason > 0:
                    raise RecordFormatError(reason)
                if row.end != self.end:
                    kd_prefetch(row.end, row.end - self.at)
                headers = _headers(row.headers, row.end, row.header_count) if row.header_count else empty
                record = Record.__new__(Record)
                record.topic = topic
                record.partition = self.partition
                # Its key and value are made by `kd_bytes`, so their memory may be used again.
                record.is_own = True
                record.offset = row.offset
                record.timestamp = row.timestamp
                record.timestamp_type = self.timestamp_type
                if row.key_size >= 0:
                    record.key = kd_bytes(row.key, row.key_size)
                if row.value_size >= 0:
                    record.value = kd_bytes(row.value, row.value_size)
                record.headers = headers
                record.leader_epoch = epoch
                out.append(record)
                size += row.end - self.at
                self.at = row.end
                self.remaining -= 1
                self.previous = row.offset
                self.next_offset = row.offset + 1
                limit -= 1
            if self.has_leftover():
                raise RecordFormatError(8)
            if self.remaining == 0:
                # The next read finds records, without a walk from batch to batch before it.
                self.next_batch(UNLOCKED_FROM)
        finally:
            kd_let_go(cython.address(self.is_busy))
        return size


@cython.cfunc
def _headers(at: cython.p_uchar, end: cython.p_uchar, count: cython.int) -> tuple:
    """Decode a record's headers, which must end where the record does."""
    size: cython.int = 0
    out: list = []
    key: object
    value: object
    while count > 0:
        count -= 1
        if not kd_varint(cython.address(at), end, cython.address(size)):
            raise RecordFormatError(1)
        if size < 0 or size > end - at:
            raise RecordFormatError(4)
        key = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, "replace")
        at += size
        if not kd_varint(cython.address(at), end, cython.address(size)):
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
