"""Values that fastavro reads differently from Avro for Java: logical types of our own, for which it calls us.

fastavro rounds a decimal to a precision, which all threads share; a fixed type has room for one digit more than any
precision that it allows. A time of day beyond the day becomes another hour. A whole number that is read as a float
keeps digits that a 32-bit float does not have. And in a union it takes the first type to which a string can be
converted, such as bytes before string.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import time
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

from kadence.columns.isolation import BadRecordError

__all__ = ["FLOAT", "PLAIN", "READERS", "own_name", "reader_of"]

_BEFORE: Final = "kadence-"

FLOAT: Final = "kadence-float"
"""The logical type of a whole number that is read as a float."""

PLAIN: Final = "kadence-plain"
"""The logical type of a string or of bytes that stay unchanged, though the reader's union has both."""

_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)

_BITS: Final = 24
"""The digits of a float of 32 bits."""

_DAY_S: Final = 86_400

_Reader = Callable[[Any, Any, Any], Any]


def _decimal(data: bytes, schema: Mapping[str, Any], _: Any = None) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-schema.get("scale", 0), _EXACT)


def _float(data: int, *_: Any) -> float:
    """The nearest float of 32 bits; of two the even one. Not by way of a double, which would round twice."""
    surplus = abs(data).bit_length() - _BITS
    if surplus <= 0:
        return float(data)
    kept, rest = divmod(data, 1 << surplus)
    half = 1 << (surplus - 1)
    return float((kept + (rest > half or (rest == half and kept % 2 == 1))) << surplus)


def _time_of(data: int, a_second: int) -> time:
    if not 0 <= data < _DAY_S * a_second:
        raise BadRecordError("a time of day is not within a day")
    seconds, rest = divmod(data, a_second)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * (1_000_000 // a_second))


READERS: Final[dict[str, _Reader]] = {
    "bytes-kadence-decimal": _decimal,
    "fixed-kadence-decimal": _decimal,
    "int-kadence-float": _float,
    "long-kadence-float": _float,
    "string-kadence-plain": lambda data, *_: data,
    "bytes-kadence-plain": lambda data, *_: data,
    "int-kadence-time-millis": lambda data, *_: _time_of(data, 1_000),
    "long-kadence-time-micros": lambda data, *_: _time_of(data, 1_000_000),
}
"""The entries for fastavro's LOGICAL_READERS, by type and logical type."""


def own_name(logical: str) -> str:
    """The logical type passed to fastavro instead of one of Avro's."""
    return _BEFORE + logical if logical in ("decimal", "time-millis", "time-micros") else logical


def reader_of(kind: str, logical: str, readers: Mapping[str, Any]) -> Any:
    """The function that makes a value of a logical type of Avro.

    Args:
        kind: the underlying type. readers: fastavro's.
    """
    return readers[f"{kind}-{own_name(logical)}"]
