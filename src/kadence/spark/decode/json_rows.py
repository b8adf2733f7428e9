"""The compiled JSON reader over Arrow types.

It takes a record at a time, and refuses each one of which it is not certain that the reader behind it (`json_shapes`)
makes the same of it; see json_rows.h.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence._native.json import Reader
from kadence.spark.decode.json_shapes import has_zoned_times
from kadence.spark.decode.json_times import offset_at

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Column", "JsonRows", "rows_reader"]


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


class JsonRows:
    """Makes structs of documents, and says which ones it refuses."""

    def __init__(self, target: pa.DataType, column: Column, zone: tzinfo | None) -> None:
        self._target = target
        self._reader = Reader(column, *_table_of(zone if has_zoned_times(target) else None))

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


def rows_reader(target: pa.DataType, zone: tzinfo | None) -> JsonRows | None:
    """The reader for a type; None: there is none, as for maps, for bytes, and for documents that are no objects.

    Args:
        zone: of times that name none; None: such records are refused.
    """
    import pyarrow as pa

    if sys.byteorder != "little" or not pa.types.is_struct(target):
        return None
    column = _column("", target)
    return None if column is None else JsonRows(target, column, zone)


_FIRST, _END = -719_162 * 86_400, 2_932_897 * 86_400
"""The years from 1 to 9999, which are all that the reader knows."""

_WEEK: Final = 7 * 86_400
_KNOWN_FROM, _KNOWN_TO = 0, 4_226 * _WEEK
"""1970 to 2050, of a region's zone; times outside of it are for the reader behind this one."""


@lru_cache(maxsize=16)
def _table_of(zone: tzinfo | None) -> Zone:
    """What the compiled reader needs to know of a zone. No zone has changed twice within a week since 1970."""
    if zone is None:
        return _zone([0], [])
    if isinstance(zone, timezone):
        return _zone([_FIRST, _END], [offset_at(zone, 0, 0)])
    starts, offsets = [_KNOWN_FROM], [offset_at(zone, 0, 0)]
    at = datetime(1970, 1, 1, tzinfo=zone)
    week, before = timedelta(days=7), at.utcoffset()
    for end in range(_KNOWN_FROM + _WEEK, _KNOWN_TO + 1, _WEEK):
        at += week
        after = at.utcoffset()
        if after != before:
            within = range(end - _WEEK, end + 1)
            changed = bisect_left(within, True, key=lambda second: offset_at(zone, 0, second) != offsets[-1])
            starts.append(within[changed])
            offsets.append(offset_at(zone, 0, end))
            before = after
    return _zone([*starts, _KNOWN_TO], offsets)


def _zone(starts: list[int], offsets: list[int]) -> Zone:
    return Zone(struct.pack(f"<{len(starts)}q", *starts), struct.pack(f"<{len(offsets)}i", *offsets))


def _column(name: str, kind: pa.DataType) -> Column | None:
    import pyarrow as pa

    types, raw = pa.types, name.encode()
    # The reader compares names as they are written.
    if '"' in name or "\\" in name or any(letter < 0x20 for letter in raw):
        return None
    if types.is_struct(kind) or types.is_list(kind):
        fields = list(kind) if types.is_struct(kind) else [pa.field("", kind.value_type)]
        children = [_column(item.name, item.type) for item in fields]
        if None in children or not children or len({item.name for item in fields}) < len(fields):
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
