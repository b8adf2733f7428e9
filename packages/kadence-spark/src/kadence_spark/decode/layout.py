"""The columns of a query that decodes: which come from Kafka, which from the value.

Two forms. *Whole*: the column ``value`` has the decoded value's type, mostly a struct, and all others are Kafka's.
*Flat*: columns that have exactly one of Kafka's names are Kafka's, all others are fields of the value: ``Timestamp`` is
a field, and ``timestamp`` the record's. In both, ``_error`` is
why a record could not be decoded, and ``_raw`` its bytes. A key is decoded into the column ``key`` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError
from kadence_spark.decode.formats import beside
from kadence_spark.decode.options import DecodeOptions, Format, Mode

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["ERROR", "RAW", "Layout", "ddl_of", "layout_of"]

ERROR: Final = "_error"
RAW: Final = "_raw"

_UNSHOWN: Final = frozenset({"headers"})
"""Columns that may be read for decoding alone."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each column of the query comes from.

    Attributes:
        sources: one for each column: the Kafka column's name; ``"."`` and a field's name for the value's field;
            ``":key"``, ``":value"``, ``":error"``, ``":raw"``.
        columns: Kafka's columns that are read for it.
        mode: what becomes of bad records.
    """

    sources: tuple[str, ...]
    columns: tuple[str, ...]
    mode: Mode

    @property
    def fields(self) -> tuple[str, ...]:
        """The value's fields that are columns of their own."""
        return tuple(source[1:] for source in self.sources if source.startswith("."))


def layout_of(options: DecodeOptions, schema: StructType, known: dict[str, str]) -> Layout:
    """The layout of a query with this schema.

    Args:
        known: Kafka's columns that can be had, with Spark's short names of their types.

    Raises:
        ConfigError: the schema and the options do not fit together.
    """
    kafka = {options.prefix + name: name for name in known}
    sources = []
    for column in schema.fields:
        sources.append(_source(options, column.name, column.dataType, kafka, known))
        odd = _odd(column.dataType, text_keys=options.value.format.is_json)
        if odd is not None:
            raise ConfigError(f"column {column.name!r} has a type that values cannot be decoded into: {odd}")
        if not column.nullable or not _is_nullable(column.dataType):
            raise ConfigError(
                f"column {column.name!r} has NOT NULL in it: leave NOT NULL out, since decoded values may be null"
            )
    _check_case(schema, sources)
    if options.value.format is Format.BINARY:
        stray = [source[1:] for source in sources if source.startswith(".")]
        if stray:
            raise ConfigError(
                f"the source has no column {stray[0]!r}; with the option value.format it is a field of the value"
            )
    if ":value" in sources and any(source.startswith(".") for source in sources):
        first = next(source[1:] for source in sources if source.startswith("."))
        raise ConfigError(
            f"the schema names a decoded column value and beside it {first!r}, which is no column of Kafka's; put it "
            "into value, or make value binary"
        )
    marked = ":error" in sources or ":raw" in sources
    mode = options.mode or (Mode.PERMISSIVE if marked else Mode.FAIL)
    needed = {source for source in sources if source in known}
    decoded = {
        "key": ":key" in sources,
        "value": any(source == ":value" or source.startswith(".") for source in sources),
    }
    for side in (options.key, options.value):
        if decoded[side.name]:
            needed.add(side.name)
            needed.update(beside(side))
    if mode is not Mode.PERMISSIVE:
        needed |= {"topic", "partition", "offset"}
    if not needed:
        needed.add("offset")
    # Headers name schemas, also where the query has no such column.
    return Layout(
        tuple(sources), tuple(name for name in (*known, *_UNSHOWN - known.keys()) if name in needed), mode
    )


def _source(
    options: DecodeOptions, name: str, kind: DataType, kafka: dict[str, str], known: dict[str, str]
) -> str:
    short = kind.simpleString()
    if name == ERROR and short == "string":
        return ":error"
    if name == RAW and short == "binary":
        return ":raw"
    if name in (ERROR, RAW):
        raise ConfigError(f"column {name} is {'string' if name == ERROR else 'binary'}, not {short}")
    for side in (options.value, options.key):
        wanted = name in (side.name, options.prefix + side.name)
        if wanted and side.format is not Format.BINARY and short != "binary":
            if side.format is Format.STRING and short != "string":
                raise ConfigError(f"column {name!r} is string with {side.name}.format=string, not {short}")
            return f":{side.name}"
    ours = kafka.get(name)
    if ours is None:
        return f".{name}"
    if short.replace(" ", "") != known[ours]:
        raise ConfigError(
            f"column {name!r} is Kafka's and {known[ours]}, not {short}; if a field of the value is meant, put the "
            "fields into a column value of type struct<...>, or give Kafka's columns other names with the option "
            "metadataPrefix"
        )
    return ours


def _check_case(schema: StructType, sources: list[str]) -> None:
    """Refuse a field beside a column of Kafka's that differs in case only: Spark would take one for the other."""
    fields = {
        column.name.lower(): column.name
        for column, source in zip(schema.fields, sources, strict=True)
        if source.startswith(".")
    }
    for column, source in zip(schema.fields, sources, strict=True):
        if not source.startswith(".") and (field := fields.get(column.name.lower())) is not None:
            raise ConfigError(
                f"columns {column.name!r} of Kafka and {field!r} of the value differ in case only, by which Spark does "
                "not tell columns apart: give Kafka's columns other names with the option metadataPrefix"
            )


def _odd(kind: DataType, *, text_keys: bool) -> str | None:
    """The first type inside a column that no format makes; None where there is none."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        inner = [item.dataType for item in kind.fields]
    elif isinstance(kind, types.ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, types.MapType):
        if text_keys and not isinstance(kind.keyType, types.StringType):
            return f"{kind.simpleString()}, as JSON's names are texts"
        inner = [kind.keyType, kind.valueType]
    else:
        plain = (
            types.StringType,
            types.BinaryType,
            types.BooleanType,
            types.NumericType,
            types.DateType,
            types.TimestampType,
            types.TimestampNTZType,
            types.NullType,
        )
        return None if isinstance(kind, plain) else kind.simpleString()
    return next((odd for item in inner if (odd := _odd(item, text_keys=text_keys)) is not None), None)


def _is_nullable(kind: DataType) -> bool:
    """Whether everything inside a type may be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return all(item.nullable and _is_nullable(item.dataType) for item in kind.fields)
    if isinstance(kind, ArrayType):
        return kind.containsNull and _is_nullable(kind.elementType)
    if isinstance(kind, MapType):
        return kind.valueContainsNull and _is_nullable(kind.valueType)
    return True


def ddl_of(options: DecodeOptions, known: dict[str, str], value: str, key: str) -> str:
    """The columns of ``load()`` without a schema, as DDL.

    Args:
        value, key: DDL of the types of the decoded sides; of the fields for a flat value.
    """
    columns = [] if not options.flat else [value]
    for name, kind in known.items():
        shown = {"key": key, "value": value}.get(name, kind)
        if name != "value" or not options.flat:
            columns.append(f"`{options.prefix}{name}` {shown}")
    if options.mode in (None, Mode.PERMISSIVE):
        columns += [f"`{ERROR}` string", f"`{RAW}` binary"]
    return ", ".join(columns)
