"""Arrow arrays as a decoder makes them → exactly the Arrow types that Spark asks for.

Fields are matched by name at each depth: missing ones are null, and unrequested ones are left out. Numbers may be
widened, but never narrowed; strings become timestamps, dates and bytes if the query's schema says so.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from kadence.columns.isolation import BadRecordError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["fit", "fits", "struct_of"]

_ZONED: Final = r"(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"
_TOO_FINE: Final = r"(\.\d{6})\d+"
"""Matches digits below a microsecond, which Spark's timestamps do not have."""


def struct_of(batch: pa.RecordBatch) -> pa.StructArray:
    """The batch's rows as structs of its columns, possibly none."""
    import pyarrow as pa

    kind = pa.struct(list(batch.schema))
    # Not StructArray.from_arrays, which cannot know the number of rows without a column.
    return pa.StructArray.from_buffers(kind, batch.num_rows, [None], children=batch.columns)


def fit(array: pa.Array, target: pa.DataType, path: str = "") -> pa.Array:
    """The array converted to the type ``target``.

    Args:
        path: the array's name in an error.

    Raises:
        BadRecordError: a value does not fit: too large, or not a time, date or base64; or the types never fit.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if array.type == target:
        return array
    if types.is_null(array.type):
        return pa.nulls(len(array), target)
    if types.is_dictionary(array.type):
        return fit(array.dictionary_decode(), target, path)
    try:
        if types.is_struct(target) and types.is_struct(array.type):
            return _fit_struct(array, target, path)
        if types.is_list(target) and types.is_list(array.type):
            elements = fit(array.values, target.value_type, f"{path}[]")
            return _same_shape(array, target, elements)
        if types.is_map(target) and types.is_map(array.type):
            keys = fit(array.keys, target.key_type, f"{path} (a key)")
            items = fit(array.items, target.item_type, f"{path}[]")
            entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
            return _same_shape(array, target, entries)
        if types.is_string(array.type) and not types.is_string(target):
            return _fit_text(array, target)
        if _grows(array.type, target):
            finer = types.is_timestamp(array.type) and array.type.unit == "ns"
            return pc.cast(array, target, safe=not finer)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadRecordError(f"{_named(path)} has a value that does not fit {target}") from None
    raise BadRecordError(f"{_named(path)} is {array.type}, which cannot be read as {target}")


def fits(source: pa.DataType, target: pa.DataType) -> str | None:
    """Why no value of one type can be read as the other; None if some can."""
    import pyarrow as pa

    try:
        fit(pa.array([], source), target)
    except BadRecordError as problem:
        return str(problem)
    return None


def _fit_struct(array: pa.StructArray, target: pa.DataType, path: str) -> pa.Array:
    import pyarrow as pa

    # Not field(): below a null there may be any value, and flatten() makes it null.
    found = array.flatten()
    children = []
    for wanted in target:
        index = array.type.get_field_index(wanted.name)
        if index < 0:
            children.append(pa.nulls(len(array), wanted.type))
        else:
            inner = f"{path}.{wanted.name}" if path else wanted.name
            children.append(fit(found[index], wanted.type, inner))
    if not children:
        raise BadRecordError(f"{_named(path)} has no field that the query's schema names")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _same_shape(array: pa.Array, target: pa.DataType, children: pa.Array) -> pa.Array:
    """A list or map with the same offsets and nulls, and other children."""
    import pyarrow as pa

    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[children]
    )


def _grows(source: pa.DataType, target: pa.DataType) -> Any:
    """Whether every value of one type, or every value in range, is valid in the other."""
    import pyarrow as pa

    types = pa.types
    if types.is_integer(source):
        return types.is_integer(target) or types.is_floating(target) or types.is_decimal(target)
    if types.is_floating(source):
        return types.is_floating(target) and target.bit_width >= source.bit_width
    if types.is_decimal(source):
        return types.is_decimal(target)
    if types.is_timestamp(source):
        return types.is_timestamp(target)
    if types.is_fixed_size_binary(source) or types.is_large_binary(source) or types.is_string(source):
        return types.is_binary(target)
    return types.is_large_string(source) and types.is_string(target)


def _fit_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_timestamp(target):
        return _times(array, target)
    if types.is_date(target):
        # A time of day after the date is cut off, as in Spark's casts.
        return pc.cast(pc.replace_substring_regex(array, r"^(\d{4}-\d\d-\d\d)[T ].*$", r"\1"), target)
    if types.is_binary(target):
        try:
            decoded = [
                None if text is None else base64.b64decode(text, validate=True) for text in array.to_pylist()
            ]
        except (binascii.Error, ValueError):
            raise pa.ArrowInvalid("not base64") from None
        return pa.array(decoded, target)
    raise BadRecordError(f"a string cannot be read as {target}")


def _times(array: pa.Array, target: pa.DataType) -> pa.Array:
    """ISO 8601. A string without a zone is in UTC, and if the target has no zone the string's is cut off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    naive = pa.timestamp("us")
    if target.tz is None:
        texts = pc.replace_substring_regex(_bounded(array), _ZONED, "")
        return pc.cast(texts, naive)
    try:
        return pc.cast(array, target)
    except pa.ArrowInvalid:
        pass
    texts = _bounded(array)
    # A date alone ends like a zone (-02), so the pattern is used only if there is a time of day.
    zoned = pc.and_(pc.match_substring_regex(texts, _ZONED), pc.match_substring_regex(texts, r"\d[T ]\d"))
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.cast(pc.if_else(zoned, texts, nothing), target)
    without = pc.cast(pc.cast(pc.if_else(zoned, nothing, texts), naive), target)
    return pc.coalesce(with_zone, without)


def _bounded(array: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.replace_substring_regex(array, _TOO_FINE, r"\1")


def _named(path: str) -> str:
    return f"field {path}" if path else "it"
