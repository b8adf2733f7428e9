"""JSON: what json and jsonschema say, and what Kadence's records and Spark decoding read."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

import jsonschema
import pyarrow as pa
from tests.registry.parity.avro import decoded
from tests.registry.parity.counted import Counted, Difference
from tests.registry.parity.plain import REFUSED
from tests.registry.parity.random_json import JsonSchemas, arrow_of
from tests.registry.parity.registered import Registered

from kadence.errors import SerializationError
from kadence_schemas import JsonSchemaDeserializer
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.options import Format, SideOptions

__all__ = ["run"]

VALUES: Final = 5


def run(registered: Registered, chance: Random, documents: int, counted: Counted) -> None:
    """Compare until so many documents have been read."""
    last = counted.documents + documents
    while counted.documents < last:
        schemas = JsonSchemas(chance)
        writer = schemas.new()
        values = [schemas.document(writer) for _ in range(VALUES)]
        written = registered.json(writer, [{} if value is None else value for value in values])
        for reader in (None, schemas.changed(writer), schemas.changed(schemas.changed(writer))):
            _compare(registered, writer, reader, written.header, written.bodies, counted)


def _compare(
    registered: Registered, writer: Any, reader: Any, header: bytes, data: list[bytes], counted: Counted
) -> None:
    schema = writer if reader is None else reader
    validator = jsonschema.validators.validator_for(schema)(schema)
    values = [json.loads(each) for each in data]
    expected = [value if validator.is_valid(value) else REFUSED for value in values]
    framed = [header + each for each in data]

    def count(label: str, of_oracle: list[Any], answers: list[Any]) -> None:
        for value, answer, each in zip(of_oracle, answers, data, strict=True):
            counted.compare(
                Difference(
                    "json", label, value, answer, "", json.dumps(writer), json.dumps(schema), each.hex()
                )
            )

    count("records", expected, _records(registered, reader, framed))
    target = arrow_of(schema)
    if target is not None:
        rows = [REFUSED if value is REFUSED else _row(target, value) for value in expected]
        count("spark", rows, _spark(target, framed))
    counted.documents += len(data)


def _records(registered: Registered, reader: Any, framed: list[bytes]) -> list[Any]:
    made = JsonSchemaDeserializer(registered.client, reader)

    def read(data: bytes) -> Any:
        try:
            return made.deserialize("parity", (), data)
        except SerializationError:
            return REFUSED

    return [read(each) for each in framed]


def _spark(target: pa.DataType, framed: list[bytes]) -> list[Any]:
    side = SideOptions("value", Format.STRICT_JSON, framed=True)
    return decoded(decoder_of(side, target).decode, framed)


def _row(target: pa.DataType, value: Any) -> Any:
    """A value as the column has it, if it is of the column's type."""
    if value is None:
        return None
    if pa.types.is_struct(target):
        return {field.name: _row(field.type, value.get(field.name)) for field in target}
    if pa.types.is_list(target):
        return [_row(target.value_type, each) for each in value]
    return float(value) if pa.types.is_floating(target) else value
