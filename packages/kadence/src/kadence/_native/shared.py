"""The Python part of compiled modules: errors for bad records and serialisers, a record's repr, columns as values.

Columns are plain buffers in Arrow's memory layout, made without knowing Arrow. Every buffer is an object with the
buffer protocol that owns its memory, so `kadence.records.arrow` wraps it without a copy and a reader without pyarrow
can use ``memoryview(buffer).cast(...)``. All numbers are in the machine's byte order.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kadence.errors import KafkaError, SerializationError
from kadence.lazy_dataclasses import dataclass
from kadence.lazy_dataclasses import replace as _replace

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kadence._native.records import Record

__all__ = [
    "ALL_COLUMNS",
    "DATA_LIMIT",
    "FIELDS",
    "MOST_HEADERS",
    "OWN_COLUMNS",
    "REASONS",
    "SMALLEST_RECORD",
    "BinaryColumn",
    "Columns",
    "HeaderColumn",
    "RecordFormatError",
    "describe",
    "failed",
    "made_bytes",
    "rebuild_record",
    "replace",
]

FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "delivery_count",
)
"""A record's fields in the order of the constructor, of the pickle and of the text."""

SMALLEST_RECORD: Final = 7
"""Bytes of the smallest record there can be (every field one byte); bounds what a batch may claim to hold."""

MOST_HEADERS: Final = 5_000
"""A record with more headers is refused. As an object a header takes 80 bytes and more; compressed, millions of empty
ones take a few kB."""

DATA_LIMIT: Final = 2**31 - 1
"""Arrow's 32-bit offsets address this many bytes of one column."""

REASONS: Final = (
    "",
    "a variable-length number is cut off or longer than it may be",
    "a record's length runs past the end of its batch",
    "a key or value runs past the end of its record",
    "a header runs past the end of its record",
    "a record does not end where its length says",
    "a record's offset is not above the one before it, or outside its batch",
    "a record's timestamp does not fit 64 bits",
    "bytes are left over after the last record of the batch",
    "the batch claims more records than its bytes can hold",
    f"a record has more than {MOST_HEADERS:,} headers",
)
"""Why a record cannot be read. The compiled code has the numbers."""

_CONTENT: Final = ("key", "value", "headers")


def failed(field: str, topic: str, error: Exception) -> SerializationError:
    """The error for an exception of a serialiser."""
    # Not the data, which may be secret, nor what a foreign exception says of it: that is the cause.
    said = type(error).__name__
    if isinstance(error, KafkaError):
        said += f": {error}"
    return SerializationError(f"the {field} of a record for topic {topic!r} cannot be serialised: {said}")


def made_bytes(field: str, topic: str, made: Any) -> bytes:
    """The bytes that a serialiser made."""
    if isinstance(made, bytes | bytearray | memoryview):
        return bytes(made)
    raise SerializationError(
        f"{field}.serializer made {type(made).__name__} of the {field} of a record for topic {topic!r}, not bytes"
    )


class RecordFormatError(ValueError):
    """Bytes that are not a record. `FetchedRecords` raises `CorruptRecordError` with topic, partition and advice."""

    def __init__(self, reason: int) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason


def _size(value: object) -> str:
    """The size of a key or value, and never its content: reprs go into logs and to reporters of errors."""
    if value is None:
        return "None"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return f"<{len(value)} characters>"
    return f"<{type(value).__name__}>"


def describe(record: Record[Any, Any]) -> str:
    """The text of a record, ``Record(topic='t', partition=0, ...)``, with sizes of keys, values and headers only."""
    shown = {name: repr(getattr(record, name)) for name in FIELDS if name not in _CONTENT}
    shown |= {"key": _size(record.key), "value": _size(record.value), "headers": f"<{len(record.headers)}>"}
    if record.delivery_count is None:
        # Few records come from queues.
        del shown["delivery_count"]
    return f"Record({', '.join(f'{name}={shown[name]}' for name in FIELDS if name in shown)})"


def replace(record: Record[Any, Any], changes: dict[str, Any]) -> Record[Any, Any]:
    """A copy of a record with some fields changed."""
    fields = {name: getattr(record, name) for name in FIELDS}
    for name in changes:
        if name not in fields:
            raise TypeError(f"a record has no field {name!r}; it has {', '.join(FIELDS)}")
    fields.update(changes)
    return type(record)(**fields)


def rebuild_record(*fields: Any) -> Record[Any, Any]:
    """Unpickle a record."""
    from kadence._native.records import Record as Loaded

    return Loaded(*fields)


OWN_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The default columns, by their names in Spark's Kafka schema."""

ALL_COLUMNS: Final = (*OWN_COLUMNS, "headers")


def _nbytes(buffer: Buffer | None) -> int:
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
        return _nbytes(self.ends) + _nbytes(self.data) + _nbytes(self.validity)


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
        return _nbytes(self.ends) + _nbytes(self.validity) + self.key.nbytes + self.value.nbytes


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
        fixed = _nbytes(self.offsets) + _nbytes(self.timestamps) + _nbytes(self.timestamp_types)
        return fixed + sum(part.nbytes for part in (self.key, self.value, self.headers) if part is not None)

    def __len__(self) -> int:
        return self.count

    def is_dense_from(self, offset: int) -> bool:
        """Whether the rows have this offset and those that follow it, without a gap."""
        offsets = memoryview(self.offsets).cast("B").cast("q")
        return self.count > 0 and offsets[0] == offset and offsets[self.count - 1] == offset + self.count - 1

    def before(self, offset: int) -> Columns:
        """Without the rows from this offset on. The buffers are the same, and longer than what is left."""
        offsets = memoryview(self.offsets).cast("B").cast("q")[: self.count]
        if not self.count or offsets[-1] < offset:
            return self
        count = bisect_left(offsets, offset)
        return _replace(
            self,
            count=count,
            key=_cut(self.key, count),
            value=_cut(self.value, count),
            headers=_cut(self.headers, count),
        )


_Nullable = TypeVar("_Nullable", BinaryColumn, HeaderColumn)


def _cut(column: _Nullable | None, count: int) -> _Nullable | None:
    return None if column is None else _replace(column, null_count=_nulls(column.validity, count))


def _nulls(validity: Buffer | None, count: int) -> int:
    """The number of null rows among the first ``count``."""
    if validity is None:
        return 0
    bits = int.from_bytes(memoryview(validity).cast("B")[: (count + 7) // 8], "little")
    return count - (bits & ((1 << count) - 1)).bit_count()
