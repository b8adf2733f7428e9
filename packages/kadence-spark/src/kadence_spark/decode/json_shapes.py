"""Tokens → the Python values of an Arrow type, by the rules of Spark's ``from_json``.

For each type there is one function, made once. Times and dates become numbers, since Python's own end with the year
9999. A value that is bad costs as much as it does there: an object keeps its other members (`PartialError`), a list
keeps its elements only if each of them is at least that, and the walk goes on from where the bad value left it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from kadence.columns.isolation import BadRecordError
from kadence_spark.decode.json_times import NoZoneError, date_of, local_time_of, time_of
from kadence_spark.decode.json_tokens import (
    ARRAY,
    END_ARRAY,
    END_OBJECT,
    FALSE,
    FLOAT,
    INT,
    NAME,
    NULL,
    OBJECT,
    STRING,
    TRUE,
    Tokens,
    joined,
    paired,
)
from kadence_spark.decode.options import Syntax

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STRICT", "PartialError", "Rules", "Shape", "document_shape", "has_zoned_times"]

Shape: TypeAlias = Callable[[Tokens], Any]
"""Takes the value that begins at the current token; raises `BadRecordError` where it is none of the type."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How JSON is read.

    Attributes:
        zone: of times that name none; None: those are bad.
        is_strict: only JSON as RFC 8259 has it, one document in a value, and a record is good or bad as a whole.
    """

    zone: tzinfo | None
    syntax: Syntax = field(default_factory=Syntax)
    is_strict: bool = False


STRICT: Final = Rules(zone=None, syntax=Syntax(single_quotes=False, non_numeric=False), is_strict=True)
"""Of the format json-strict."""


class PartialError(BadRecordError):
    """Something in it is bad, and something is left."""

    def __init__(self, left: Any, reason: str) -> None:
        super().__init__(reason)
        self.left = left


def has_zoned_times(target: pa.DataType) -> bool:
    """Whether there are times in it that need a zone."""
    import pyarrow as pa

    if pa.types.is_timestamp(target):
        return target.tz is not None
    return any(has_zoned_times(target.field(place).type) for place in range(target.num_fields))


def document_shape(target: pa.DataType, rules: Rules) -> Shape:
    """The function for a whole document, which stands at its first token."""
    import pyarrow as pa

    shape = _shape_of(target, "", rules)
    if not pa.types.is_list(target) or not pa.types.is_struct(target.value_type):
        return shape
    member = _shape_of(target.value_type, "[]", rules)

    def document(tokens: Tokens) -> Any:
        if tokens.token is not OBJECT:
            return shape(tokens)
        try:
            return [member(tokens)]
        except PartialError as problem:
            raise PartialError([problem.left], str(problem)) from None

    return document


def _shape_of(target: pa.DataType, path: str, rules: Rules) -> Shape:
    """The function for a type.

    Args:
        path: the field's name in errors; "" for the document.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(target):
        return _struct(target, path, rules)
    if types.is_list(target):
        return _list(target, path, rules)
    if types.is_map(target):
        return _map(target, path, rules)
    if types.is_null(target):
        return lambda tokens: None
    plain = _plain_of(target, rules)

    def shape(tokens: Tokens) -> Any:
        token = _value_token(tokens)
        if token is None or token is NULL:
            return None
        try:
            return plain(tokens, token)
        except _OtherError as problem:
            reason = str(problem) or f"{_shown(tokens, token)} where {target} is expected"
            raise BadRecordError(f"{_at(path)}: {reason}") from None

    return shape


_Plain: TypeAlias = Callable[[Tokens, str], Any]


def _plain_of(target: pa.DataType, rules: Rules) -> _Plain:
    import pyarrow as pa

    types = pa.types
    if types.is_string(target):
        return _text
    if types.is_boolean(target):
        return _boolean
    if types.is_binary(target):
        return _binary
    if types.is_date(target):
        return _date
    if types.is_timestamp(target):
        return _local_time if target.tz is None else _zoned_time(rules.zone)
    if types.is_integer(target):
        return _integer(target.bit_width, strict=rules.is_strict)
    if types.is_decimal(target):
        return _decimal(target.precision, target.scale)
    return _floating(narrow=target.bit_width == 32)


class _OtherError(Exception):
    """The token is nothing for this type; with a text where that needs one."""


def _value_token(tokens: Tokens) -> str | None:
    while tokens.token is NAME:
        tokens.next()
    return tokens.token


def _shown(tokens: Tokens, token: str) -> str:
    if token is STRING:
        return "a text" if tokens.string() else "an empty text"
    return token


def _refuse(tokens: Tokens, token: str, target: pa.DataType, path: str) -> NoReturn:
    raise BadRecordError(f"{_at(path)}: {_shown(tokens, token)} where {target} is expected")


