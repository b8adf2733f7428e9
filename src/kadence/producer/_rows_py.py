"""The plain half of the rows of Arrow columns: the same interface as `_rows_c`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.producer._append_py import murmur2
from kadence.records import MOST_HEADERS

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kadence.producer.append import FastAppender, OpenBatch, TopicInfo
    from kadence.producer.columns import Numbers, Strings

__all__ = ["Rows"]

_DAMAGED = -2
_NAMELESS = -3
_CROWDED = -4

_FAULTS = {_DAMAGED: "damage", _NAMELESS: "header", _CROWDED: "headers"}


class _Column:
    """Byte strings, by row."""

    __slots__ = ("_data", "_ends", "_start", "_valid", "count")

    def __init__(self, column: Strings) -> None:
        self.count = column.rows
        self._start = column.start
        end = column.start + column.rows
        self._valid = _bits(column.valid, end)
        self._ends = _words(column.ends, "q", end + 1) if column.rows else memoryview(b"")
        self._data = memoryview(b"" if column.data is None else column.data).cast("B")

    def get(self, row: int) -> bytes | None:
        """One string.

        Raises:
            IndexError: it lies outside its column.
        """
        at = self._start + row
        if _is_null(self._valid, at):
            return None
        begin, end = self._ends[at], self._ends[at + 1]
        if not 0 <= begin <= end <= len(self._data):
            raise IndexError
        return bytes(self._data[begin:end])


class _Numbers:
    """Numbers, by row."""

    __slots__ = ("_start", "_valid", "_words")

    def __init__(self, column: Numbers, kind: str, rows: int, count: int) -> None:
        self._start = column.start
        self._valid = _bits(column.valid, column.start + rows)
        self._words = _words(column.data, kind, column.start + count)

    def get(self, row: int) -> int | None:
        at = self._start + row
        return None if _is_null(self._valid, at) else self._words[at]

    def pair(self, row: int) -> tuple[int, int]:
        """The ends of a list."""
        return self._words[self._start + row], self._words[self._start + row + 1]


def _bits(valid: Buffer | None, count: int) -> memoryview | None:
    if valid is None:
        return None
    bits = memoryview(valid).cast("B")
    if len(bits) < (count + 7) // 8:
        raise ValueError(f"a column's buffer has {len(bits)} bytes, and must have {(count + 7) // 8}")
    return bits


def _words(data: Buffer | None, kind: str, count: int) -> memoryview[int]:
    view = memoryview(b"" if data is None else data).cast("B")
    size = 8 if kind == "q" else 4
    if view.nbytes < size * count:
        raise ValueError(f"a column's buffer has {view.nbytes} bytes, and must have {size * count}")
    return view[: size * count].cast("q" if kind == "q" else "i")


def _is_null(valid: memoryview | None, at: int) -> bool:
    return valid is not None and not valid[at >> 3] >> (at & 7) & 1


class Rows:
    """Rows of columns in Arrow's layout, to be made records.

    Args:
        count: how many. value, key: strings. headers: lists as `Numbers` of 64 bits, names and values.
        partitions: 32 bits. timestamps: 64 bits, ms since 1970. topics: 32 bits, indices of a list.

    Raises:
        ValueError: a column has fewer rows than that.
    """

    def __init__(
        self,
        count: int,
        value: Strings,
        key: Strings | None = None,
        headers: tuple[Numbers, Strings, Strings] | None = None,
        partitions: Numbers | None = None,
        timestamps: Numbers | None = None,
        topics: Numbers | None = None,
    ) -> None:
        self.count = count
        self._value = _Column(value)
        self._key = None if key is None else _Column(key)
        if value.rows < count or (key is not None and key.rows < count):
            raise ValueError("a column with fewer rows than others")
        self._lists: _Numbers | None = None
        if headers is not None:
            lists, names, values = headers
            self._lists = _Numbers(lists, "q", count, count + 1)
            self._names, self._values = _Column(names), _Column(values)
            if names.rows > values.rows:
                raise ValueError("a column of headers with more names than values")
        self._partitions = None if partitions is None else _Numbers(partitions, "i", count, count)
        self._timestamps = None if timestamps is None else _Numbers(timestamps, "q", count, count)
        self._topics = None if topics is None else _Numbers(topics, "i", count, count)

    def _check(self, row: int) -> None:
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")

    def partition(self, row: int) -> int | None:
        """The partition that a row asks for."""
        self._check(row)
        return None if self._partitions is None else self._partitions.get(row)

    def topic(self, row: int) -> int | None:
        """The index of a row's topic; None without one."""
        self._check(row)
        return 0 if self._topics is None else self._topics.get(row)

    def estimate(self, row: int) -> int:
        """Most bytes that a row takes in a batch, as ``send()`` estimates it; below zero when it cannot be a record."""
        self._check(row)
        try:
            key, value = self._key.get(row) if self._key else None, self._value.get(row)
            headers = self._headers(row)
        except IndexError:
            return _DAMAGED
        if len(headers) > MOST_HEADERS:
            return _CROWDED
        size = 21 + len(key or b"") + len(value or b"")
        for name, content in headers:
            if name is None:
                return _NAMELESS
            letters = sum(1 for byte in name if byte & 0xC0 != 0x80)
            size += 10 + 4 * letters + len(content or b"")
        return size

    def _headers(self, row: int) -> list[tuple[bytes | None, bytes | None]]:
        if self._lists is None or self._lists.get(row) is None:
            return []
        begin, end = self._lists.pair(row)
        if not 0 <= begin <= end <= self._names.count:
            raise IndexError
        return [(self._names.get(at), self._values.get(at)) for at in range(begin, end)]

    def assign(
        self, places: list[TopicInfo], bases: list[int], lanes: memoryview, largest: int
    ) -> tuple[int, str] | None:
        """Look at every row, and say which partition it goes to.

        Args:
            places: by index of the topic. bases: the lane of partition 0 of each; a lane is one partition of one topic.
            lanes: int32, gets the lane of each row. largest: most bytes of a row.

        Returns:
            The first row that cannot be a record, with its fault: "topic" (it has none), "partition" (there is no
            such), "size", "header" (one without a name), "headers" (too many), "damage" (numbers of the
            columns that lead outside them).
        """
        for row in range(self.count):
            topic = self.topic(row)
            if topic is None:
                return row, "topic"
            if not 0 <= topic < len(places):
                return row, "damage"
            place = places[topic]
            size = self.estimate(row)
            if size < 0:
                return row, _FAULTS[size]
            if size > largest:
                return row, "size"
            number = self.partition(row)
            if number is None:
                number = self._choose(place, row, size)
            elif not 0 <= number < place.count:
                return row, "partition"
            lanes[row] = bases[topic] + number
        return None

    def _choose(self, place: TopicInfo, row: int, size: int) -> int:
        key = self._key.get(row) if self._key else None
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % place.count
        number = place.sticky.choose(size, place.count, place.available)
        if not 0 <= number < place.count:
            raise IndexError(f"partition {number} was chosen, and there are {place.count}")
        return number

    def hand_over(
        self,
        appender: FastAppender,
        lanes: memoryview,
        row: int,
        batches: list[OpenBatch | None],
        now: int,
        most: int,
    ) -> tuple[int, list[tuple[int, OpenBatch, int, int, int]]]:
        """Add rows to the batches of their lanes; under the gate, after `assign`.

        Stops before a row whose lane has no open batch with room, or for which there is no memory: but for the first
        row, for which the caller made some. Stops also before a row that is no record any more, since somebody has
        written to the columns' memory after `assign`.

        Args:
            row: where to begin. batches: by lane. now: the timestamp (ms) of rows without one. most: rows at most.

        Returns:
            The row to go on with, and for each lane that got rows: lane, batch, index of the first record in it, how
            many, and the first row.
        """
        self._check(row)
        touched: dict[int, list[int]] = {}
        start, stop = row, min(self.count, row + most)
        while row < stop:
            lane = lanes[row]
            batch = batches[lane]
            if batch is None or not batch.is_open:
                break
            size = self.estimate(row)
            if size < 0:
                break
            if batch.count and batch.size + size > batch.limit:
                break
            if row > start and appender.used_bytes + size > appender.buffer_memory:
                break
            began = batch.count
            try:
                self._add(batch, row, now)
            except IndexError:
                break
            touched.setdefault(lane, [began, 0, row])[1] += 1
            batch.size += size
            appender.used_bytes += size
            row += 1
        segments = []
        for lane, (began, length, first) in sorted(touched.items()):
            filled = batches[lane]
            assert filled is not None, "only lanes with a batch are touched"
            segments.append((lane, filled, began, length, first))
        return row, segments

    def _add(self, batch: OpenBatch, row: int, now: int) -> None:
        timestamp = None if self._timestamps is None else self._timestamps.get(row)
        batch.builder.append(
            now if timestamp is None else timestamp,
            self._key.get(row) if self._key else None,
            self._value.get(row),
            [
                ((name or b"").decode(errors="surrogateescape"), content)
                for name, content in self._headers(row)
            ],
        )
