"""Checks the argument of `Producer.send_arrow` and casts its columns to a few types, without reading single values.

The columns are those of Spark's Kafka sink, and ``timestamp``; others are left out. Binary columns of all kinds become
large_binary, whose offsets have 64 bits: a cast of the offsets, not of the bytes. pyarrow is an extra, imported at the
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kadence._native.rows import Rows
from kadence.errors import MissingDependencyError, SerializationError
from kadence.producer.columns import Numbers, Strings

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa

__all__ = ["Chunk", "chunks_of"]

_KNOWN: Final = ("value", "key", "topic", "partition", "headers", "timestamp")

_MOST_ROWS: Final = 65_536
"""Rows in one chunk, which is checked in a few ms: the event loop runs between two chunks."""


class Chunk(NamedTuple):
    """Consecutive rows.

    Attributes:
        first_row: number of the first in the data. topics: names, for the rows' topics; empty if all rows go to one.
    """

    first_row: int
    rows: Rows
    topics: list[str]


@cache
def _pyarrow() -> ModuleType:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("send_arrow() needs pyarrow: pip install 'kadence[arrow]'") from error
    module: ModuleType = pyarrow
    return module


def chunks_of(data: Any, *, with_topic: bool) -> tuple[int, Iterator[Chunk]]:
    """The number of rows, and the rows in chunks, none of them empty.

    Args:
        data: a pyarrow Table or RecordBatch. with_topic: whether each row must name its topic.

    Raises:
        SerializationError: ``data`` is neither, or a column is missing, occurs twice or has a type that cannot be used.
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
            "no topic: pass one to send_arrow(), or add a column 'topic' to the data; "
            f"its columns are {_names(data.schema)}"
        )
    batches = data.to_batches() if isinstance(data, pa.Table) else [data]
    if "headers" not in places:
        # Lists refer to the whole batch that they lie in, so a batch with headers is not cut.
        batches = [piece for batch in batches for piece in _pieces(batch)]
    return data.num_rows, _chunks(pa, batches, places)


def _places(schema: pa.Schema, *, with_topic: bool) -> dict[str, int]:
    """The index of each column."""
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


def _pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if batch.num_rows <= _MOST_ROWS:
        return [batch]
    return [batch.slice(first, _MOST_ROWS) for first in range(0, batch.num_rows, _MOST_ROWS)]


def _names(schema: pa.Schema) -> str:
    return ", ".join(map(repr, schema.names)) or "none"


def _chunks(pa: ModuleType, batches: list[pa.RecordBatch], places: dict[str, int]) -> Iterator[Chunk]:
    first_row = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        arrays = {name: _cast(pa, name, batch.column(at)) for name, at in places.items()}
        topic = arrays.get("topic")
        rows = Rows(
            batch.num_rows,
            _strings(arrays["value"]),
            _strings(arrays["key"]) if "key" in arrays else None,
            _header_columns(arrays.get("headers")),
            _numbers(arrays.get("partition")),
            _numbers(arrays.get("timestamp")),
            None if topic is None else _numbers(topic.indices),
        )
        yield Chunk(first_row, rows, [] if topic is None else topic.dictionary.to_pylist())
        first_row += batch.num_rows


def _cast(pa: ModuleType, name: str, array: pa.Array) -> Any:
    try:
        return _CASTS[name](pa, array)
    except pa.ArrowInvalid as error:
        raise SerializationError(f"the column {name!r} has a value that cannot be used: {error}") from error


# ------------------------------------------------------------ buffers


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.buffers()[0] if array.null_count else None


def _strings(array: pa.LargeBinaryArray) -> Strings:
    _, ends, data = array.buffers()
    return Strings(_validity(array), ends, data, array.offset, len(array))


def _numbers(array: pa.Array | None) -> Numbers | None:
    return None if array is None else Numbers(_validity(array), array.buffers()[1], array.offset)


def _header_columns(headers: _Headers | None) -> tuple[Numbers, Strings, Strings] | None:
    if headers is None:
        return None
    lists = _numbers(headers.lists)
    assert lists is not None, "headers is not None"
    return lists, _strings(headers.names), _strings(headers.values)


# ------------------------------------------------------------ types


def _is_bytes(pa: ModuleType, kind: pa.DataType) -> bool:
    """True if a column of this type holds byte strings."""
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
    return array.cast(pa.int32())


def _times(pa: ModuleType, array: pa.Array) -> pa.Int64Array:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    times = array.cast(pa.int64())
    # A consumer gives -1 for records without a timestamp; so records can be copied.
    if (first := _least(times)) is not None and first < -1:
        raise SerializationError(f"a timestamp is ms since 1970, not {first} as in the column 'timestamp'")
    return times


def _least(numbers: pa.Int64Array) -> int | None:
    from pyarrow import compute

    found: int | None = compute.min(numbers).as_py()
    return found


class _Headers(NamedTuple):
    """Headers as columns: ``lists`` has the range of each row's headers in the other two."""

    lists: pa.LargeListArray
    names: pa.LargeBinaryArray
    values: pa.LargeBinaryArray


def _headers(pa: ModuleType, array: pa.Array) -> _Headers | None:
    if pa.types.is_null(array.type):
        return None
    lists = array.cast(pa.large_list(array.type.value_type))
    # All values: the offsets of a slice count from the first one. A pair that is null gets null fields.
    pairs = lists.values
    fields = {pairs.type.field(at).name: field for at, field in enumerate(pairs.flatten())}
    names = _bytes(pa, fields["key"])
    names.cast(pa.large_string())  # raises if a name is not UTF-8
    return _Headers(lists, names, _bytes(pa, fields["value"]))


_CASTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "value": _bytes,
    "key": _bytes,
    "topic": _topics,
    "partition": _partitions,
    "headers": _headers,
    "timestamp": _times,
}
