"""Records as columns: plain buffers in Arrow's memory layout, made without knowing Arrow.

Every buffer is an object with the buffer protocol that owns its memory, so `kadence.records.arrow` wraps
it without a copy and a reader without pyarrow can use ``memoryview(buffer).cast(...)``. All numbers are in
the machine's byte order.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ALL_COLUMNS", "OWN_COLUMNS", "BinaryColumn", "Columns", "HeaderColumn"]

OWN_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""What columns are made without a choice, by their names in Spark's Kafka schema."""

ALL_COLUMNS: Final = (*OWN_COLUMNS, "headers")


def _size(buffer: Buffer | None) -> int:
    return 0 if buffer is None else memoryview(buffer).nbytes


@dataclass(slots=True)
class BinaryColumn:
    """A column of byte strings.

    Attributes:
        ends: int32, one more than rows; row i is ``data[ends[i]:ends[i + 1]]``.
        data: all the bytes, one after the other.
        validity: one bit per row, least significant first, 1 = not null; None when nothing is null.
        null_count: how many rows are null.
    """

    ends: Buffer
    data: Buffer
    validity: Buffer | None
    null_count: int

    @property
    def nbytes(self) -> int:
        return _size(self.ends) + _size(self.data) + _size(self.validity)


@dataclass(slots=True)
class HeaderColumn:
    """The headers of all rows: a list per row, null where a record has none (as Spark's connector has it).

    Attributes:
        ends: int32, one more than rows; row i has the headers ``ends[i]`` to ``ends[i + 1]``.
        validity: one bit per row as in `BinaryColumn`; None when every row has headers.
        null_count: how many rows have no header.
        count: how many headers there are in all.
        key: the headers' keys, UTF-8, never null. value: their values.
    """

    ends: Buffer
    validity: Buffer | None
    null_count: int
    count: int
    key: BinaryColumn
    value: BinaryColumn

    @property
    def nbytes(self) -> int:
        return _size(self.ends) + _size(self.validity) + self.key.nbytes + self.value.nbytes


@dataclass(slots=True)
class Columns:
    """Some records of one partition, in the order of their offsets. A column that was not asked for is None.

    Attributes:
        topic: the topic of all rows. partition: its partition.
        count: number of rows.
        offsets: int64.
        timestamps: int64, microseconds since 1970 UTC (Kafka's milliseconds times 1000; what Spark's schema
            wants). A timestamp beyond the range of microseconds becomes the nearest end of the range.
        timestamp_types: int32; -1 none, 0 set by the producer, 1 set by the broker.
        key: keys. value: values.
        headers: headers.
        payload: bytes of the keys and values that were read, whether there are columns of them or not.
    """

    topic: str
    partition: int
    count: int
    offsets: Buffer
    timestamps: Buffer | None
    timestamp_types: Buffer | None
    key: BinaryColumn | None
    value: BinaryColumn | None
    headers: HeaderColumn | None
    payload: int

    @property
    def nbytes(self) -> int:
        """Bytes that the buffers hold."""
        fixed = _size(self.offsets) + _size(self.timestamps) + _size(self.timestamp_types)
        return fixed + sum(part.nbytes for part in (self.key, self.value, self.headers) if part is not None)

    def __len__(self) -> int:
        return self.count

    def before(self, offset: int) -> Columns:
        """Without the rows from this offset on. The buffers are the same, and longer than what is left."""
        offsets = memoryview(self.offsets).cast("B").cast("q")[: self.count]
        if not self.count or offsets[-1] < offset:
            return self
        count = bisect_left(offsets, offset)
        return replace(
            self,
            count=count,
            key=_cut(self.key, count),
            value=_cut(self.value, count),
            headers=_cut(self.headers, count),
        )


_Nullable = TypeVar("_Nullable", BinaryColumn, HeaderColumn)


def _cut(column: _Nullable | None, count: int) -> _Nullable | None:
    return None if column is None else replace(column, null_count=_nulls(column.validity, count))


def _nulls(validity: Buffer | None, count: int) -> int:
    """How many of the first ``count`` rows are null."""
    if validity is None:
        return 0
    bits = int.from_bytes(memoryview(validity).cast("B")[: (count + 7) // 8], "little")
    return count - (bits & ((1 << count) - 1)).bit_count()
