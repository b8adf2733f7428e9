"""Avro: what Java reads, and what Kadence's records, columns and Spark decoding read of the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pyarrow as pa
from tests.registry.parity.counted import Counted, Difference
from tests.registry.parity.differences import NO_COLUMN
from tests.registry.parity.java import Java, single
from tests.registry.parity.plain import REFUSED, of_arrow, of_python
from tests.registry.parity.random_avro import Schemas, kind_of, named_types, without_logical
from tests.registry.parity.registered import Registered

from kadence.columns.isolation import Decoded
from kadence.errors import ConfigError, SerializationError
from kadence_schemas import AvroDeserializer
from kadence_spark.decode.formats import arrow_of_side, decoder_of
from kadence_spark.decode.options import Format, SideOptions

__all__ = ["decoded", "run"]

VALUES: Final = 5
"""So many values of each schema."""


def run(java: Java, registered: Registered, chance: Random, documents: int, counted: Counted) -> None:
    """Compare until so many documents have been read."""
    last = counted.documents + documents
    while counted.documents < last:
        schemas = Schemas(chance, simple=chance.random() < 0.3)
        writer = schemas.new()
        readers = [None, schemas.changed(writer), schemas.changed(writer, changes=0.6)]
        values = [schemas.value(writer) for _ in range(VALUES)]
        written = registered.avro(writer, values)
        of_java = java.schema(without_logical(writer))
        data = [
            java.written(of_java, each) if place % 2 else each for place, each in enumerate(written.bodies)
        ]
        for reader in readers:
            _compare(java, registered, writer, reader, written.header, data, counted)


def _compare(
    java: Java,
    registered: Registered,
    writer: Any,
    reader: Any,
    header: bytes,
    data: list[bytes],
    counted: Counted,
) -> None:
    schema = writer if reader is None else reader
    of_java = java.schema(writer), java.schema(schema)
    expected = [java.try_read(*of_java, each) for each in data]
    plain = [(_floats(schema, value) if value is not REFUSED else value, why) for value, why in expected]
    framed = [header + each for each in data]
    text = None if reader is None else json.dumps(reader)
    named = _Named(schema)
    for label, read in (("records", _records), ("columns", _columns), ("spark", _spark)):
        found = read(registered, text, framed, writer)
        for (value, why), answer, each in zip(plain, found, data, strict=True):
            shown = value if label == "records" or value is REFUSED else named.as_column(schema, value)
            counted.compare(
                Difference(
                    "avro", label, shown, answer, why, json.dumps(writer), json.dumps(schema), each.hex()
                )
            )
    counted.documents += len(data)


def _records(registered: Registered, reader: str | None, framed: list[bytes], _: Any) -> list[Any]:
    try:
        made = AvroDeserializer(registered.client, reader)
    except ConfigError as problem:
        return [f"ConfigError {problem}"] * len(framed)

    def read(data: bytes) -> Any:
        try:
            return of_python(made.deserialize("parity", (), data))
        except SerializationError:
            return REFUSED

    return [read(each) for each in framed]


def _columns(registered: Registered, reader: str | None, framed: list[bytes], writer: Any) -> list[Any]:
    try:
        decode = AvroDeserializer(registered.client, reader).columns().decode
    except ConfigError as problem:
        return [_no_column(str(problem))] * len(framed)
    return decoded(decode, framed)


def _spark(registered: Registered, reader: str | None, framed: list[bytes], writer: Any) -> list[Any]:
    schema = json.dumps(writer) if reader is None else reader
    try:
        target = arrow_of_side(SideOptions("value", Format.AVRO, schema=schema), "")
        side = SideOptions("value", Format.AVRO, schema=reader, framed=True, registry=registered.options)
        decode = decoder_of(side, target).decode
    except ConfigError as problem:
        return [_no_column(str(problem))] * len(framed)
    return decoded(decode, framed)


def decoded(decode: Callable[[pa.Array], Decoded], framed: list[bytes]) -> list[Any]:
    """The rows of what a decoder of columns makes, in the form of `plain`."""
    made = decode(pa.array(framed, pa.binary()))
    rows = of_arrow(made.column)
    return [_no_column(made.bad[row]) if row in made.bad else each for row, each in enumerate(rows)]


def _no_column(problem: str) -> str:
    return NO_COLUMN if "cannot be a column" in problem else REFUSED


# ---------------------------------------------------------------- the oracle's values in other forms


class _Named:
    def __init__(self, schema: Any) -> None:
        self._defined = {name.rpartition(".")[2]: each for name, each in named_types(schema)}

    def as_column(self, schema: Any, value: Any) -> Any:
        """A value as a column has it: see docs/schemas.md, what differs."""
        return _walk(schema, value, self._defined, _as_column)


def _floats(schema: Any, value: Any) -> Any:
    """With the floats of 32 bits that Java had."""
    defined = {name.rpartition(".")[2]: each for name, each in named_types(schema)}
    return _walk(
        schema,
        value,
        defined,
        lambda kind, each: single(each) if kind_of(kind) == "float" and isinstance(each, float) else each,
    )


def _walk(schema: Any, value: Any, defined: dict[str, Any], leaf: Callable[[Any, Any], Any]) -> Any:
    if isinstance(schema, str):
        schema = defined.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, list):
        return _walk(_branch(schema, value, defined), value, defined, leaf)
    kind = kind_of(schema)
    if kind == "record":
        return {
            field["name"]: _walk(field["type"], value[field["name"]], defined, leaf)
            for field in schema["fields"]
        }
    if kind == "array":
        return [_walk(schema["items"], each, defined, leaf) for each in value]
    if kind == "map":
        return {name: _walk(schema["values"], each, defined, leaf) for name, each in value.items()}
    return leaf(schema, value)


def _branch(union: list[Any], value: Any, defined: dict[str, Any]) -> Any:
    """The type of a union that a value is of; where several could be it does not matter which."""
    types = [defined.get(each.rpartition(".")[2], each) if isinstance(each, str) else each for each in union]
    types.sort(key=lambda each: kind_of(each) != "record")
    return next((each for each in types if _can_be(each, value, defined)), "null")


def _is_any(schema: Any, value: Any, defined: dict[str, Any]) -> bool:
    schema = defined.get(schema.rpartition(".")[2], schema) if isinstance(schema, str) else schema
    types = schema if isinstance(schema, list) else [schema]
    return any(
        _can_be(defined.get(each.rpartition(".")[2], each) if isinstance(each, str) else each, value, defined)
        for each in types
    )


def _can_be(schema: Any, value: Any, defined: dict[str, Any]) -> bool:
    kind = kind_of(schema)
    if value is None:
        return bool(kind == "null")
    if isinstance(value, dict):
        if kind != "record":
            return bool(kind == "map")
        names = [field["name"] for field in schema["fields"]]
        return names == list(value) and all(
            _is_any(field["type"], value[field["name"]], defined) for field in schema["fields"]
        )
    if isinstance(value, float):
        return kind in ("float", "double")
    if isinstance(value, tuple):
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        return {"uuid": "uuid", "clock": "time-", "day": "date"}.get(value[0], "-") in logical
    return (
        bool(kind == "array") if isinstance(value, list) else kind not in ("null", "record", "map", "array")
    )


def _as_column(schema: Any, value: Any) -> Any:
    logical = schema.get("logicalType") if isinstance(schema, dict) and isinstance(value, tuple) else None
    if logical == "uuid":
        return value[1]
    if logical in ("time-millis", "time-micros"):
        return value[1] // 1_000 if logical == "time-millis" else value[1]
    return value
