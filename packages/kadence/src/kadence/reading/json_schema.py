"""JSON values → an Arrow column of a type that the caller names.

The compiled reader decodes documents of these types, and leaves out members without a field. Documents that it refuses
are decoded one by one, by Python's json: a member of another type becomes null, the others of its document stay, and
the reason is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.columns.isolation import Decoded, over_nulls, put_back
from kadence.columns.json_rows import rows_reader
from kadence.reading.json_values import document_of, json_text, reason_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Schema", "SchemaColumns", "type_of"]

Schema: TypeAlias = "pa.Schema | pa.DataType | Mapping[str, Any]"
"""A schema or a type of pyarrow, or the type of each field by name: one of pyarrow, its name, or one of Python."""

_TAKEN: Final = (
    "a schema of pyarrow, or the types of fields by name: a type of pyarrow or its name ('double', 'int64', 'string', "
    "'bool', 'date32', 'timestamp[us, tz=UTC]'), float, int, str, bool, datetime or date, a mapping for an object, "
    "[type] for a list"
)


def type_of(given: Any, path: str = "") -> pa.DataType:
    """The Arrow type that a caller names.

    Raises:
        ValueError: it is not a type, or JSON has no values of it.
    """
    import pyarrow as pa

    at = f" of {path}" if path else ""
    if isinstance(given, pa.Schema):
        given = pa.struct(list(given))
    if isinstance(given, Mapping):
        given = [
            pa.field(name, type_of(inner, f"{path}.{name}" if path else str(name)))
            for name, inner in given.items()
        ]
        return _checked(pa.struct(given), path)
    if isinstance(given, list) and len(given) == 1:
        return pa.list_(type_of(given[0], f"{path}[]"))
    if isinstance(given, pa.DataType):
        return _checked(given, path)
    plain = {
        float: pa.float64(),
        int: pa.int64(),
        str: pa.string(),
        bool: pa.bool_(),
        date: pa.date32(),
        datetime: pa.timestamp("us", tz="UTC"),
    }
    if isinstance(given, type) and given in plain:
        return plain[given]
    try:
        return _checked(_named(given), path)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException):
        raise ValueError(f"schema{at} is {_TAKEN}; not {given!r}") from None


def _named(given: Any) -> pa.DataType:
    import pyarrow as pa

    if not isinstance(given, str):
        # numpy's types, and objects with a dtype.
        return pa.from_numpy_dtype(given)
    name = given.replace(" ", "")
    if name.startswith("timestamp[") and ",tz=" in name:
        unit, _, zone = name.removeprefix("timestamp[").removesuffix("]").partition(",tz=")
        return pa.timestamp(unit, tz=zone)
    return pa.type_for_alias({"text": "string", "boolean": "bool"}.get(name, name))


def _checked(kind: pa.DataType, path: str) -> pa.DataType:
    """The type, if JSON has values of it; any of its fields may be null."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind):
        # The type of a field that was null in all values. A text can hold any later value.
        return pa.string()
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
            raise ValueError(f"schema: field {twice!r} is named twice")
        return pa.struct(
            [
                pa.field(each.name, _checked(each.type, f"{path}.{each.name}" if path else each.name))
                for each in kind
            ]
        )
    if types.is_list(kind):
        return pa.list_(_checked(kind.value_type, f"{path}[]"))
    if types.is_large_list(kind):
        return pa.large_list(_checked(kind.value_type, f"{path}[]"))
    if (
        types.is_boolean(kind)
        or types.is_signed_integer(kind)
        or (types.is_floating(kind) and kind.bit_width > 16)
        or (types.is_decimal128(kind) and kind.scale >= 0)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    ):
        return kind
    raise ValueError(
        f"schema{f' of {path}' if path else ''}: values of JSON are not read as {kind}; schema is {_TAKEN}"
    )


