"""Arrow types as Spark's DDL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ddl_of_fields", "ddl_of_type"]

MOST_DIGITS: Final = 38


def ddl_of_type(kind: pa.DataType) -> str:
    """A type's DDL; names are quoted, whatever is in them.

    Raises:
        ConfigError: Spark has no such type.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return f"struct<{ddl_of_fields(kind)}>"
    if types.is_list(kind):
        return f"array<{ddl_of_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{ddl_of_type(kind.key_type)}, {ddl_of_type(kind.item_type)}>"
    if types.is_decimal(kind) and kind.precision > MOST_DIGITS:
        raise ConfigError(
            f"Spark's decimals have at most {MOST_DIGITS} digits, and a field of the value has {kind.precision}: give "
            "load() a schema with a type that its values fit, such as decimal(38,2)"
        )
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    known = {
        pa.null(): "void",
        pa.bool_(): "boolean",
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.uint32(): "bigint",
        pa.uint64(): "decimal(20,0)",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }
    if kind not in known:
        raise ConfigError(f"Spark has no type for {kind}")
    return known[kind]


def ddl_of_fields(kind: pa.DataType) -> str:
    """The fields of a struct as columns."""
    return ", ".join(f"`{item.name.replace('`', '``')}` {ddl_of_type(item.type)}" for item in kind)
