"""Turns columns into pyarrow tables, in the schema of Spark's Kafka connector; buffers are wrapped, never copied.

pyarrow takes a third of a second to import and is an extra, so it is imported at the first use. The topic and the
partition repeat in every row: short runs of them are kept ready and sliced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kadence._native.shared import ALL_COLUMNS, OWN_COLUMNS, BinaryColumn, Columns, HeaderColumn
from kadence.errors import MissingDependencyError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

    from kadence.records import Record

__all__ = ["of_records", "schema", "to_record_batch", "to_table"]

_KEPT_BYTES: Final = 1 << 20
"""Largest constant column that is kept for reuse; a larger one is made each time.

A table of 1 MiB of small records has 10,000 rows and more, and building both constant columns again costs as much as
all the rest of the table.
"""

_LAST_MICROSECOND: Final = 2**63 - 1
"""The range of Arrow's timestamps; Kafka's is larger."""

_INT32: Final = struct.Struct("=i")
_INT32_PAIR: Final = struct.Struct("=ii")


@cache
def _pyarrow() -> ModuleType:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("Arrow needs pyarrow: pip install 'kadence[arrow]'") from error
    module: ModuleType = pyarrow
    return module


@cache
def schema(columns: tuple[str, ...] = OWN_COLUMNS) -> pa.Schema:
    """The schema of Spark's Kafka connector, or those columns of it; all fields may be null.

    Args:
        columns: names, of `ALL_COLUMNS`. ``headers`` is a list<struct<key: string, value: binary>>, null where a record
            has none.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    pa = _pyarrow()
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    return pa.schema([(name, types[name]) for name in columns])


def to_record_batch(columns: Columns, schema: pa.Schema | None = None) -> pa.RecordBatch:
    """One batch over the buffers of ``columns``.

    Args:
        columns: the result of `FetchedRecords.take_columns`.
        schema: columns by name, in any order and number; types may differ where Arrow can cast, and the names of
            nested fields may. None means `schema`.

    Raises:
        MissingDependencyError: pyarrow is not installed.
        ValueError: the schema names an unknown column.
    """
    layout = _own_layout(OWN_COLUMNS) if schema is None else _layout(schema)
    return layout.batch(columns)


def to_table(
    columns: Iterable[Columns],
    schema: pa.Schema | None = None,
    *,
    names: tuple[str, ...] = OWN_COLUMNS,
) -> pa.Table:
    """A table with one chunk for each of ``columns``, of any topics and partitions.

    Args:
        columns: results of `FetchedRecords.take_columns`, any number of them.
        schema: as for `to_record_batch`; None means `schema`.
        names: the table's columns when no schema is given, as for `schema`.

    Raises:
        as `to_record_batch`.
    """
    layout = _own_layout(names) if schema is None else _layout(schema)
    batches = [layout.batch(part) for part in columns]
    return _pyarrow().Table.from_batches(batches, schema=layout.schema)