def _at(path: str) -> str:
    return f"field {path}" if path else "the document"


# ---------------------------------------------------------------- nested


def _struct(target: pa.DataType, path: str, rules: Rules) -> Shape:
    members = {
        item.name: (item.name, _shape_of(item.type, f"{path}.{item.name}" if path else item.name, rules))
        for item in target
    }

    def shape(tokens: Tokens) -> Any:
        token = _value_token(tokens)
        if token is None or token is NULL:
            return None
        if token is not OBJECT:
            _refuse(tokens, token, target, path)
        row: dict[str, Any] = {}
        reason: str | None = None
        while (token := tokens.next()) is not None and token is not END_OBJECT:
            member = members.get(paired(tokens.name or "")) if tokens.name is not None else None
            if member is None:
                tokens.skip_children()
                continue
            try:
                row[member[0]] = member[1](tokens)
            except PartialError as problem:
                reason = reason or str(problem)
                row[member[0]] = problem.left
            except BadRecordError as problem:
                reason = reason or str(problem)
                tokens.skip_children()
        if reason is not None:
            raise PartialError(row, reason)
        return row

    return shape


def _list(target: pa.DataType, path: str, rules: Rules) -> Shape:
    element = _shape_of(target.value_type, f"{path}[]", rules)

    def shape(tokens: Tokens) -> Any:
        token = _value_token(tokens)
        if token is None or token is NULL:
            return None
        if token is not ARRAY:
            _refuse(tokens, token, target, path)
        found: list[Any] = []
        reason: str | None = None
        while (token := tokens.next()) is not None and token is not END_ARRAY:
            try:
                found.append(element(tokens))
            except PartialError as problem:
                reason = reason or str(problem)
                found.append(problem.left)
        if reason is not None:
            raise PartialError(found, reason)
        return found

    return shape


def _map(target: pa.DataType, path: str, rules: Rules) -> Shape:
    item = _shape_of(target.item_type, f"{path}[]", rules)

    def shape(tokens: Tokens) -> Any:
        token = _value_token(tokens)
        if token is None or token is NULL:
            return None
        if token is not OBJECT:
            _refuse(tokens, token, target, path)
        found: list[tuple[str, Any]] = []
        partial: str | None = None
        bad: str | None = None
        while (token := tokens.next()) is not None and token is not END_OBJECT:
            name = joined(tokens.name or "")
            try:
                found.append((name, item(tokens)))
            except PartialError as problem:
                partial = partial or str(problem)
                found.append((name, problem.left))
            except BadRecordError as problem:
                bad = bad or str(problem)
                tokens.skip_children()
        if bad is not None:
            raise BadRecordError(bad)
        if partial is not None:
            raise PartialError(found, partial)
        return found

    return shape


# ---------------------------------------------------------------- plain


def _boolean(tokens: Tokens, token: str) -> bool:
    if token is TRUE or token is FALSE:
        return token is TRUE
    raise _other(tokens, token)


def _other(tokens: Tokens, token: str) -> _OtherError:
    """A text is read to its end before it is refused: the walk goes on behind it."""
    if token is STRING:
        tokens.string()
    return _OtherError()


def _integer(bits: int, *, strict: bool) -> _Plain:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    if bits == 8 and not strict:
        most = 255  # Jackson's bytes may have no sign

    def plain(tokens: Tokens, token: str) -> int:
        if token is not INT:
            raise _other(tokens, token)
        number = int(tokens.number)
        if not least <= number <= most:
            raise _OtherError(f"a number out of the range of int{bits}")
        return number - 256 if bits == 8 and number > 127 else number

    return plain


_NON_NUMERIC: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}


def _floating(*, narrow: bool) -> _Plain:
    def plain(tokens: Tokens, token: str) -> float:
        if token is INT or token is FLOAT:
            text = tokens.number
            near = _real(text)
            return _single(text, near) if narrow and math.isfinite(near) else near
        if token is STRING and tokens.string() in _NON_NUMERIC and tokens.has_non_numeric:
            return _NON_NUMERIC[tokens.string()]
        raise _other(tokens, token)

    return plain


def _real(text: str) -> float:
    if text in _NON_NUMERIC:
        return _NON_NUMERIC[text]
    # A whole number has no zero below zero.
    return 0.0 if text == "-0" else float(text)


def _single(text: str, near: float) -> float:
    """The nearest number of 32 bits, rounded once.

    The double on the way is made odd where it is not exact: then it lies in the middle of two only if the number does.
    """
    exact = Decimal(text)
    if exact != Decimal(near) and not struct.unpack("<q", struct.pack("<d", near))[0] & 1:
        near = math.nextafter(near, math.inf if exact > Decimal(near) else -math.inf)
    try:
        found: float = struct.unpack("<f", struct.pack("<f", near))[0]
    except OverflowError:
        found = math.copysign(math.inf, near)
    return found


