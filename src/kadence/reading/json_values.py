"""Values that are JSON, without a schema → one Arrow column whose type has all fields that came so far.

pyarrow's reader takes a whole column at once. Where it refuses (a value that is not JSON, or values whose types differ)
each value is read alone, by Python's. A field that has whole numbers and others becomes a float; one whose values have
types that do not go together becomes a text, with JSON of what is no text, as in Spark. Texts stay texts, whatever they
look like: pyarrow would make times of some, depending on the values that happen to come first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.registry.columns.isolation import Decoded

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonColumns"]

_MOST_NESTED: Final = 900
"""pyarrow's reader calls itself for each level, and a hundred thousand end the process; Python's refuses a thousand."""

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape] | None"
"""The type of some values: a word of `_PLAIN`, the fields of objects, that of a list's elements, or None of null."""


class JsonColumns:
    """Decodes values. Used by one thread at a time."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._type: pa.DataType = pa.null()
        self._is_mixed = False
        """A field's types did not go together: pyarrow's reader would refuse each column that has it."""

    def decode(self, values: pa.Array) -> Decoded:
        """A row for each value, null where it is bad or null, and why it is bad."""
        column = None if self._is_mixed else self._whole(values)
        return self._one_by_one(values) if column is None else Decoded(column)

    def fit(self, column: Any) -> Any:
        """A column that was decoded earlier, as one of the type of now."""
        import pyarrow as pa

        chunks = [_fit(chunk, self._type) for chunk in column.chunks]
        return pa.chunked_array(chunks, self._type)

    # ------------------------------------------------------------ a whole column

    def _whole(self, values: pa.Array) -> pa.Array | None:
        """The column, or None where pyarrow's reader is not to be asked, or refuses."""
        import pyarrow as pa

        if not len(values):
            return pa.nulls(0, self._type)
        if _may_nest_deeply(values):
            return None
        try:
            # The reader does not look whether texts are UTF-8.
            values.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        lines = _lines(values)
        column = _parsed(lines, _without_nulls(self._type))
        if column is None:
            # A whole number may have become a float.
            column = _parsed(lines, None)
        if column is not None and column.type != (texts := _plain(column.type)):
            # Once more, and what looks like a time is a text.
            column = _parsed(lines, _without_nulls(_merged(self._type, texts)[0]))
        if column is None or column.type != _plain(column.type):
            return None
        merged, is_mixed = _merged(self._type, column.type)
        # `1} {"v": 2` would be two rows.
        if is_mixed or len(column) != len(values):
            return None
        self._type = merged
        return _fit(column, merged)

    # ------------------------------------------------------------ each alone

    def _one_by_one(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        documents: list[Any] = []
        bad: dict[int, str] = {}
        shape: Shape = None
        for row, data in enumerate(values.to_pylist()):
            document = None
            if data is not None:
                try:
                    document = _document(data)
                except (ValueError, RecursionError) as problem:
                    bad[row] = _reason(problem)
            shape = _grown(shape, document)
            documents.append(document)
        made, is_mixed = _merged(self._type, _arrow_of(shape))
        self._type = made
        self._is_mixed = self._is_mixed or is_mixed or _has_texts_of_others(documents, made)
        return Decoded(pa.array([_conformed(each, made) for each in documents], made), bad)


def _lines(values: pa.Array) -> Any:
    """Each value in an object of its own: pyarrow's reader takes objects alone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [pa.scalar(part, pa.binary()) for part in (b'{"v":', b"}\n", b"")]
    made = pc.binary_join_element_wise(parts[0], pc.fill_null(values, b"null"), parts[1], parts[2])
    _, _, data = made.buffers()
    return data


def _parsed(lines: Any, known: pa.DataType | None) -> pa.Array | None:
    """The column; None where it is refused, or a value was no single document.

    Args:
        known: fields that the values may have, with their types.
    """
    import pyarrow as pa
    import pyarrow.json

    schema = None if known is None else pa.schema([("v", known)])
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(lines.size, 1 << 16))
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, newlines_in_values=True)
    try:
        table = pyarrow.json.read_json(pa.BufferReader(lines), read_options=read, parse_options=parse)
    except pa.ArrowInvalid:
        return None
    # `1, "w": 2` would be two columns.
    return table["v"].combine_chunks() if table.column_names == ["v"] else None


def _may_nest_deeply(values: pa.Array) -> bool:
    import pyarrow.compute as pc

    if (pc.max(pc.binary_length(values)).as_py() or 0) <= _MOST_NESTED:
        return False
    opened = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
    return (pc.max(opened).as_py() or 0) > _MOST_NESTED


# ---------------------------------------------------------------- types


def _merged(one: pa.DataType, other: pa.DataType) -> tuple[pa.DataType, bool]:
    """The type that takes the values of both, and whether somewhere that is a text for what is none."""
    import pyarrow as pa

    types = pa.types
    if one == other or types.is_null(other):
        return one, False
    if types.is_null(one):
        return other, False
    if types.is_struct(one) and types.is_struct(other):
        fields = {field.name: field.type for field in one}
        is_mixed = False
        for field in other:
            fields[field.name], mixed = _merged(fields.get(field.name, pa.null()), field.type)
            is_mixed = is_mixed or mixed
        return pa.struct(list(fields.items())), is_mixed
    if types.is_list(one) and types.is_list(other):
        inner, is_mixed = _merged(one.value_type, other.value_type)
        return pa.list_(inner), is_mixed
    numbers = (pa.int64(), pa.float64())
    if one in numbers and other in numbers:
        return pa.float64(), False
    return pa.string(), True


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with texts for times."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _without_nulls(kind: pa.DataType) -> pa.DataType | None:
    """The part of a type that says something: None and lists of None may become anything."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        known = [(field.name, _without_nulls(field.type)) for field in kind]
        return pa.struct([(name, each) for name, each in known if each is not None])
    if pa.types.is_list(kind):
        inner = _without_nulls(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return kind


def _fit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values as ones of a type that was merged with theirs."""
    import pyarrow as pa

    types = pa.types
    kind = array.type
    if kind == target:
        return array
    if types.is_null(kind):
        return pa.nulls(len(array), target)
    if types.is_struct(kind) and types.is_struct(target):
        found = dict(zip((field.name for field in kind), array.flatten(), strict=True))
        children = [
            _fit(found[field.name], field.type) if field.name in found else pa.nulls(len(array), field.type)
            for field in target
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if types.is_list(kind) and types.is_list(target):
        elements = _fit(array.values, target.value_type)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(
            target, len(array), buffers, array.null_count, array.offset, children=[elements]
        )
    if target == pa.float64():
        return array.cast(target, safe=False)
    return pa.array([_conformed(each, target) for each in array.to_pylist()], target)


# ---------------------------------------------------------------- documents


def _document(data: bytes) -> Any:
    document = json.loads(data.decode())
    if b"\\u" in data:
        # Half of a surrogate pair is no text.
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _reason(problem: Exception) -> str:
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
    """The shape that takes this value as well."""
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


def _has_texts_of_others(documents: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether some value becomes a text that is none."""
    import pyarrow as pa

    types = pa.types
    there = [each for each in documents if each is not None]
    if types.is_string(kind):
        return any(not isinstance(each, str) for each in there)
    if types.is_struct(kind):
        return any(_has_texts_of_others((e.get(field.name) for e in there), field.type) for field in kind)
    if types.is_list(kind):
        return _has_texts_of_others([item for each in there for item in each], kind.value_type)
    return False


def _conformed(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as ``pa.array`` takes it for a type that was made of its shape."""
    import pyarrow as pa

    if value is None:
        return None
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {field.name: _conformed(value.get(field.name), field.type) for field in kind}
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_conformed(item, kind.value_type) for item in value]
    if kind == pa.string() and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if kind == pa.float64():
        return _float(value)
    return value


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
