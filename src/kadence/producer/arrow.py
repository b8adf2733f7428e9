"""What `Producer.send_arrow` is given, checked and brought to a few types, without looking at single values.

The columns are those of Spark's Kafka sink, and ``timestamp``; others are left out. Binary columns of all kinds become
large_binary, whose offsets have 64 bits: a cast of the offsets, not of the bytes. pyarrow is an extra, imported at the
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence.errors import MissingDependencyError, SerializationError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

__all__ = ["Chunk", "Headers", "chunks_of"]

_KNOWN: Final = ("value", "key", "topic", "partition", "headers", "timestamp")


class Headers(NamedTuple):
    """The headers of a chunk; ``lists`` has the places of each row's in the other two."""

    lists: pa.LargeListArray
    names: pa.LargeBinaryArray
    values: pa.LargeBinaryArray


class Chunk(NamedTuple):
    """Consecutive rows; a column that the data lacks is None.

    Attributes:
        first_row: number of its first row in the data. rows: how many.
        value, key: large_binary. partition: int32. timestamp: int64, ms since 1970.
        topic: a dictionary array of strings, or None when one topic was given for all rows.
        headers: names and values of all rows, and which of them are a row's.
    """

    first_row: int
    rows: int
    value: pa.LargeBinaryArray
    key: pa.LargeBinaryArray | None
    topic: pa.DictionaryArray | None
    partition: pa.Int32Array | None
    timestamp: pa.Int64Array | None
    headers: Headers | None


@cache
def _pyarrow() -> ModuleType:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("send_arrow() needs pyarrow: pip install kadence[arrow]") from error
    module: ModuleType = pyarrow
    return module


def chunks_of(data: Any, *, with_topic: bool) -> tuple[int, Iterator[Chunk]]:
    """The number of rows, and the rows in chunks, none of them empty.

    Args:
        data: a pyarrow Table or RecordBatch. with_topic: whether each row must name its topic.

    Raises:
        SerializationError: not that, or a column that is missing, there twice or of a type that cannot be used.
        MissingDependencyError: pyarrow is not installed.
    """
    pa = _pyarrow()
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise SerializationError(
            f"send_arrow() takes a pyarrow Table or RecordBatch, not {type(data).__name__}; "
            "pyarrow.table(...) makes one"
        )
    places = _places(data.schema, with_topic=with_topic)
    for name, at in places.items():
        _check_type(pa, name, data.schema.field(at).type)
    if with_topic and "topic" not in places:
        raise SerializationError(
            f"no topic: give send_arrow() one, or the data a column 'topic'; its columns are {_names(data.schema)}"
        )
    batches = data.to_batches() if isinstance(data, pa.Table) else [data]
    return data.num_rows, _chunks(pa, batches, places)


def _places(schema: pa.Schema, *, with_topic: bool) -> dict[str, int]:
    """Where each column lies."""
    places = {}
    for name in _KNOWN:
        if name == "topic" and not with_topic:
            continue
        found = schema.get_all_field_indices(name)
        if len(found) > 1:
            raise SerializationError(f"the data has {len(found)} columns {name!r}; it may have one")
        if found:
            places[name] = found[0]
    if "value" not in places:
        raise SerializationError(
            f"the data needs a column 'value' (binary or string); its columns are {_names(schema)}"
        )
    return places


def _names(schema: pa.Schema) -> str:
    return ", ".join(map(repr, schema.names)) or "none"


def _chunks(pa: ModuleType, batches: list[pa.RecordBatch], places: dict[str, int]) -> Iterator[Chunk]:
    row = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = {
            name: _CASTS[name](pa, batch.column(places[name])) if name in places else None for name in _KNOWN
        }
        yield Chunk(row, batch.num_rows, **columns)
        row += batch.num_rows


# ------------------------------------------------------------ types


def _is_bytes(pa: ModuleType, kind: pa.DataType) -> bool:
    """Whether a column of this type holds byte strings."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,
        types.is_fixed_size_binary,
        types.is_null,
    )
    return _is_text(pa, kind) or any(test(kind) for test in tests)


def _is_text(pa: ModuleType, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(test(kind) for test in tests)


def _is_headers(pa: ModuleType, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_null(kind):
        return True
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    return (
        pair.num_fields == 2
        and {pair.field(0).name, pair.field(1).name} == {"key", "value"}
        and _is_text(pa, pair.field("key").type)
        and _is_bytes(pa, pair.field("value").type)
    )


_TYPES: Final[dict[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "value": (_is_bytes, "binary or string"),
    "key": (_is_bytes, "binary or string"),
    "topic": (_is_text, "string"),
    "partition": (lambda pa, kind: pa.types.is_integer(kind) or pa.types.is_null(kind), "an integer"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
    "timestamp": (
        lambda pa, kind: pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_null(kind),
        "a timestamp, or int64 (ms since 1970)",
    ),
}


def _check_type(pa: ModuleType, name: str, kind: pa.DataType) -> None:
    fits, wanted = _TYPES[name]
    if not fits(pa, kind):
        raise SerializationError(f"the column {name!r} must be {wanted}, not {kind}; cast it first")


def _bytes(pa: ModuleType, array: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_dictionary(array.type):
        values = array.dictionary.cast(pa.large_binary())
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    return array if pa.types.is_large_binary(array.type) else array.cast(pa.large_binary())


def _topics(pa: ModuleType, array: pa.Array) -> pa.DictionaryArray:
    return _bytes(pa, array).cast(pa.string()).dictionary_encode()


def _partitions(pa: ModuleType, array: pa.Array) -> pa.Int32Array:
    try:
        return array.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise SerializationError(
            f"the column 'partition' has a number that is no partition: {error}"
        ) from error


def _times(pa: ModuleType, array: pa.Array) -> pa.Int64Array:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    return array.cast(pa.int64())


def _headers(pa: ModuleType, array: pa.Array) -> Headers | None:
    if pa.types.is_null(array.type):
        return None
    lists = array.cast(pa.large_list(array.type.value_type))
    # The whole of the values, for the offsets of a slice count from there; a pair that is null gets null fields.
    pairs = lists.values
    names = [pairs.type.field(0).name, pairs.type.field(1).name]
    fields = dict(zip(names, pairs.flatten(), strict=True))
    return Headers(lists, _bytes(pa, fields["key"]), _bytes(pa, fields["value"]))


_CASTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "value": _bytes,
    "key": _bytes,
    "topic": _topics,
    "partition": _partitions,
    "headers": _headers,
    "timestamp": _times,
}
