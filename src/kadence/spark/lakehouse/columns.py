"""How the columns of rows fit those of a table: checked on the driver, aligned in the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kadence.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = ["Columns", "arrow_schema", "fit"]


def arrow_schema(rows: StructType, what: str) -> pa.Schema:
    """The Arrow schema of a table for rows: every column may be null, and instants are in UTC.

    Args:
        what: the kind of table, for messages.

    Raises:
        ConfigError: a column has a type that such tables do not have, or the name of another one.
    """
    import pyarrow as pa

    names = [item.name.lower() for item in rows.fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"the rows have more than one column {name!r}; rename one of them")
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
        return None if any(inner is None for _, inner in made) else pa.struct(made)
    return simple.get(type(kind))


@dataclass(frozen=True, slots=True)
class Columns:
    """How rows become rows of a table, as a picklable value.

    Attributes:
        table: the table's columns in its order.
    """

    table: pa.Schema

    def align(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with the table's columns; those that the rows lack are null.

        Raises:
            SerializationError: a column that must not be null is.
        """
        import pyarrow as pa

        arrays = []
        for item in self.table:
            place = batch.schema.get_field_index(item.name)
            if place < 0:
                array = pa.nulls(batch.num_rows, item.type)
            else:
                # Spark's instants carry the zone of the session, which says how they are shown.
                array = batch.column(place).cast(item.type)
            if not item.nullable and array.null_count:
                raise SerializationError(f"column {item.name} of the table must not be null, and a row's is")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.table)


def fit(rows: pa.Schema, table: pa.Schema, *, may_add: bool) -> Sequence[pa.Field]:
    """The columns of the rows that the table lacks.

    Args:
        may_add: whether there may be any.

    Raises:
        ConfigError: a column is of another type in the table, or missing on one of the sides.
    """
    missing = [item for item in rows if item.name not in table.names]
    # Spark reads no table with two names that differ only in case.
    known = {name.lower(): name for name in table.names}
    for item in missing:
        if item.name.lower() in known:
            raise ConfigError(
                f"column {item.name} of the rows is {known[item.name.lower()]} in the table: rename it, case counts"
            )
    if missing and not may_add:
        names = ", ".join(item.name for item in missing)
        raise ConfigError(
            f"the table has no column {names}: leave it out of the rows, or add it with the option mergeSchema=true"
        )
    for item in table:
        if item.name not in rows.names:
            if not item.nullable:
                raise ConfigError(f"column {item.name} of the table must not be null, and the rows lack it")
            continue
        given = rows.field(item.name).type
        if not _takes(item.type, given):
            raise ConfigError(
                f"column {item.name} is {given} in the rows and {item.type} in the table: cast it"
            )
    return missing


def _takes(table: Any, rows: Any) -> bool:
    """Whether a column of one type holds every value of another."""
    import pyarrow as pa

    is_of = pa.types
    if is_of.is_struct(table) and is_of.is_struct(rows):
        inner = {item.name: item for item in table}
        return [item.name for item in table] == [item.name for item in rows] and all(
            inner[item.name].nullable and _takes(inner[item.name].type, item.type) for item in rows
        )
    if _is_list(table) and _is_list(rows):
        return table.value_field.nullable and _takes(table.value_type, rows.value_type)
    if is_of.is_map(table) and is_of.is_map(rows):
        return (
            table.item_field.nullable
            and _takes(table.key_type, rows.key_type)
            and _takes(table.item_type, rows.item_type)
        )
    if is_of.is_signed_integer(table) and is_of.is_signed_integer(rows):
        return bool(table.bit_width >= rows.bit_width)
    # Iceberg's library has offsets of 64 bits.
    return bool(
        table == rows
        or (is_of.is_large_string(table) and is_of.is_string(rows))
        or (is_of.is_large_binary(table) and is_of.is_binary(rows))
    )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
