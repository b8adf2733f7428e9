"""format json: one JSON document in each value, read as Spark's ``from_json`` reads it.

There is one reader, in Python: `json_tokens` walks over a document as Jackson's parser does, and `json_shapes` makes of
the tokens what Spark makes of them. In front of it a compiled one (`json_rows`) takes the documents of which it is
certain, which are nearly all that are met, and leaves every other one alone. How far this equals ``from_json`` is told
in docs/spark.md; ``make parity-json`` compares.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kadence.columns.isolation import BadRecordError, Decoded, over_nulls, put_back
from kadence_spark.decode.json_rows import rows_reader
from kadence_spark.decode.json_shapes import PartialError, Rules, document_shape
from kadence_spark.decode.json_tokens import Tokens

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonFormat"]


class JsonFormat:
    """Makes values of one Arrow type from JSON texts.

    Args:
        target: Spark's Arrow type; a struct for objects. Any other type that JSON can hold will do as well.
        rules: see `Rules`.
    """

    def __init__(self, target: pa.DataType, rules: Rules) -> None:
        import pyarrow as pa

        self._target = target
        self._rules = rules
        self._shape = document_shape(target, rules)
        self._numbered = _numbered(target)
        self._rows = rows_reader(target, rules.zone)
        # from_json gives an object without its bad members, even if no member is left.
        self._nothing: Any = {} if pa.types.is_struct(target) and not rules.is_strict else None

    def decode(self, values: pa.Array) -> Decoded:
        """A row for each value; what is left of a bad one, and why it is bad."""
        return over_nulls(values, self._present)

    def _present(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        found = None if self._rows is None else self._rows.read(values)
        if found is None:
            return self._careful(values)
        column, refused = found
        if not refused:
            return Decoded(column)
        return put_back(column, refused, self._careful(values.take(pa.array(refused))))

    def _careful(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            document, reason = self._read(value)
            rows.append(document)
            if reason is not None:
                bad[row] = reason
        return Decoded(pa.array(rows, self._numbered).cast(self._target), bad)

    def _read(self, value: bytes) -> tuple[Any, str | None]:
        """The document as the values that ``pa.array`` takes, and why it is bad."""
        strict = self._rules.is_strict
        try:
            tokens = Tokens(_text(value, strict=strict), self._rules.syntax)
            if tokens.next() is None:
                if strict:
                    raise BadRecordError("the value is empty, which is no JSON")
                return None, None
            document = self._shape(tokens)
            if document is None:
                raise BadRecordError("the document is null")
            if strict and tokens.next() is not None:
                raise BadRecordError(f"not JSON: something behind the document, near character {tokens.at}")
        except PartialError as problem:
            return (None if strict else problem.left), str(problem)
        except BadRecordError as problem:
            return self._nothing, str(problem)
        return document, None


_HALF: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _text(value: bytes, *, strict: bool) -> str:
    """UTF-8; what is none is replaced as Java does it, or refused."""
    try:
        return value.decode()
    except UnicodeDecodeError as problem:
        if strict:
            raise BadRecordError(f"not UTF-8: byte {problem.start}") from None
    # Half of a surrogate pair is one wrong character to Java, three to Python.
    return _HALF.sub(b"\xef\xbf\xbd", value).decode(errors="replace")


def _numbered(target: pa.DataType) -> pa.DataType:
    """The same type with numbers for times and dates."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(target):
        return pa.struct([pa.field(item.name, _numbered(item.type), item.nullable) for item in target])
    if types.is_list(target):
        return pa.list_(_renamed(target.value_field))
    if types.is_map(target):
        return pa.map_(target.key_type, _renamed(target.item_field))
    if types.is_timestamp(target):
        return pa.int64()
    return pa.int32() if types.is_date(target) else target


def _renamed(item: pa.Field) -> pa.Field:
    return item.with_type(_numbered(item.type))