_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,10})?")
"""Digits of any script, as Java takes them."""
_EXACT: Final = Context(prec=200)


def _decimal(precision: int, scale: int) -> _Plain:
    step = Decimal(1).scaleb(-scale)

    def plain(tokens: Tokens, token: str) -> Decimal:
        if token is INT or token is FLOAT:
            text = tokens.number
        elif token is STRING:
            text = tokens.string().replace(",", "")
        else:
            raise _OtherError
        if _DECIMAL.fullmatch(text) is None:
            raise _OtherError
        try:
            exact = Decimal(text)
            if exact and exact.adjusted() > 80:
                raise _OtherError(f"more digits than decimal({precision}, {scale}) has")
            found = exact.quantize(step, ROUND_HALF_UP, _EXACT) if exact.adjusted() > -80 else step * 0
        except InvalidOperation:
            raise _OtherError from None
        if found and found.adjusted() + scale >= precision:
            raise _OtherError(f"more digits than decimal({precision}, {scale}) has")
        return found

    return plain


def _binary(tokens: Tokens, token: str) -> bytes:
    if token is STRING:
        return tokens.binary()
    raise _OtherError


def _date(tokens: Tokens, token: str) -> int:
    if token is STRING and (text := tokens.string()):
        found = date_of(text)
        if found is not None:
            return found
        raise _OtherError("a text that is no date")
    raise _OtherError


def _zoned_time(zone: tzinfo | None) -> _Plain:
    def plain(tokens: Tokens, token: str) -> int:
        if token is INT:
            seconds = int(tokens.number)
            if not -(1 << 63) <= seconds < 1 << 63:
                raise _OtherError("a number out of the range of int64")
            # Java's numbers begin anew where they end, and from_json lets them.
            return (seconds * 1_000_000 + (1 << 63)) % (1 << 64) - (1 << 63)
        if token is STRING and (text := tokens.string()):
            try:
                found = time_of(text, zone)
            except NoZoneError:
                raise _OtherError(
                    "a time without a time zone, and the session's zone is not known here; the option timeZone says it"
                ) from None
            if found is not None:
                return found
            raise _OtherError("a text that is no time")
        raise _OtherError

    return plain


def _local_time(tokens: Tokens, token: str) -> int:
    if token is STRING and (text := tokens.string()):
        found = local_time_of(text)
        if found is not None:
            return found
        raise _OtherError("a text that is no time without a time zone")
    raise _OtherError


# ---------------------------------------------------------------- texts


def _text(tokens: Tokens, token: str) -> str:
    """A text, or anything else written as JSON again."""
    if token is STRING:
        return joined(tokens.string())
    if token is INT:
        return str(int(tokens.number))
    if token is TRUE or token is FALSE:
        return token
    parts: list[str] = []
    _write(tokens, token, parts)
    return "".join(parts)


def _write(tokens: Tokens, token: str, parts: list[str]) -> None:
    """What Jackson's writer makes of a value: numbers anew, and no blanks."""
    depth = 0
    comma = ""
    while True:
        if token is END_OBJECT or token is END_ARRAY:
            if depth == 0:  # a bad value before it has left the walk inside of something
                raise _OtherError
            depth -= 1
            parts.append("}" if token is END_OBJECT else "]")
            comma = ","
        elif token is NAME:
            parts.append(f"{comma}{_quoted(tokens.name or '')}:")
            comma = ""
        else:
            parts.append(comma)
            comma = ","
            if token is OBJECT or token is ARRAY:
                depth += 1
                parts.append("{" if token is OBJECT else "[")
                comma = ""
            elif token is STRING:
                parts.append(_quoted(tokens.string()))
            elif token is INT:
                parts.append(str(int(tokens.number)))
            elif token is FLOAT:
                parts.append(_as_java(_real(tokens.number)))
            else:
                parts.append(token)
        if depth == 0:
            return
        following = tokens.next()
        if following is None:
            tokens.fail("it ends too early")
        token = following


_ODD: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r",
}  # fmt: skip


def _quoted(text: str) -> str:
    return '"' + _ODD.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))


_TWO_DIGITS: Final = Context(prec=2)
"""Java writes two digits where one would do; there may be a nearer number of two."""


def _as_java(number: float) -> str:
    """As Java's ``Double.toString`` writes it, from version 19 on; what is no number in quotes."""
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
    shortest = Decimal(repr(number))
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        plain = format(shortest, "f")
        return plain if "." in plain else f"{plain}.0"
    nearer = _TWO_DIGITS.create_decimal(Decimal(number))
    if len(shortest.as_tuple().digits) == 1 and float(nearer) == number:
        shortest = nearer
    sign, digits, exponent = shortest.as_tuple()
    assert isinstance(exponent, int)  # it is finite
    text = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent}"
