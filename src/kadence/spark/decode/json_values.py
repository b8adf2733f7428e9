"""format json: one JSON document in each value, by the rules of Spark's ``from_json``.

Three readers stand behind each other, and each is asked only about what the one before it refused.

*Records as most are* are read by a compiled reader of our own (`kadence.spark.decode.json_rows`), one after the other.

*Whole batches* go through pyarrow's JSON reader, the values joined by newlines. What could shift rows is ruled out:
every value that is joined begins with ``{`` and ends with ``}``. After a ``}`` and a newline a ``{`` is legal between
documents only (inside an object or list there would be a comma, and inside a text no newline), so each value begins a
document. If there are as many documents as values, each value is one document. A value may have newlines itself.

*Single records* are read by Python's own parser, which keeps the text of numbers: a string column takes a number's or
an object's text, as in ``from_json``. The rules that both keep are told in docs/spark.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kadence.spark.decode.fitting import fit
from kadence.spark.decode.isolation import (
    BadRecordError,
    Decoded,
    WholeRefusedError,
    decode_isolating,
    over_nulls,
    rows_of,
)
from kadence.spark.decode.json_rows import rows_reader
from kadence.spark.decode.json_shapes import Number, Shape, shape_of
from kadence.spark.decode.texts import texts_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JsonFormat"]

_BLANKS: Final = " \t\r\n"


class JsonFormat:
    """Makes values of one Arrow type from JSON texts.

    Args:
        target: Spark's Arrow type; a struct for objects. Any other type that JSON can hold will do as well.
    """

    def __init__(self, target: pa.DataType) -> None:
        import pyarrow as pa
        import pyarrow.json as arrow_json

        self._target = target
        # pyarrow's reader knows documents that are objects, and no maps.
        self._wrapped = not pa.types.is_struct(target)
        self._parsed_as = _parsed_as(target)
        self._shape = shape_of(target)
        self._rows = rows_reader(target)
        parsed = self._parsed_as
        if parsed is not None:
            fields = [pa.field("v", parsed)] if self._wrapped else list(parsed)
            self._options = arrow_json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
            )

    def decode(self, values: pa.Array) -> Decoded:
        return over_nulls(values, self._present)

    def _present(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        found = None if self._rows is None else self._rows.read(values)
        if found is None:
            return decode_isolating(values, self._whole, self._careful)
        column, refused = found
        if not refused:
            return Decoded(column)
        rest = decode_isolating(values.take(pa.array(refused)), self._whole, self._careful)
        places = list(range(len(column)))
        for place, row in enumerate(refused, len(column)):
            places[row] = place
        both = pa.concat_arrays([column, rest.column])
        return Decoded(both.take(pa.array(places)), {refused[row]: why for row, why in rest.bad.items()})

    def _whole(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as arrow_json

        if self._parsed_as is None or not len(values):
            raise WholeRefusedError
        texts = texts_of(values)
        if self._wrapped:
            texts = pc.binary_join_element_wise('{"v":', texts, "}", "")
        elif not _objects(texts):
            texts = pc.utf8_trim(texts, _BLANKS)
            if not _objects(texts):
                raise WholeRefusedError
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
        # One block: pyarrow cuts blocks at newlines, and a value may have some.
        reading = arrow_json.ReadOptions(use_threads=False, block_size=joined.size + 1)
        try:
            table = arrow_json.read_json(
                pa.BufferReader(joined), read_options=reading, parse_options=self._options
            )
        except pa.ArrowInvalid:
            raise WholeRefusedError from None
        # A zero byte would end the reader's work early. To look for one so is forty times as fast as match_substring.
        letters = pa.Array.from_buffers(pa.uint8(), joined.size, [None, joined])
        if table.num_rows != len(values) or not pc.min(letters).as_py():
            raise WholeRefusedError
        columns = [column.combine_chunks() for column in table.columns]
        found = (
            columns[0] if self._wrapped else pa.StructArray.from_arrays(columns, fields=list(self._parsed_as))
        )
        try:
            return fit(found, self._target)
        except BadRecordError:
            raise WholeRefusedError from None

    # ------------------------------------------------------------ one by one

    def _careful(self, values: pa.Array) -> Decoded:
        import pyarrow as pa

        documents: list[Any] = []
        bad: dict[int, str] = {}
        whole: dict[int, pa.Array] = {}
        for row, value in enumerate(values.to_pylist()):
            document = None
            try:
                document = _document(value, self._shape)
            except _TooMuchError as problem:
                try:
                    whole[row] = self._whole(pa.array([value], pa.binary()))
                except WholeRefusedError:
                    bad[row] = str(problem)
            except BadRecordError as problem:
                bad[row] = str(problem)
            documents.append(document)
        column = rows_of(documents, self._column, bad)
        for row, found in whole.items():
            column = pa.concat_arrays([column.slice(0, row), found, column.slice(row + 1)])
        return Decoded(column, bad)

    def _column(self, documents: list[Any]) -> pa.Array:
        import pyarrow as pa

        try:
            return fit(pa.array(documents, _texts_for_times(self._target)), self._target)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            # Half of a surrogate pair, a decimal of too many digits.
            raise BadRecordError("a value does not fit the type of its field") from None


class _TooMuchError(BadRecordError):
    """Python's parser refuses what pyarrow's may take: it decides, so that a record's neighbours do not."""


def _document(value: bytes, shape: Shape) -> Any:
    try:
        text = value.decode()
        if not text.strip(_BLANKS):
            raise BadRecordError("the value is empty, which is no JSON")
        return shape(json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number))
    except UnicodeDecodeError as problem:
        raise BadRecordError(f"not UTF-8: byte {problem.start}") from None
    except json.JSONDecodeError as problem:
        kind = _TooMuchError if b"Inf" in value else BadRecordError
        raise kind(f"not JSON: {problem.msg}, character {problem.pos}") from None
    except RecursionError:
        raise _TooMuchError("nested too deeply") from None


def _objects(texts: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _parsed_as(target: pa.DataType) -> pa.DataType | None:
    """The type that pyarrow's reader is told; None if there is a map, which it does not know."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(target):
        children = [(item.name, _parsed_as(item.type)) for item in target]
        if not children or any(kind is None for _, kind in children):
            return None
        return pa.struct(children)
    if types.is_list(target):
        inner = _parsed_as(target.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_map(target):
        return None
    if types.is_decimal(target):
        # The reader grows whole numbers to the scale without a look at the precision; the cast that follows looks.
        return pa.decimal256(76, target.scale)
    return _texts_for_times(target)


def _texts_for_times(target: pa.DataType) -> pa.DataType:
    """The same with strings where JSON has texts for what Spark has types for."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(target):
        return pa.struct([(item.name, _texts_for_times(item.type)) for item in target])
    if types.is_list(target):
        return pa.list_(_texts_for_times(target.value_type))
    if types.is_map(target):
        return pa.map_(_texts_for_times(target.key_type), _texts_for_times(target.item_type))
    if types.is_timestamp(target) or types.is_date(target) or types.is_binary(target):
        return pa.string()
    return target
