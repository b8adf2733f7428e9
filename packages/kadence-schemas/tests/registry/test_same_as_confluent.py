"""Our serialisers write what confluent-kafka's write, byte for byte, and register the same (`golden.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.registry.cases import CASES, TOPIC, Case, message_type
from tests.registry.golden import GOLDEN, prepare, told

from kadence_schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from kadence_testing.schema_registry import SchemaRegistryServer


def plain(requests: list[list[Any]]) -> list[list[Any]]:
    """Without what says nothing: the type AVRO, no references, and the long form of a primitive type."""
    made = []
    for method, path, body in requests:
        short = {name: value for name, value in body.items() if value not in ("AVRO", [])}
        schema = json.loads(short["schema"]) if short.get("schemaType") != "PROTOBUF" else None
        if isinstance(schema, dict) and list(schema) == ["type"]:
            short["schema"] = json.dumps(schema["type"])
        made.append([method, path, short])
    return made


def schema_of(case: Case, references: list[dict[str, Any]]) -> Schema:
    return Schema(case.schema, case.kind, tuple(SchemaReference(**each) for each in references))


def serializer_of(
    case: Case, client: SchemaRegistryClient, references: list[dict[str, Any]], **more: Any
) -> Any:
    how: Any = {
        "auto_register": not case.registered,
        "normalize": case.normalize,
        "subject_name_strategy": case.strategy,
        "is_key": case.is_key,
        "schema_id_in": "header" if case.in_header else "data",
        **more,
    }
    if case.kind == "PROTOBUF":
        return ProtobufSerializer(client, message_type(case.schema), **how)
    make: Callable[..., Any] = AvroSerializer if case.kind == "AVRO" else JsonSchemaSerializer
    return make(client, schema_of(case, references), **how)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_and_requests_are_confluents(case: Case) -> None:
    if case.kind == "JSON":
        pytest.importorskip("jsonschema")
    golden = json.loads(GOLDEN.read_text())[case.name]
    with SchemaRegistryServer() as server:
        references = prepare(server, case)
        client = SchemaRegistryClient(server.url)
        serializer = serializer_of(case, client, references)
        values = case.values
        if case.kind == "PROTOBUF":
            values = [message_type(case.schema)(**value) for value in values]
        headers: list[list[tuple[str, bytes]]] = [[] for _ in values]
        written = [
            serializer.serialize(TOPIC, added, value) for value, added in zip(values, headers, strict=True)
        ]
        assert [each.hex() for each in written] == golden["written"]
        assert [[[name, data.hex()] for name, data in added] for added in headers] == golden.get(
            "headers", [[] for _ in values]
        )
        assert plain(told(server.requests)) == plain(golden["requests"])
        # And back, by a client that has not registered it.
        fresh = SchemaRegistryClient(server.url)
        deserializer: Any = {
            "AVRO": AvroDeserializer,
            "PROTOBUF": ProtobufDeserializer,
            "JSON": JsonSchemaDeserializer,
        }[case.kind](fresh, is_key=case.is_key)
        read = [
            deserializer.deserialize(TOPIC, added, each) for each, added in zip(written, headers, strict=True)
        ]
        if case.kind == "PROTOBUF":
            read = [each.SerializeToString() for each in read]
            values = [each.SerializeToString() for each in values]
            known = ProtobufDeserializer(None, message_type(case.schema))
            assert [
                known.deserialize(TOPIC, added, each) for each, added in zip(written, headers, strict=True)
            ] == [message_type(case.schema)(**value) for value in case.values]
        if case.name == "everything":
            values = [values[0] | {"millis": values[0]["millis"].replace(microsecond=123000)}]
        assert read == values
