"""Matches the columns of rows with those of a table: checked on the driver, aligned in the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kadence.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["Columns", "arrow_schema", "fit", "null_where"]


def arrow_schema(rows: StructType, what: str) -> pa.Schema:
    """The Arrow schema of a table for rows: every column may be null, and instants are in UTC.

    Args:
        what: the kind of table, for messages.

    Raises:
        ConfigError: a column has a type that such tables do not have, or the name of another one.
    """
    import pyarrow as pa

    _check_names(rows, "")
    fields = []
    for item in rows.fields:
        made = _arrow_type(item.dataType)
        if made is None:
            raise ConfigError(
                f"column {item.name} has the type {item.dataType.simpleString()}, which cannot be written to {what}: "
                "cast it"
            )
        fields.append(pa.field(item.name, made))
    return pa.schema(fields)


def _check_names(kind: DataType, path: str) -> None:
    """Spark cannot read a struct with two names that differ only in case."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = [item.name.lower() for item in kind.fields]
        for item in kind.fields:
            if names.count(item.name.lower()) > 1:
                name = path + item.name.lower()
                raise ConfigError(f"the rows have more than one column {name!r}; rename one of them")
            _check_names(item.dataType, f"{path}{item.name}.")
    elif isinstance(kind, t.ArrayType):
        _check_names(kind.elementType, path)
    elif isinstance(kind, t.MapType):
        _check_names(kind.keyType, path)
        _check_names(kind.valueType, path)


def _arrow_type(kind: DataType) -> pa.DataType | None:
    import pyarrow as pa
    from pyspark.sql import types as t

    simple: dict[type[DataType], pa.DataType] = {
        t.BooleanType: pa.bool_(),
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
        t.StringType: pa.string(),
        t.CharType: pa.string(),
        t.VarcharType: pa.string(),
        t.BinaryType: pa.binary(),
        t.DateType: pa.date32(),
        t.TimestampType: pa.timestamp("us", "UTC"),
        t.TimestampNTZType: pa.timestamp("us"),
    }
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        item = _arrow_type(kind.elementType)
        return None if item is None else pa.list_(item)
    if isinstance(kind, t.MapType):
        key, value = _arrow_type(kind.keyType), _arrow_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, t.StructType):
        made = [(item.name, _arrow_type(item.dataType)) for item in kind.fields]
        # Parquet has no empty structs.
        return pa.struct(made) if made and all(inner is not None for _, inner in made) else None
    return simple.get(type(kind))