def _read_as(kind: pa.DataType) -> pa.DataType:
    """The type that the compiled reader decodes to, before the cast."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(field.name, _read_as(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    return pa.string() if types.is_large_string(kind) else kind


class SchemaColumns:
    """Decodes values to one type. Used by one thread at a time."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._read_kind = _read_as(kind)
        self._reader = rows_reader(self._read_kind)
        self._make = _maker(self._read_kind, "")

    beside: tuple[str, ...] = ()

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded:
        """A row for each value, null if the value is not of the type, and the reasons."""
        made = over_nulls(values, self._present)
        if made.column.type == self.kind:
            return made
        return Decoded(made.column.cast(self.kind, safe=False), made.bad)

    def fit(self, column: Any) -> Any:
        return column

    def _present(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        found = None if self._reader is None else self._reader.read(values)
        if found is None:
            return self._alone(values)
        column, refused = found
        if not refused:
            return Decoded(column)
        return put_back(column, refused, self._alone(values.take(pa.array(refused))))

    def _alone(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, data in enumerate(values.to_pylist()):
            odd: list[str] = []
            try:
                rows.append(self._make(document_of(data), odd))
            except (ValueError, RecursionError) as problem:
                rows.append(None)
                odd.append(reason_of(problem))
            if odd:
                more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
                bad[row] = odd[0] + more
        return Decoded(pa.array(rows, self._read_kind), bad)


_Odd: TypeAlias = "list[str]"
"""The reasons of one document, in its order."""

_Make: TypeAlias = Callable[[Any, _Odd], Any]
"""Converts a JSON value for ``pa.array``; null if it is not of the type, with the reason."""


def _maker(kind: pa.DataType, path: str) -> _Make:
    """A function that converts to a type; made once for each type."""
    import pyarrow as pa

    types = pa.types
    at = f"field {path}" if path else "the document"
    if types.is_struct(kind):
        inner = [
            (field.name, _maker(field.type, f"{path}.{field.name}" if path else field.name)) for field in kind
        ]
        return _struct_maker(inner, at, kind)
    if types.is_list(kind):
        return _list_maker(_maker(kind.value_type, f"{path}[]"), at, kind)
    if types.is_string(kind):
        return lambda value, odd: value if value is None or isinstance(value, str) else json_text(value)
    plain = _plain_maker(kind)

    def make(value: Any, odd: _Odd) -> Any:
        if value is None:
            return None
        made = plain(value)
        if made is None:
            odd.append(_reason(at, value, kind))
        return made

    return make


def _struct_maker(inner: list[tuple[str, _Make]], at: str, kind: pa.DataType) -> _Make:
    def make(value: Any, odd: _Odd) -> Any:
        if isinstance(value, dict):
            return {name: made(value.get(name), odd) for name, made in inner}
        if value is not None:
            odd.append(_reason(at, value, kind))
        return None

    return make


def _list_maker(inner: _Make, at: str, kind: pa.DataType) -> _Make:
    def make(value: Any, odd: _Odd) -> Any:
        if isinstance(value, list):
            return [inner(each, odd) for each in value]
        if value is not None:
            odd.append(_reason(at, value, kind))
        return None

    return make


def _plain_maker(kind: pa.DataType) -> Callable[[Any], Any]:
    """None for a value that is not of the type."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else None
    if types.is_floating(kind):
        return _float
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind)
    if types.is_integer(kind):
        least, most = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
        return lambda value: int(value) if _is_whole(value) and least <= value <= most else None
    return lambda value: _of_text(value, kind) if isinstance(value, str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value == value // 1


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        # JSON has no numbers for these.
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    if not _is_number(value):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    if not _is_number(value) or not math.isfinite(value):
        return None
    made = round(Decimal(repr(value)), kind.scale)
    return made if len(made.as_tuple().digits) <= kind.precision else None


def _reason(at: str, value: Any, kind: pa.DataType) -> str:
    import pyarrow as pa

    is_struct, is_list = pa.types.is_struct(kind), pa.types.is_list(kind)
    expected = "an object" if is_struct else "a list" if is_list else str(kind)
    return f"{at}: {_shown(value)} where {expected} is expected"


def _of_text(text: str, kind: pa.DataType) -> date | None:
    """Times and dates, which are texts in JSON."""
    import pyarrow as pa

    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(text)
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    # A time without a zone is ambiguous.
    return at if (at.tzinfo is None) == (kind.tz is None) else None


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "a text" if value else "an empty text"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return "a number"
