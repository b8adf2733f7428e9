"""Values of all readers in one form, so that they can be compared.

A time is a pair of what it is and a number (``("instant", microseconds)``), whatever class a reader has for it; so
years beyond Python's can be compared, too. NaN is a word, and equals itself. A whole number is no float here.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

__all__ = ["REFUSED", "first_difference", "of_arrow", "of_python", "same"]

REFUSED: Final = "(refused)"
"""What a reader gives that says that the data is bad, or that the schemas do not fit."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def of_python(value: Any) -> Any:
    """A value as Kadence's records and Python's libraries give it."""
    if isinstance(value, dict):
        return {name: of_python(each) for name, each in value.items()}
    if isinstance(value, list):
        return [of_python(each) for each in value]
    if isinstance(value, datetime):
        kind = "local" if value.tzinfo is None else "instant"
        gone = (value.replace(tzinfo=UTC) if value.tzinfo is None else value) - _EPOCH
        return kind, (gone.days * 86_400 + gone.seconds) * 1_000_000 + gone.microseconds
    if isinstance(value, date):
        return "day", value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, time):
        return "clock", ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, UUID):
        return "uuid", str(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def of_arrow(column: pa.Array) -> list[Any]:
    """The rows of a column."""
    kind = column.type
    types = pa.types
    if types.is_struct(kind):
        inner = [of_arrow(column.field(place)) for place in range(kind.num_fields)]
        names = [each.name for each in kind]
        rows = [dict(zip(names, each, strict=True)) for each in zip(*inner, strict=True)] or [{}] * len(
            column
        )
        return [
            row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    if types.is_list(kind) or types.is_map(kind):
        found: list[Any] = []
        for there, start, end in zip(
            column.is_valid().to_pylist(),
            column.offsets[:-1].to_pylist(),
            column.offsets[1:].to_pylist(),
            strict=True,
        ):
            if not there:
                found.append(None)
            elif types.is_map(kind):
                keys = of_arrow(column.keys.slice(start, end - start))
                found.append(dict(zip(keys, of_arrow(column.items.slice(start, end - start)), strict=True)))
            else:
                found.append(of_arrow(column.values.slice(start, end - start)))
        return found
    if types.is_timestamp(kind):
        label, count = "local" if kind.tz is None else "instant", column.cast(pa.int64()).to_pylist()
        return [None if each is None else (label, each) for each in count]
    if types.is_date32(kind):
        return [None if each is None else ("day", each) for each in column.cast(pa.int32()).to_pylist()]
    if types.is_duration(kind):
        return [None if each is None else ("duration", each) for each in column.cast(pa.int64()).to_pylist()]
    return [of_python(each) for each in column.to_pylist()]


def same(one: Any, other: Any) -> bool:
    """Whether two values are one, types included."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def first_difference(expected: Any, found: Any, path: str = "") -> tuple[str, Any, Any]:
    """Where two values differ first, as names of fields, and what stands there."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for name, each in expected.items():
            if not same(each, found[name]):
                return first_difference(each, found[name], f"{path}.{name}")
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for mine, theirs in zip(expected, found, strict=True):
            if not same(mine, theirs):
                return first_difference(mine, theirs, f"{path}[]")
    return path, expected, found
