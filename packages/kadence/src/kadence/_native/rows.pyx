"""Rows over Arrow columns. `Rows.hand_over` encodes outside the interpreter's lock, under the producer's."""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.kadence._native.builder import kd_frame
from cython.cimports.kadence._native.append import FastAppender, OpenBatch, Sticky, TopicInfo, kd_murmur2
from cython.cimports.libc.stdint import int32_t, int64_t
from cython.cimports.libc.stdlib import calloc, free

from kadence._native.shared import MOST_HEADERS

cdef extern from "rows.h" nogil:
    int KD_CROWDED
    int KD_DAMAGED
    int KD_NAMELESS
    ctypedef struct kd_strings:
        const unsigned char* valid
        const int64_t* ends
        const unsigned char* data
        int64_t start
        int64_t count
        int64_t bytes
    ctypedef struct kd_numbers:
        const unsigned char* valid
        const void* data
        int64_t start
    ctypedef struct kd_rows:
        int64_t most_headers
        kd_strings value
        kd_strings key
        kd_numbers lists
        kd_strings names
        kd_strings values
        kd_numbers partitions
        kd_numbers timestamps
        kd_numbers topics
    bint kd_is_null(const unsigned char* valid, int64_t at)
    int64_t kd_string(const kd_strings* column, int64_t row, const unsigned char** data)
    int64_t kd_estimate(const kd_rows* rows, int64_t row)
    int kd_add_row(kd_frame* frame, const kd_rows* rows, int64_t row, long long now)

cdef struct Lane:
    kd_frame* frame
    long long size
    long long limit
    int began
    int added
    int64_t first


@cython.final
@cython.cclass
class _View:
    """Keeps a buffer where it is."""

    view: Py_buffer
    is_held: cython.bint

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(cython.address(self.view))


