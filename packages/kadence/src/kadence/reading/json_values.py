"""Values that are JSON, without a schema → one Arrow column whose type has all fields that came so far.

The types are inferred from some of the first values, and the compiled reader decodes all documents that match them.
Documents that it refuses (a new field, a value of another type, invalid JSON) are decoded one by one, by Python's json,
and the type is widened for them. A field with integers and fractions becomes a float. A field whose types cannot be
combined becomes a text, in which values that are not texts are JSON, as in Spark. Texts always stay texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.columns.isolation import Decoded, over_nulls, put_back
from kadence.columns.json_rows import rows_reader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonColumns", "document_of", "fitted", "json_text", "reason_of"]

_SAMPLE: Final = 100
"""How many values are decoded one by one to infer the type."""

_MOST_REFUSED: Final = 1 / 8
"""If the reader refuses more rows of a column, some are decoded one by one to widen the type, then the column again."""

_MOST_NESTED: Final = 100
"""The deepest nesting of a document: types are as deep, and functions over them recurse once for each level."""

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape] | None"
"""The type of some values: a word of `_PLAIN`, the fields of objects, that of a list's elements, or None of null."""


class JsonColumns:
    """Decodes values. Used by one thread at a time.

    Attributes:
        kind: the type that was inferred so far.
    """

    def __init__(self) -> None:
        import pyarrow as pa

        self.kind: pa.DataType = pa.null()

    beside: tuple[str, ...] = ()

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded:
        """A row for each value, null if the value is bad or null, and the reasons of bad ones."""
        return over_nulls(values, self._present)

    def fit(self, column: Any) -> Any:
        """A column that was decoded earlier, cast to the present type."""
        import pyarrow as pa

        chunks = [fitted(chunk, self.kind) for chunk in column.chunks]
        return pa.chunked_array(chunks, self.kind)

    def _present(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        if not len(values):
            return Decoded(pa.nulls(0, self.kind))
        if pa.types.is_null(self.kind):
            self._alone(values.slice(0, _SAMPLE))
        column, refused = self._read(values)
        if len(refused) > max(_SAMPLE, len(values) * _MOST_REFUSED):
            kind = self.kind
            self._alone(values.take(pa.array(refused[:: len(refused) // _SAMPLE])))
            if self.kind != kind:
                column, refused = self._read(values)
        if not refused:
            return Decoded(column)
        rest = self._alone(values.take(pa.array(refused)))
        column = fitted(column, self.kind)
        if rest.column.null_count == len(refused):
            return Decoded(column, {refused[row]: why for row, why in rest.bad.items()})
        return put_back(column, refused, rest)

    def _read(self, values: pa.Array) -> tuple[pa.Array, list[int]]:
        """The column as the compiled reader makes it, and the rows that it refuses, which are null."""
        import pyarrow as pa

        kind = pa.struct([("v", _readable(self.kind))])
        reader = rows_reader(kind, keeps_all=True)
        found = None if reader is None else reader.read(_wrapped(values))
        if found is None:
            return pa.nulls(len(values), self.kind), list(range(len(values)))
        rows, refused = found
        column = rows.field("v")
        self.kind = _merged(self.kind, _found(column))
        return fitted(column, self.kind), refused

    def _alone(self, values: pa.Array) -> Decoded:
        """The values, decoded by Python's json; the type is widened for them."""
        import pyarrow as pa

        documents: list[Any] = []
        bad: dict[int, str] = {}
        shape: Shape = None
        for row, data in enumerate(values.to_pylist()):
            document = None
            try:
                document = document_of(data)
            except (ValueError, RecursionError) as problem:
                bad[row] = reason_of(problem)
            shape = _grown(shape, document)
            documents.append(document)
        self.kind = _merged(self.kind, _arrow_of(shape))
        return Decoded(pa.array([_conformed(each, self.kind) for each in documents], self.kind), bad)


def _wrapped(values: pa.Array) -> pa.Array:
    """Each value wrapped in an object, because the reader accepts only objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    before, after, between = (pa.scalar(part, pa.binary()) for part in (b'{"v":', b"}", b""))
    return pc.binary_join_element_wise(before, values, after, between)


# ---------------------------------------------------------------- types


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type with boolean for fields that were always null: with it the reader refuses almost any other value."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return pa.bool_() if pa.types.is_null(kind) else kind


def _found(column: pa.Array) -> pa.DataType:
    """The type of a column's values; null if all are null."""
    import pyarrow as pa

    kind = column.type
    if column.null_count == len(column):
        return pa.null()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _found(column.field(place))) for place, field in enumerate(kind)])
    return pa.list_(_found(column.values)) if pa.types.is_list(kind) else kind


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that can hold the values of both."""
    import pyarrow as pa

    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type))
    numbers = (pa.int64(), pa.float64())
    return pa.float64() if one in numbers and other in numbers else pa.string()


def fitted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values, cast to a type that was merged with theirs."""
    import pyarrow as pa

    types = pa.types
    kind = array.type
    if kind == target:
        return array
    if types.is_null(kind) or types.is_null(target):
        return pa.nulls(len(array), target)
    if types.is_struct(kind) and types.is_struct(target):
        found = dict(zip((field.name for field in kind), array.flatten(), strict=True))
        children = [
            fitted(found[field.name], field.type) if field.name in found else pa.nulls(len(array), field.type)
            for field in target
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if types.is_list(kind) and types.is_list(target):
        elements = fitted(array.values, target.value_type)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(
            target, len(array), buffers, array.null_count, array.offset, children=[elements]
        )
    if types.is_nested(kind):
        return pa.array([_conformed(each, target) for each in array.to_pylist()], target)
    return array.cast(target, safe=False)


# ---------------------------------------------------------------- documents


def document_of(data: bytes) -> Any:
    """Decode a value with Python's json.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply; `reason_of` returns the reason as text.
    """
    document = json.loads(data.decode())
    if b"\\u" in data:
        # Half of a surrogate pair is not valid text.
        json.dumps(document, ensure_ascii=False).encode()
    if data.count(b"[") + data.count(b"{") > _MOST_NESTED and _depth(document) > _MOST_NESTED:
        raise RecursionError
    return document


def _depth(document: Any) -> int:
    """The nesting depth of the innermost value."""
    depth = 0
    level: list[Any] = [document]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return depth


def reason_of(problem: Exception) -> str:
    """The reason why a value cannot be decoded, without its content."""
    match problem:
        case json.JSONDecodeError():
            return f"not JSON: {problem.msg} at character {problem.pos}"
        case UnicodeDecodeError():
            return f"not UTF-8: byte {problem.start}"
        case UnicodeEncodeError():
            return "half of a surrogate pair"
        case RecursionError():
            return "nested too deeply"
        case _:
            return "a number that is too long"


_PLAIN: Final = {bool: "bool", int: "int64", float: "float64", str: "string"}


def _grown(shape: Shape, value: Any) -> Shape:
    """The shape, widened for this value."""
    if value is None:
        return shape
    if isinstance(value, dict):
        fields: Shape = {} if shape is None else shape
        if not isinstance(fields, dict):
            return "string"
        for name, item in value.items():
            fields[name] = _grown(fields.get(name), item)
        return fields
    if isinstance(value, list):
        elements: Shape = [None] if shape is None else shape
        if not isinstance(elements, list):
            return "string"
        for item in value:
            elements[0] = _grown(elements[0], item)
        return elements
    kind = _PLAIN[type(value)]
    if kind == "int64" and not -(2**63) <= value < 2**63:
        kind = "float64"
    if shape is None or shape == kind:
        return kind
    return (
        "float64"
        if {kind, *([shape] if isinstance(shape, str) else ())} == {"int64", "float64"}
        else "string"
    )


def _arrow_of(shape: Shape) -> pa.DataType:
    import pyarrow as pa

    if shape is None:
        return pa.null()
    if isinstance(shape, dict):
        return pa.struct([(name, _arrow_of(inner)) for name, inner in shape.items()])
    if isinstance(shape, list):
        return pa.list_(_arrow_of(shape[0]))
    return {"bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}[shape]


def _conformed(value: Any, kind: pa.DataType) -> Any:
    """A JSON value in the form that ``pa.array`` accepts for the type of its shape."""
    import pyarrow as pa

    if value is None:
        return None
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {field.name: _conformed(value.get(field.name), field.type) for field in kind}
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_conformed(item, kind.value_type) for item in value]
    if kind == pa.string() and not isinstance(value, str):
        return json_text(value)
    return _float(value) if kind == pa.float64() else value


def json_text(value: Any) -> str:
    """A value of JSON as a text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