@dataclass(frozen=True, slots=True)
class Columns:
    """Converts rows to rows of a table; a picklable value.

    Attributes:
        table: the table's columns in its order.
    """

    table: pa.Schema

    def align(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the table's columns, and fields of structs; missing ones are null.

        Raises:
            SerializationError: a column is null that must not be null.
        """
        import pyarrow as pa

        arrays = []
        for item in self.table:
            place = batch.schema.get_field_index(item.name)
            array = (
                _nulls(batch.num_rows, item.type) if place < 0 else _aligned(batch.column(place), item.type)
            )
            if not item.nullable and array.null_count:
                raise SerializationError(f"column {item.name} of the table must not be null, and a row's is")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.table)


def _aligned(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array cast to ``target``, with fields by their names."""
    import pyarrow as pa

    is_of = pa.types
    if array.type == target:
        return array
    if is_of.is_struct(target):
        # Not field(): below a null it may have any value, while flatten() makes it null.
        found = dict(zip((item.name for item in array.type), array.flatten(), strict=True))
        children = [
            _aligned(found[item.name], item.type) if item.name in found else _nulls(len(array), item.type)
            for item in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if _is_list(target) and _is_list(array.type) and _has_struct(target):
        elements = _aligned(array.values, target.value_type)
        kind = pa.LargeListArray if is_of.is_large_list(array.type) else pa.ListArray
        whole = pa.large_list if is_of.is_large_list(array.type) else pa.list_
        made = kind.from_buffers(
            whole(target.value_field),
            len(array),
            array.buffers()[:2],
            array.null_count,
            array.offset,
            children=[elements],
        )
        return made.cast(target)
    if is_of.is_map(target) and _has_struct(target):
        entries = pa.StructArray.from_arrays(
            [_aligned(array.keys, target.key_type), _aligned(array.items, target.item_type)],
            fields=[target.key_field, target.item_field],
        )
        return pa.Array.from_buffers(
            target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries]
        )
    # Spark's instants have the session's zone, which only affects their display.
    return array.cast(target)


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Nulls of a type. Below them, fields that must not be null have values, as Parquet's writer needs."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or all(item.nullable for item in kind):
        return pa.nulls(count, kind)
    children = [(_nulls if item.nullable else _blanks)(count, item.type) for item in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array([True] * count, pa.bool_()))


def _blanks(count: int, kind: pa.DataType) -> pa.Array:
    """Values of a type: zeros, empty texts and empty lists."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        children = [(_nulls if item.nullable else _blanks)(count, item.type) for item in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    made = pa.nulls(count, kind)
    inner: list[pa.Array] = []
    if _is_list(kind):
        inner = [made.values]
    elif pa.types.is_map(kind):
        inner = [pa.nulls(0, pa.struct([kind.key_field, kind.item_field]))]
    own = 2 if inner else len(made.buffers())
    return pa.Array.from_buffers(kind, count, [None, *made.buffers()[1:own]], 0, 0, inner or None)


def null_where(array: pa.Array, other: pa.Array) -> pa.Array:
    """A list or map array with nulls where another one has them."""
    import pyarrow as pa

    valid = pa.concat_arrays([pa.array([], pa.bool_()), other.is_valid()])
    if pa.types.is_map(array.type):
        fields = [array.type.key_field, array.type.item_field]
        child = pa.StructArray.from_arrays([array.keys, array.items], fields=fields)
    else:
        child = array.values
    # A bitmap begins at the array's offset, and this one at 0.
    offsets = array.buffers()[1].slice(array.offset * (8 if pa.types.is_large_list(array.type) else 4))
    return pa.Array.from_buffers(
        array.type, len(array), [valid.buffers()[1], offsets], other.null_count, 0, [child]
    )


def _has_struct(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) or any(
        _has_struct(kind.field(place).type) for place in range(kind.num_fields)
    )


def fit(rows: pa.Schema, table: pa.Schema, *, may_add: bool, may_widen: bool = False) -> Sequence[pa.Field]:
    """The columns of the table that have to be changed or added for the rows, with their new types.

    Args:
        may_add: whether columns, and fields inside of them, may be added. may_widen: whether types may grow, too.

    Raises:
        ConfigError: a column is of another type in the table, or missing on one of the sides.
    """
    wanted = _Fitting(may_add=may_add, may_widen=may_widen).fields(list(table), list(rows), "")
    return [
        item for item in wanted if item.name not in table.names or item.type != table.field(item.name).type
    ]


class _Fitting:
    def __init__(self, *, may_add: bool, may_widen: bool) -> None:
        self._may_add = may_add
        self._may_widen = may_widen

    def fields(self, table: Sequence[pa.Field], rows: Sequence[pa.Field], path: str) -> list[pa.Field]:
        """The fields of both, the table's first."""
        given = {item.name: item for item in rows}
        names = {item.name for item in table}
        missing = [item for item in rows if item.name not in names]
        # Spark cannot read a table with two names that differ only in case.
        known = {item.name.lower(): item.name for item in table}
        for item in missing:
            if item.name.lower() in known:
                raise ConfigError(
                    f"column {path}{item.name} of the rows is {known[item.name.lower()]} in the table: rename it, case "
                    "counts"
                )
        if missing and not self._may_add:
            some = ", ".join(path + item.name for item in missing)
            raise ConfigError(
                f"the table has no column {some}: leave it out of the rows, or add it with the option mergeSchema=true"
            )
        made = []
        for item in table:
            if item.name in given:
                made.append(item.with_type(self.kind(item.type, given[item.name].type, path + item.name)))
            elif item.nullable:
                made.append(item)
            else:
                raise ConfigError(
                    f"column {path}{item.name} of the table must not be null, and the rows lack it"
                )
            if path and not item.nullable and given[item.name].nullable:
                raise ConfigError(
                    f"field {path}{item.name} of the table must not be null: no rows can be added"
                )
        return made + missing

    def kind(self, table: Any, rows: Any, path: str) -> Any:
        """A type for the values of both."""
        import pyarrow as pa

        is_of = pa.types
        if is_of.is_struct(table) and is_of.is_struct(rows):
            return pa.struct(self.fields(list(table), list(rows), f"{path}."))
        if _is_list(table) and _is_list(rows) and _may_be_null(table.value_field, rows.value_field):
            inner = table.value_field.with_type(self.kind(table.value_type, rows.value_type, f"{path}[]"))
            return pa.large_list(inner) if is_of.is_large_list(table) else pa.list_(inner)
        if is_of.is_map(table) and is_of.is_map(rows) and _may_be_null(table.item_field, rows.item_field):
            key = table.key_field.with_type(self.kind(table.key_type, rows.key_type, f"{path} (a key)"))
            return pa.map_(
                key, table.item_field.with_type(self.kind(table.item_type, rows.item_type, f"{path}[]"))
            )
        if (_is_list(table) and _is_list(rows)) or (is_of.is_map(table) and is_of.is_map(rows)):
            raise ConfigError(f"values in column {path} of the table must not be null: no rows can be added")
        if _holds(table, rows):
            return table
        if self._may_widen and _holds(rows, table):
            return rows
        raise ConfigError(f"column {path} is {rows} in the rows and {table} in the table: cast it")


def _may_be_null(table: pa.Field, rows: pa.Field) -> bool:
    """Whether the one is null wherever the other is."""
    return bool(table.nullable or not rows.nullable)


def _holds(table: Any, rows: Any) -> bool:
    """Whether a plain column of one type holds every value of another."""
    import pyarrow as pa

    is_of = pa.types
    if is_of.is_signed_integer(table) and is_of.is_signed_integer(rows):
        return bool(table.bit_width >= rows.bit_width)
    if is_of.is_decimal(table) and is_of.is_decimal(rows):
        return bool(table.scale == rows.scale and table.precision >= rows.precision)
    # Iceberg's library has offsets of 64 bits.
    return bool(
        table == rows
        or (is_of.is_float64(table) and is_of.is_float32(rows))
        or (is_of.is_large_string(table) and is_of.is_string(rows))
        or (is_of.is_large_binary(table) and is_of.is_binary(rows))
    )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