@cython.cfunc
def _view(buffer: object, least: int64_t, writable: cython.bint) -> _View:
    """A buffer, which must have so many bytes."""
    held: _View = _View.__new__(_View)
    PyObject_GetBuffer(buffer, cython.address(held.view), PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    held.is_held = True
    if held.view.len < least:
        raise ValueError(f"a column's buffer has {held.view.len} bytes, and must have {least}")
    return held


@cython.cfunc
@cython.exceptval(-1)
def _end(start: int64_t, count: int64_t) -> int64_t:
    """One after the last place of a column."""
    if not (0 <= start <= 0x7FFFFFFFFFFF and 0 <= count <= 0x7FFFFFFFFFFF):
        raise ValueError(f"a column with {count} rows from {start} on")
    return start + count


@cython.cfunc
def _fault(size: int64_t) -> str:
    """The meaning of an estimate below zero."""
    if size == KD_NAMELESS:
        return "header"
    return "headers" if size == KD_CROWDED else "damage"


@cython.final
@cython.cclass
class Rows:
    """Rows of columns in Arrow's layout, to be made records.

    Args:
        count: how many. value, key: strings. headers: lists as `Numbers` of 64 bits, names and values.
        partitions: 32 bits. timestamps: 64 bits, ms since 1970. topics: 32 bits, indices of a list.

    Raises:
        ValueError: a column has fewer rows than that.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rows: kd_rows
    held: list

    def __init__(
        self,
        count: cython.Py_ssize_t,
        value,
        key=None,
        headers=None,
        partitions=None,
        timestamps=None,
        topics=None,
    ):
        self.count = count
        self.held = []
        self.rows.most_headers = MOST_HEADERS
        self.strings(cython.address(self.rows.value), value)
        if key is not None:
            self.strings(cython.address(self.rows.key), key)
        if headers is not None:
            lists, names, values = headers
            self.numbers(cython.address(self.rows.lists), lists, count + 1, 8)
            self.strings(cython.address(self.rows.names), names)
            self.strings(cython.address(self.rows.values), values)
            if self.rows.names.count > self.rows.values.count:
                raise ValueError("a column of headers with more names than values")
        self.numbers(cython.address(self.rows.partitions), partitions, count, 4)
        self.numbers(cython.address(self.rows.timestamps), timestamps, count, 8)
        self.numbers(cython.address(self.rows.topics), topics, count, 4)
        if self.rows.value.count < count or (key is not None and self.rows.key.count < count):
            raise ValueError("a column with fewer rows than others")

    @cython.cfunc
    def keep(self, buffer: object, least: int64_t) -> _View:
        """Hold a buffer for as long as the rows live."""
        held: _View = _view(buffer, least, False)
        self.held.append(held)
        return held

    @cython.cfunc
    def strings(self, into: cython.pointer(kd_strings), column: object) -> cython.void:
        kept: _View
        into.start, into.count = column.start, column.rows
        end: int64_t = _end(into.start, into.count)
        if column.valid is not None:
            kept = self.keep(column.valid, (end + 7) // 8)
            into.valid = cython.cast(cython.p_uchar, kept.view.buf)
        if into.count > 0:
            kept = self.keep(column.ends, 8 * (end + 1))
            into.ends = cython.cast(cython.pointer(int64_t), kept.view.buf)
        if column.data is not None:
            kept = self.keep(column.data, 0)
            into.data = cython.cast(cython.p_uchar, kept.view.buf)
            into.bytes = kept.view.len

    @cython.cfunc
    def numbers(
        self, into: cython.pointer(kd_numbers), column: object, count: int64_t, width: cython.int
    ) -> cython.void:
        kept: _View
        if column is None:
            return
        into.start = column.start
        end: int64_t = _end(into.start, count)
        if column.valid is not None:
            kept = self.keep(column.valid, (into.start + self.count + 7) // 8)
            into.valid = cython.cast(cython.p_uchar, kept.view.buf)
        kept = self.keep(column.data, width * end)
        into.data = kept.view.buf

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def check(self, row: cython.Py_ssize_t) -> cython.int:
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        return 0

    def estimate(self, row: cython.Py_ssize_t) -> int:
        """Most bytes that a row takes in a batch, as ``send()`` estimates it; below zero when it cannot be a record."""
        self.check(row)
        return kd_estimate(cython.address(self.rows), row)

    def partition(self, row: cython.Py_ssize_t) -> int:
        """The partition that a row asks for."""
        at: int64_t = self.rows.partitions.start + row
        self.check(row)
        if self.rows.partitions.data == cython.NULL or kd_is_null(self.rows.partitions.valid, at):
            return None
        return cython.cast(cython.pointer(int32_t), self.rows.partitions.data)[at]

    def topic(self, row: cython.Py_ssize_t) -> int:
        """The index of a row's topic; None without one."""
        at: int64_t = self.rows.topics.start + row
        self.check(row)
        if self.rows.topics.data == cython.NULL:
            return 0
        if kd_is_null(self.rows.topics.valid, at):
            return None
        return cython.cast(cython.pointer(int32_t), self.rows.topics.data)[at]

    def assign(self, places: list, bases: list, lanes, largest: cython.longlong):
        """Look at every row, and say which partition it goes to.

        Args:
            places: by index of the topic. bases: the lane of partition 0 of each; a lane is one partition of one topic.
            lanes: int32, gets the lane of each row. largest: most bytes of a row.

        Returns:
            The first row that cannot be a record, with its fault: "topic" (it has none), "partition" (there is no
            such), "size", "header" (one without a name), "headers" (too many), "damage" (numbers of the
            columns that lead outside them).
        """
        rows: cython.pointer(kd_rows) = cython.address(self.rows)
        row: int64_t
        at: int64_t
        size: int64_t
        key_size: int64_t
        key: cython.p_const_uchar = cython.NULL
        number: cython.int
        topic: cython.int = 0
        known: cython.int = len(places)
        last: cython.int = -1
        base: cython.int = 0
        place: TopicInfo = None
        sticky: Sticky
        view: _View = _view(lanes, 4 * self.count, True)
        into: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), view.view.buf)
        for row in range(self.count):
            if rows.topics.data != cython.NULL:
                at = rows.topics.start + row
                if kd_is_null(rows.topics.valid, at):
                    return row, "topic"
                topic = cython.cast(cython.pointer(int32_t), rows.topics.data)[at]
                if not 0 <= topic < known:
                    return row, "damage"
            if topic != last:
                place = places[topic]
                base = bases[topic]
                last = topic
                if place.count <= 0:
                    raise IndexError("a topic without partitions")
            size = kd_estimate(rows, row)
            if size < 0:
                return row, _fault(size)
            if size > largest:
                return row, "size"
            at = rows.partitions.start + row
            if rows.partitions.data != cython.NULL and not kd_is_null(rows.partitions.valid, at):
                number = cython.cast(cython.pointer(int32_t), rows.partitions.data)[at]
                if not 0 <= number < place.count:
                    return row, "partition"
            else:
                key_size = (
                    kd_string(cython.address(rows.key), row, cython.address(key))
                    if rows.key.ends != cython.NULL
                    else -1
                )
                if key_size >= 0:
                    number = (kd_murmur2(key, key_size) & 0x7FFFFFFF) % cython.cast(cython.uint, place.count)
                else:
                    sticky = place.sticky
                    # Read once: other threads may choose another one.
                    number = sticky.current
                    if sticky.used < sticky.switch_bytes and 0 <= number < place.count:
                        sticky.used += size
                    else:
                        number = cython.cast(object, sticky).choose(size, place.count, place.available)
                        if not 0 <= number < place.count:
                            raise IndexError(f"partition {number} was chosen, and there are {place.count}")
            into[row] = base + number
        return None

    def hand_over(
        self,
        appender: FastAppender,
        lanes,
        row: cython.Py_ssize_t,
        batches: list,
        now: cython.longlong,
        most: cython.Py_ssize_t,
    ):
        """Add rows to the batches of their lanes; under the gate, after `assign`.

        Stops before a row whose lane has no open batch with room, or for which there is no memory: but for the first
        row, for which the caller made some. Stops also before a row that is invalid, since the columns' memory was
        written to after `assign`.

        Args:
            row: where to begin. batches: by lane. now: the timestamp (ms) of rows without one. most: rows at most.

        Returns:
            The row to go on with, and for each lane that got rows: lane, batch, index of the first record in it, how
            many, and the first row.
        """
        count: cython.int = len(batches)
        stop: int64_t = min(self.count, row + most)
        start: int64_t = row
        at: int64_t = row
        i: cython.int
        batch: OpenBatch
        self.check(row)
        view: _View = _view(lanes, 4 * self.count, False)
        table: cython.pointer(Lane) = cython.cast(cython.pointer(Lane), calloc(count, cython.sizeof(Lane)))
        if table == cython.NULL:
            raise MemoryError
        try:
            for i in range(count):
                if batches[i] is None:
                    continue
                batch = batches[i]
                if batch.is_open:
                    table[i].frame = cython.address(batch.builder.frame)
                    table[i].size = batch.size
                    table[i].limit = batch.limit
                    table[i].began = table[i].frame.count
            used: cython.longlong = appender.used_bytes
            failed: cython.bint = False
            with cython.nogil:
                at = self.fill(
                    table,
                    count,
                    cython.cast(cython.pointer(int32_t), view.view.buf),
                    start,
                    stop,
                    now,
                    appender.buffer_memory - appender.claimed_bytes,
                    cython.address(used),
                    cython.address(failed),
                )
            appender.used_bytes = used
            segments: list = []
            for i in range(count):
                if table[i].added > 0:
                    batch = batches[i]
                    batch.size = table[i].size
                    segments.append((i, batch, table[i].began, table[i].added, table[i].first))
        finally:
            free(table)
        if failed:
            raise MemoryError
        return at, segments

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def fill(
        self,
        table: cython.pointer(Lane),
        count: cython.int,
        lanes: cython.pointer(int32_t),
        start: int64_t,
        stop: int64_t,
        now: cython.longlong,
        memory: cython.longlong,
        used: cython.p_longlong,
        failed: cython.pointer(cython.bint),
    ) -> int64_t:
        row: int64_t
        size: int64_t
        done: cython.int
        lane: cython.pointer(Lane)
        for row in range(start, stop):
            if not 0 <= lanes[row] < count:
                return row
            lane = cython.address(table[lanes[row]])
            if lane.frame == cython.NULL:
                return row
            size = kd_estimate(cython.address(self.rows), row)
            if size < 0:
                return row
            if lane.frame.count > 0 and lane.size + size > lane.limit:
                return row
            if row > start and used[0] + size > memory:
                return row
            done = kd_add_row(lane.frame, cython.address(self.rows), row, now)
            if done <= 0:
                failed[0] = done != KD_DAMAGED
                return row
            if lane.added == 0:
                lane.first = row
            lane.added += 1
            lane.size += size
            used[0] += size
        return stop
