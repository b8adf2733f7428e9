"""The compiled JSON reader over Arrow types.

It takes a record at a time, and refuses each one of which it is not certain what it means; see json_rows.h. Who asks
reads those alone.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence._native.json import Reader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NO_ZONE", "Column", "JsonRows", "Zone", "rows_reader"]

_BOOL, _INT, _FLOAT, _DOUBLE, _DECIMAL, _DATE, _TIME, _STRING, _LIST, _STRUCT = range(10)


class Column(NamedTuple):
    """A column as json_rows.h has it: one of its kinds, and what that needs to know."""

    name: bytes
    kind: int
    width: int = 0
    scale: int = 0
    precision: int = 0
    is_zoned: bool = False
    children: tuple[Column, ...] = ()


class Zone(NamedTuple):
    """How far local times are ahead of UTC: offsets[i] from starts[i] to starts[i + 1], in seconds of local time."""

    starts: bytes
    offsets: bytes


NO_ZONE: Final = Zone(struct.pack("<q", 0), b"")
"""Times that name no zone are refused."""


class JsonRows:
    """Makes structs of documents, and says which ones it refuses."""

    def __init__(self, target: pa.DataType, column: Column, zone: Zone, *, keeps_all: bool) -> None:
        self._target = target
        self._reader = Reader(column, *zone, keeps_all)

    def read(self, values: pa.Array) -> tuple[pa.Array, list[int]] | None:
        """A row for each document, null where it is refused, and which rows those are; None: another thread is at it.

        Args:
            values: binary, without nulls.
        """
        _, ends, data = values.buffers()
        found = self._reader.read(ends, data or b"", values.offset, len(values))
        if found is None:
            return None
        column, refused = found
        return _array(self._target, column), refused


def rows_reader(target: pa.DataType, zone: Zone = NO_ZONE, *, keeps_all: bool = False) -> JsonRows | None:
    """The reader for a type; None: there is none, as for maps, for bytes, and for documents that are no objects.

    Args:
        zone: of times that name none.
        keeps_all: nothing is left out. A document is refused that has a member for which the type has no field, and a
            text takes any number as it is written. Otherwise, as in Spark, the member is passed over, and a text takes
            whole numbers alone.
    """
    import pyarrow as pa

    if sys.byteorder != "little" or not pa.types.is_struct(target):
        return None
    column = _column("", target)
    return None if column is None else JsonRows(target, column, zone, keeps_all=keeps_all)


def _column(name: str, kind: pa.DataType) -> Column | None:
    import pyarrow as pa

    types, raw = pa.types, name.encode()
    # The reader compares names as they are written.
    if '"' in name or "\\" in name or any(letter < 0x20 for letter in raw):
        return None
    if types.is_struct(kind) or types.is_list(kind):
        fields = list(kind) if types.is_struct(kind) else [pa.field("", kind.value_type)]
        children = [_column(item.name, item.type) for item in fields]
        if None in children or len({item.name for item in fields}) < len(fields):
            return None
        inner = tuple(child for child in children if child is not None)
        return Column(raw, _STRUCT if types.is_struct(kind) else _LIST, children=inner)
    if types.is_decimal128(kind):
        return Column(raw, _DECIMAL, 16, kind.scale, kind.precision) if kind.scale >= 0 else None
    if types.is_timestamp(kind):
        return Column(raw, _TIME, 8, is_zoned=kind.tz is not None) if kind.unit == "us" else None
    known = {
        pa.bool_(): Column(raw, _BOOL, 1),
        pa.int8(): Column(raw, _INT, 1),
        pa.int16(): Column(raw, _INT, 2),
        pa.int32(): Column(raw, _INT, 4),
        pa.int64(): Column(raw, _INT, 8),
        pa.float32(): Column(raw, _FLOAT, 4),
        pa.float64(): Column(raw, _DOUBLE, 8),
        pa.date32(): Column(raw, _DATE, 4),
        pa.string(): Column(raw, _STRING),
    }
    return known.get(kind)


def _array(kind: pa.DataType, column: Any) -> pa.Array:
    import pyarrow as pa

    rows, nulls, buffers, children = column
    held = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    if not children:
        return pa.Array.from_buffers(kind, rows, held, nulls)
    types = [item.type for item in kind] if pa.types.is_struct(kind) else [kind.value_type]
    inner = [_array(*pair) for pair in zip(types, children, strict=True)]
    return pa.Array.from_buffers(kind, rows, held, nulls, children=inner)
