"""Parsed JSON documents → the Python values that ``pa.array`` takes for a type, by the rules of ``from_json``.

For each type there is one function, made once: a record passes through it in a few microseconds. Timestamps, dates
and bytes stay texts here; `kadence.spark.decode.fitting` reads those.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.spark.decode.isolation import BadRecordError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Number", "Shape", "shape_of"]

Shape: TypeAlias = Callable[[Any], Any]
"""Takes what the parser found; raises `BadRecordError` where the type is another one."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


def shape_of(target: pa.DataType, path: str = "") -> Shape:
    """The function for a type.

    Args:
        path: the field's name in errors; "" for the document.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(target):
        return _struct(target, path)
    if types.is_list(target):
        return _list(target, path)
    if types.is_map(target):
        return _map(target, path)
    if types.is_string(target):
        return lambda found: found if found is None or type(found) is str else _text(found)
    if types.is_boolean(target):
        return _only(bool, target, path)
    if types.is_date(target) or types.is_binary(target):
        return _only(str, target, path)
    if types.is_timestamp(target):
        return _timestamp(target, path)
    if types.is_integer(target):
        return _integer(target, path)
    if types.is_decimal(target):
        return _decimal(target, path)
    return _floating(target, path)


def _struct(target: pa.DataType, path: str) -> Shape:
    members = [
        (item.name, shape_of(item.type, f"{path}.{item.name}" if path else item.name)) for item in target
    ]

    def shape(found: Any) -> Any:
        if type(found) is dict:
            get = found.get
            return {name: member(get(name)) for name, member in members}
        return _none(found, target, path)

    return shape


def _list(target: pa.DataType, path: str) -> Shape:
    element = shape_of(target.value_type, f"{path}[]")
    return lambda found: list(map(element, found)) if type(found) is list else _none(found, target, path)


def _map(target: pa.DataType, path: str) -> Shape:
    key, item = shape_of(target.key_type, path), shape_of(target.item_type, f"{path}[]")

    def shape(found: Any) -> Any:
        if type(found) is dict:
            return [(key(name), item(value)) for name, value in found.items()]
        return _none(found, target, path)

    return shape


def _only(kind: type, target: pa.DataType, path: str) -> Shape:
    return lambda found: found if type(found) is kind else _none(found, target, path)


def _integer(target: pa.DataType, path: str) -> Shape:
    bound = 1 << (target.bit_width - 1)

    def shape(found: Any) -> Any:
        if type(found) is Number and found.lstrip("-").isdecimal():
            number = int(found) if len(found) < 32 else bound
            if -bound <= number < bound:
                return number
            raise _out_of_range(target, path)
        return _none(found, target, path)

    return shape


def _floating(target: pa.DataType, path: str) -> Shape:
    def shape(found: Any) -> Any:
        if type(found) is Number:
            near = float(found)
            if math.isinf(near) and "Inf" not in found:
                raise _out_of_range(target, path)
            return near
        if found in ("NaN", "Infinity", "-Infinity"):
            return float(found)
        return _none(found, target, path)

    return shape


def _decimal(target: pa.DataType, path: str) -> Shape:
    step = Decimal(1).scaleb(-target.scale)

    def shape(found: Any) -> Any:
        if isinstance(found, str):
            try:
                exact = Decimal(found)
                if exact.is_finite():
                    return exact.quantize(step, ROUND_HALF_UP)
            except InvalidOperation:
                pass
        return _none(found, target, path)

    return shape


def _timestamp(target: pa.DataType, path: str) -> Shape:
    """A number is seconds since 1970."""
    start = datetime(1970, 1, 1, tzinfo=UTC)

    def shape(found: Any) -> Any:
        if type(found) is Number:
            try:
                return (start + timedelta(seconds=int(found))).isoformat()
            except (ValueError, OverflowError):
                raise _out_of_range(target, path) from None
        return found if type(found) is str else _none(found, target, path)

    return shape


def _text(found: Any) -> str:
    """What a string column shows of a number, an object or a list: JSON again."""
    if isinstance(found, Number):
        return str(found)
    if isinstance(found, dict):
        members = (f"{json.dumps(name, ensure_ascii=False)}:{_text(item)}" for name, item in found.items())
        return "{" + ",".join(members) + "}"
    if isinstance(found, list):
        return "[" + ",".join(map(_text, found)) + "]"
    return json.dumps(found, ensure_ascii=False)


_WORDS: Final = {dict: "an object", list: "a list", bool: "true or false", str: "a text", Number: "a number"}


def _none(found: Any, target: pa.DataType, path: str) -> None:
    """Null is null in any type; everything else that comes here is of the wrong one."""
    if found is not None:
        raise BadRecordError(f"{_at(path)}: {_WORDS[type(found)]} where {target} is expected")


def _out_of_range(target: pa.DataType, path: str) -> BadRecordError:
    return BadRecordError(f"{_at(path)}: a number out of the range of {target}")


def _at(path: str) -> str:
    return f"field {path}" if path else "the document"