def of_records(records: Sequence[Record], names: tuple[str, ...] = OWN_COLUMNS) -> pa.Table:
    """A table with the columns of `schema` and one row per record; keys and values are bytes.

    Args:
        names: the columns, of `ALL_COLUMNS`.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    made = {name: list(map(_FIELDS[name], records)) for name in names}
    return _pyarrow().table(made, schema=schema(names))


def _microseconds(record: Record) -> int:
    return min(max(record.timestamp * 1000, -_LAST_MICROSECOND), _LAST_MICROSECOND)


_FIELDS: Final[Mapping[str, Callable[[Record], object]]] = {
    "key": attrgetter("key"),
    "value": attrgetter("value"),
    "topic": attrgetter("topic"),
    "partition": attrgetter("partition"),
    "offset": attrgetter("offset"),
    "timestamp": _microseconds,
    "timestampType": attrgetter("timestamp_type"),
    "headers": lambda record: [{"key": key, "value": value} for key, value in record.headers] or None,
}


class _Layout:
    """A schema, and how each of its columns is made.

    Made once for our own schema: looking at the fields again costs as much as making the columns.
    """

    __slots__ = ("_fields", "_pa", "schema")

    def __init__(
        self, pa: ModuleType, schema: pa.Schema, fields: list[tuple[_Maker, pa.DataType, bool]]
    ) -> None:
        self._pa = pa
        self.schema = schema
        self._fields = fields

    def batch(self, columns: Columns) -> pa.RecordBatch:
        pa = self._pa
        arrays = []
        for make, kind, is_own in self._fields:
            array = make(pa, columns, kind)
            arrays.append(array if is_own or array.type.equals(kind) else array.cast(kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@cache
def _own_layout(names: tuple[str, ...]) -> _Layout:
    return _layout(schema(names))


def _layout(wanted: pa.Schema) -> _Layout:
    own = schema(ALL_COLUMNS)
    fields = []
    for field in wanted:
        make = _COLUMNS.get(field.name)
        if make is None:
            raise ValueError(f"no column {field.name!r}; there are {', '.join(_COLUMNS)}")
        # A maker returns the type of our own schema, whichever type the caller's schema has.
        fields.append((make, field.type, field.type.equals(own.field(field.name).type)))
    return _Layout(_pyarrow(), wanted, fields)


_T = TypeVar("_T")


def _there(column: _T | None, name: str) -> _T:
    if column is None:
        raise ValueError(f"the schema asks for {name}, but the columns were taken without it")
    return column


def _fixed(pa: ModuleType, count: int, data: Any, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _strings(pa: ModuleType, count: int, column: BinaryColumn, kind: pa.DataType) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, column.null_count)


def _repeated(pa: ModuleType, value: str | int, count: int) -> pa.Array:
    rows = 1 << (count - 1).bit_length() if count else 0
    row_bytes = 4 + len(value) if isinstance(value, str) else 4
    if rows * row_bytes > _KEPT_BYTES:
        return _constant(pa, value, count)
    return _kept(value, rows).slice(0, count)


@lru_cache(maxsize=128)
def _kept(value: str | int, count: int) -> pa.Array:
    return _constant(_pyarrow(), value, count)


def _constant(pa: ModuleType, value: str | int, count: int) -> pa.Array:
    # Made from buffers: given a Python value, pyarrow would first import pandas where it is installed.
    if isinstance(value, str):
        text = value.encode()
        buffers = [None, pa.py_buffer(_INT32_PAIR.pack(0, len(text))), pa.py_buffer(text)]
        one = pa.Array.from_buffers(pa.string(), 1, buffers)
    else:
        one = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(_INT32.pack(value))])
    return pa.repeat(one[0], count)


def _timestamps(pa: ModuleType, columns: Columns, kind: pa.DataType) -> pa.Array:
    # The number is the same in every time zone, so the schema's zone is set without a cast.
    micros = kind if pa.types.is_timestamp(kind) and kind.unit == "us" else pa.timestamp("us", tz="UTC")
    return _fixed(pa, columns.count, _there(columns.timestamps, "timestamp"), micros)


def _headers(pa: ModuleType, columns: Columns, kind: pa.DataType) -> pa.Array:
    column = _there(columns.headers, "headers")
    if not pa.types.is_list(kind):
        kind = schema(ALL_COLUMNS).field("headers").type
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    pairs = _pairs(pa, column, kind.value_type)
    return pa.Array.from_buffers(
        kind, columns.count, [validity, pa.py_buffer(column.ends)], column.null_count, children=[pairs]
    )


def _pairs(pa: ModuleType, column: HeaderColumn, kind: pa.DataType) -> pa.Array:
    parts = []
    for index, (part, natural) in enumerate(((column.key, pa.string()), (column.value, pa.binary()))):
        array = _strings(pa, column.count, part, natural)
        wanted = kind.field(index).type
        parts.append(array if array.type.equals(wanted) else array.cast(wanted))
    return pa.Array.from_buffers(kind, column.count, [None], 0, children=parts)


_Maker: TypeAlias = Callable[["ModuleType", Columns, Any], Any]

_COLUMNS: Final[dict[str, _Maker]] = {
    "key": lambda pa, columns, _kind: _strings(pa, columns.count, _there(columns.key, "key"), pa.binary()),
    "value": lambda pa, columns, _kind: _strings(
        pa, columns.count, _there(columns.value, "value"), pa.binary()
    ),
    "topic": lambda pa, columns, _kind: _repeated(pa, columns.topic, columns.count),
    "partition": lambda pa, columns, _kind: _repeated(pa, columns.partition, columns.count),
    "offset": lambda pa, columns, _kind: _fixed(pa, columns.count, columns.offsets, pa.int64()),
    "timestamp": _timestamps,
    "timestampType": lambda pa, columns, _kind: _fixed(
        pa, columns.count, _there(columns.timestamp_types, "timestampType"), pa.int32()
    ),
    "headers": _headers,
}
