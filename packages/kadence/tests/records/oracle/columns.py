"""Columns from the lists that the plain cursor makes: what the compiled columns are compared with."""

from __future__ import annotations

from array import array
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final

from tests.records.oracle.records import Rows

from kadence._native.shared import DATA_LIMIT, OWN_COLUMNS, BinaryColumn, Columns, HeaderColumn

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.records.oracle.records import Cursor, Headers

__all__ = ["ColumnsBuilder"]

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_MICROS_MAX: Final = _INT64_MAX // 1000


def _bitmap(nulls: list[bool]) -> bytes:
    """Arrow's bitmap (1 = present, least significant first) from a list of what is null."""
    bits = "".join("0" if null else "1" for null in reversed(nulls))
    return int(bits, 2).to_bytes((len(nulls) + 7) // 8, "little")


def _column(strings: list[bytes | None]) -> BinaryColumn:
    null_count = strings.count(None)
    nulls = [string is None for string in strings] if null_count else []
    present = [string or b"" for string in strings] if null_count else strings
    ends = array("i", accumulate(map(len, present), initial=0))  # type: ignore[arg-type]
    return BinaryColumn(
        ends.tobytes(),
        b"".join(present),  # type: ignore[arg-type]
        _bitmap(nulls) if null_count else None,
        null_count,
    )


def _size(strings: list[bytes | None]) -> int:
    return sum(map(len, filter(None, strings)))


class ColumnsBuilder:
    """Columns under construction, from any number of batches of one partition.

    Args:
        columns: names of the columns to make (`ALL_COLUMNS`); offsets are always there.

    Attributes:
        rows: records gathered so far.
        payload: bytes of their keys and values, whether there are columns of them or not.
    """

    __slots__ = ("_columns", "_header_count", "_parts", "_sizes", "_types", "payload", "rows", "with_headers")

    def __init__(self, columns: Collection[str] = OWN_COLUMNS) -> None:
        self._columns = columns
        self.with_headers = "headers" in columns
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.payload = 0
        self._sizes = [0, 0, 0, 0]
        self._header_count = 0
        self._parts = Rows()
        self._types = array("i")

    def _measure(self, rows: Rows) -> list[int]:
        """Bytes of keys, values, header names and header values."""
        pairs = list(chain.from_iterable(rows.headers))
        return [
            _size(rows.keys),
            _size(rows.values),
            sum(len(name.encode()) for name, _ in pairs),
            _size([value for _, value in pairs]),
        ]

    def gather(self, cursor: Cursor, limit: int, byte_limit: int) -> bool:
        """Append up to ``limit`` records of a cursor; stop early when ``byte_limit`` bytes are reached.

        That is by keys and values together, or by the column of headers.

        Returns whether the columns are full.

        Raises:
            RecordFormatError: the next record cannot be read; those before it are in the columns.
        """
        bound = min(byte_limit, DATA_LIMIT)
        # A header's name may become three times as long, where each of its bytes is no UTF-8.
        headers_to_come = 3 * cursor.left if self.with_headers else 0
        if self.payload + cursor.left < bound and self._header_bytes() + headers_to_come < bound:
            rows = Rows()
            try:
                cursor.read_rows(rows, limit, self.with_headers)
            finally:
                self.add(rows, cursor.timestamp_type)
            return False
        # A bound may lie in this batch: go record by record, and put back the one that does not fit.
        while limit > 0 and cursor.remaining > 0:
            if self.rows and (self.payload >= byte_limit or self._header_bytes() >= byte_limit):
                return True
            place = cursor.place
            rows = Rows()
            try:
                cursor.read_rows(rows, 1, self.with_headers)
            finally:
                fits = self.fits(rows)
                if fits:
                    self.add(rows, cursor.timestamp_type)
            if not fits:
                cursor.place = place
                return True
            limit -= len(rows.offsets)
        return False

    def _header_bytes(self) -> int:
        """Bytes of headers, with the least that their lengths take in a batch: an empty one is not for nothing."""
        return self._sizes[2] + self._sizes[3] + 2 * self._header_count

    def fits(self, rows: Rows) -> bool:
        """Whether every column can still address its bytes with these rows added; an empty builder takes any."""
        wanted = ("key" in self._columns, "value" in self._columns, self.with_headers, self.with_headers)
        return self.rows == 0 or all(
            have + more <= DATA_LIMIT
            for have, more, is_wanted in zip(self._sizes, self._measure(rows), wanted, strict=True)
            if is_wanted
        )

    def add(self, rows: Rows, timestamp_type: int) -> None:
        """Append rows of one batch."""
        count = len(rows.offsets)
        sizes = self._measure(rows)
        self._sizes = [have + more for have, more in zip(self._sizes, sizes, strict=True)]
        self._header_count += sum(map(len, rows.headers))
        self.payload += sizes[0] + sizes[1]
        self.rows += count
        self._types.extend(repeat(timestamp_type, count))
        for name in Rows.__slots__:
            getattr(self._parts, name).extend(getattr(rows, name))

    def finish(self, topic: str, partition: int) -> Columns:
        """The columns gathered; the builder is empty afterwards."""
        parts, count = self._parts, self.rows
        wanted = self._columns
        columns = Columns(
            topic,
            partition,
            count,
            array("q", parts.offsets).tobytes(),
            _timestamps(parts.timestamps) if "timestamp" in wanted else None,
            self._types.tobytes() if "timestampType" in wanted else None,
            _column(parts.keys) if "key" in wanted else None,
            _column(parts.values) if "value" in wanted else None,
            _header_column(parts.headers) if self.with_headers else None,
            self.payload,
        )
        self._clear()
        return columns


def _timestamps(timestamps: list[int]) -> bytes:
    try:
        return array("q", map((1000).__mul__, timestamps)).tobytes()
    except OverflowError:
        return array("q", map(_micros, timestamps)).tobytes()


def _micros(timestamp: int) -> int:
    if timestamp > _MICROS_MAX:
        return _INT64_MAX
    return timestamp * 1000 if timestamp >= -_MICROS_MAX else _INT64_MIN


def _header_column(rows: list[Headers]) -> HeaderColumn:
    nulls = [not headers for headers in rows]
    null_count = nulls.count(True)
    pairs = list(chain.from_iterable(rows))
    return HeaderColumn(
        array("i", accumulate(map(len, rows), initial=0)).tobytes(),
        _bitmap(nulls) if null_count else None,
        null_count,
        len(pairs),
        _column([name.encode() for name, _ in pairs]),
        _column([value for _, value in pairs]),
    )
