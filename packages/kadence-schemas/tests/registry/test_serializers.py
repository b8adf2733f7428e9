"""Serialisers and deserialisers of a registry: evolution, strategies, hostile registries and hostile records."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tests.registry.cases import ADA, FLAT, MONEY, ORDER, PERSON, PRICE, message_type, record
from tests.registry.registry_server import RegistryServer

from kadence.errors import (
    ConfigError,
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
    SerializationError,
)
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
    record_subject,
    topic_record_subject,
    topic_subject,
)
from kadence_schemas.settings import RegistryOptions


@pytest.fixture
def client(registry: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient._of(RegistryOptions((registry.url,)), lambda _: None)


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


# ---------------------------------------------------------------- Avro


def test_a_schema_is_registered_with_the_first_record_and_asked_for_once(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    serializer = AvroSerializer(client, ORDER)
    assert registry.requests == []
    order = {"id": 1, "item": "book", "note": None}
    written = {serializer.serialize(topic, (), order) for topic in ("a", "b", "a", "b")}
    assert len(written) == 1
    assert registry.asked == ["/subjects/a-value/versions", "/subjects/b-value/versions"]
    deserializer = AvroDeserializer(client)
    (data,) = written
    assert deserializer.deserialize("a", (), data) == deserializer.deserialize("b", (), data) == order
    assert registry.asked[2:] == ["/schemas/ids/1"]


def test_readers_schema_fills_in_and_leaves_out(client: SchemaRegistryClient) -> None:
    fields: Any = [
        {"name": "item", "type": "string"},
        {"name": "id", "type": "double"},
        {"name": "count", "type": "int", "default": 1},
    ]
    reader = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    data = AvroSerializer(client, ORDER).serialize("t", (), {"id": 1, "item": "x", "note": "y"})
    assert AvroDeserializer(client, reader).deserialize("t", (), data) == {"item": "x", "id": 1.0, "count": 1}
    fields[1]["type"] = "string"
    with pytest.raises(SerializationError, match="not Avro of schema id 1"):
        AvroDeserializer(client, reader).deserialize("t", (), data)


def test_objects_become_dicts_and_dicts_objects(client: SchemaRegistryClient) -> None:
    @dataclass
    class Money:
        cents: int
        unit: str

    data = AvroSerializer(client, MONEY, to_dict=asdict).serialize("t", (), Money(5, "EUR"))
    made = AvroDeserializer(client, from_dict=lambda found: Money(**found)).deserialize("t", (), data)
    assert made == Money(5, "EUR")


def test_the_latest_version_is_written_with(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    registry.add("t-value", MONEY)
    latest = registry.add("t-value", record("Money", ("cents", "string")))
    serializer = AvroSerializer(client, use_latest_version=True)
    assert serializer.serialize("t", (), {"cents": "5"}) == framed(latest, b"\x025")
    assert serializer.serialize("t", (), {"cents": "6"}) == framed(latest, b"\x026")
    assert registry.asked == ["/subjects/t-value/versions/latest"]
    with pytest.raises(SchemaNotFoundError, match="no subject 'u-value' with a version"):
        serializer.serialize("u", (), {})
    with pytest.raises(ConfigError, match="needs use_latest_version=True"):
        AvroSerializer(client)


def test_what_is_not_registered_is_not_written(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    serializer = AvroSerializer(client, MONEY, auto_register=False)
    with pytest.raises(SchemaNotFoundError, match=r"not a version of subject .t-value. .*auto_register"):
        serializer.serialize("t", (), {"cents": 1, "unit": "EUR"})
    assert client.get_subjects() == []
    registry.fixed = 409, b'{"error_code": 409, "message": "not compatible"}'
    with pytest.raises(SchemaRefusedError, match="409: not compatible"):
        AvroSerializer(client, MONEY).serialize("t", (), {"cents": 1, "unit": "EUR"})


def test_values_that_are_not_of_the_schema(client: SchemaRegistryClient) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        AvroSerializer(client, MONEY).serialize("t", (), {"unit": "EUR"})
    strict = AvroSerializer(client, MONEY, strict=True)
    with pytest.raises(ValueError, match="more"):
        strict.serialize("t", (), {"cents": 1, "unit": "EUR", "more": 1})


def test_strategies_by_name_by_javas_name_and_as_functions() -> None:
    for name, function, expected in (
        ("topic", topic_subject, "t-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", record_subject, "shop.Order"),
        ("topic_record", topic_record_subject, "t-shop.Order"),
    ):
        for given in (name, function):
            with RegistryServer() as server:
                client = SchemaRegistryClient(server.url)
                AvroSerializer(client, ORDER, subject_name_strategy=given).serialize(
                    "t", (), {"id": 1, "item": "", "note": None}
                )
                assert client.get_subjects() == [expected]
    with pytest.raises(ConfigError, match="no subject name strategy 'name'; there are topic, record"):
        AvroSerializer(client, ORDER, subject_name_strategy="name")
    union = AvroSerializer(client, ["null", "long"], subject_name_strategy="record")
    with pytest.raises(ConfigError, match="the schema has no name") as refused:
        union.serialize("t", (), 1)
    # What the advice says can be written.
    assert 'use subject_name_strategy="topic"' in str(refused.value)
    with RegistryServer() as server:
        client = SchemaRegistryClient(server.url)
        AvroSerializer(client, ["null", "long"], subject_name_strategy="topic").serialize("t", (), 1)


@pytest.mark.parametrize("schema", ["", "{", '{"type": "record"}', '"nothing"', "[" * 100_000, "5", 5])
def test_what_is_no_avro_schema(client: SchemaRegistryClient, schema: Any) -> None:
    with pytest.raises(ConfigError):
        AvroSerializer(client, schema)
    with pytest.raises(ConfigError):
        AvroDeserializer(client, schema)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes are too few for a schema id"),
        (b"\0\0\0\1", "4 bytes are too few"),
        (b"\1\0\0\0\1", "5 bytes are too few for a schema GUID"),
        (b"\2\0\0\0\1", "its first byte is neither 0 nor 1"),
        (b"plain text", "its first byte is neither 0 nor 1"),
        (framed(99, b""), "schema id 99 is not in the registry"),
        (framed(1, b""), r"not Avro of schema id 1 \(EOFError\)"),
        (framed(1, b"\x02\x08"), r"not Avro of schema id 1"),
        (framed(2, b""), "schema id 2 is of type JSON, not AVRO"),
        (framed(3, b""), "schema id 3 cannot be used: this is not an Avro schema"),
        (framed(4, b"\x00" * 101), "schema id 4: more than 100 nested records"),
        (framed(5, struct.pack(">b", -2) + b"\x00" * 3), "schema id 5"),
        (framed(5, b"\x80\x80\x80\x80\x10"), "claims more elements than the record has bytes"),
        (framed(6, b"\x02"), "schema id 6 cannot be used: this is not an Avro schema: Money"),
    ],
)
def test_records_that_are_bad(
    registry: RegistryServer, client: SchemaRegistryClient, data: bytes, said: str
) -> None:
    registry.add("a", MONEY)
    registry.add("b", "{}", "JSON")
    tree = record("Tree", ("inner", "Tree"))
    nothings = json.dumps({"type": "array", "items": "null"})
    registry.schemas = {
        3: {"schema": "{"},
        4: {"schema": tree},
        5: {"schema": nothings},
        6: {"schema": PRICE, "references": [{"name": "Other", "subject": "b", "version": 1}]},
    }
    deserializer = AvroDeserializer(client)
    for _ in range(2):
        with pytest.raises(SerializationError, match=said):
            deserializer.deserialize("t", (), data)


@pytest.mark.parametrize(
    "fixed",
    [(404, b"<html>nothing here</html>"), (500, b""), (200, b"{}"), (200, b"[]"), (200, b" " * (17 << 20))],
)
def test_a_registry_that_fails_makes_no_record_bad(
    registry: RegistryServer, client: SchemaRegistryClient, fixed: tuple[int, bytes]
) -> None:
    money = registry.add("a", MONEY)
    registry.fixed = fixed
    deserializer = AvroDeserializer(client)
    with pytest.raises(SchemaRegistryError):
        deserializer.deserialize("t", (), framed(money, b"\x02\x00"))
    with pytest.raises(SchemaRegistryError):
        AvroSerializer(client, ORDER).serialize("t", (), {})
    registry.fixed = None
    assert deserializer.deserialize("t", (), framed(money, b"\x02\x00")) == {"cents": 1, "unit": "EUR"}


def test_references_in_a_circle(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    registry.subjects["a"] = {"schema": MONEY, "references": [{"name": "B", "subject": "b", "version": 1}]}
    registry.subjects["b"] = {"schema": MONEY, "references": [{"name": "A", "subject": "a", "version": 1}]}
    registry.schemas[1] = registry.subjects["a"]
    with pytest.raises(SchemaRegistryError, match="refers to itself"):
        AvroDeserializer(client).deserialize("t", (), framed(1, b""))


# ---------------------------------------------------------------- Protobuf


def test_messages_without_their_class_come_from_the_registry(client: SchemaRegistryClient) -> None:
    sale = message_type("shop.Sale")(id=5, price={"cents": 7, "unit": {"name": "EUR"}})
    sale.at.FromJsonString("2026-11-24T00:00:00Z")
    data = ProtobufSerializer(client, type(sale)).serialize("t", (), sale)
    found: Any = ProtobufDeserializer(client).deserialize("t", (), data)
    assert (found.id, found.price.cents, found.price.unit.name) == (5, 7, "EUR")
    assert found.DESCRIPTOR.full_name == "shop.Sale"
    with pytest.raises(SerializationError, match="for messages of type Sale, not dict"):
        ProtobufSerializer(client, type(sale)).serialize("t", (), {})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes are too few"),
        (framed(1, b""), "index path of its message cannot be read"),
        (framed(1, b"\xff" * 20), "index path of its message cannot be read"),
        (framed(1, b"\x02\x10"), r"schema id 1: its schema has no message at \[8\]"),
        (framed(1, b"\x00\xff"), "not Protobuf of message shop.Unit, schema id 1"),
        (framed(2, b"\x00"), "schema id 2 cannot be used: the schema registry returns no compiled"),
        (framed(3, b"\x00"), "schema id 3 cannot be used: the schema registry returns no compiled"),
        (framed(4, b"\x00"), "schema id 4 cannot be used: the Protobuf definitions do not fit together"),
    ],
)
def test_messages_that_are_bad(
    registry: RegistryServer, client: SchemaRegistryClient, data: bytes, said: str
) -> None:
    unit = message_type("shop.Unit")
    ProtobufSerializer(client, unit).serialize("t", (), unit())
    lost = descriptor_pb2.FileDescriptorProto(name="x.proto")
    lost.dependency.append("lost.proto")
    import base64

    for schema_id, text in (
        (2, 'syntax = "proto3"; // ü'),
        (3, base64.b64encode(b"\xff\xff").decode()),
        (4, base64.b64encode(lost.SerializeToString()).decode()),
    ):
        registry.schemas[schema_id] = {"schema": text, "schemaType": "PROTOBUF"}
    deserializer: ProtobufDeserializer[Any] = ProtobufDeserializer(client)
    for _ in range(2):
        with pytest.raises(SerializationError, match=said):
            deserializer.deserialize("t", (), data)


def test_what_is_no_message_type(client: SchemaRegistryClient) -> None:
    for given in (dict, None, message_type("shop.Unit")()):
        with pytest.raises(ConfigError, match="message_type must be a class"):
            ProtobufSerializer(client, given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs a registry or a message_type"):
        ProtobufDeserializer(None)


# ---------------------------------------------------------------- JSON


def test_values_are_checked_when_they_are_written_and_read(client: SchemaRegistryClient) -> None:
    pytest.importorskip("jsonschema")
    serializer = JsonSchemaSerializer(client, PERSON)
    data = serializer.serialize("t", (), ADA)
    assert JsonSchemaDeserializer(client).deserialize("t", (), data) == ADA
    with pytest.raises(SerializationError, match="'minimum' fails at 'properties/age'") as caught:
        serializer.serialize("t", (), {"name": "hidden", "age": -1})
    assert "hidden" not in str(caught.value)
    bad = JsonSchemaSerializer(client, PERSON, validate=False).serialize("t", (), {"age": 1})
    with pytest.raises(SerializationError, match="'required' fails at 'its top'"):
        JsonSchemaDeserializer(client).deserialize("t", (), bad)
    assert JsonSchemaDeserializer(client, validate=False).deserialize("t", (), bad) == {"age": 1}
    assert JsonSchemaDeserializer(None, {"type": "object"}).deserialize("t", (), bad) == {"age": 1}
    with pytest.raises(SerializationError, match="no JSON comes after"):
        JsonSchemaDeserializer(client).deserialize("t", (), data[:-1])
    with pytest.raises(ValueError, match="not JSON compliant"):
        JsonSchemaSerializer(client, {}).serialize("t", (), float("nan"))


def test_names_inside_a_value_stand_in_no_error(client: SchemaRegistryClient) -> None:
    pytest.importorskip("jsonschema")
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    for name in ("ada@example.org", "x" * 300_000):
        with pytest.raises(SerializationError) as caught:
            JsonSchemaSerializer(client, schema).serialize("names", (), {name: "hidden"})
        assert str(caught.value) == (
            "it does not match its JSON Schema: 'type' fails at 'additionalProperties'"
        )
    long: dict[str, Any] = {"type": "object", "properties": {"y" * 1_000: {"type": "integer"}}}
    with pytest.raises(SerializationError) as caught:
        JsonSchemaSerializer(client, long).serialize("long", (), {"y" * 1_000: "hidden"})
    assert len(str(caught.value)) < 200


def test_json_without_jsonschema(client: SchemaRegistryClient) -> None:
    serializer = JsonSchemaSerializer(client, PERSON, validate=False, to_dict=lambda name: {"name": name})
    data = serializer.serialize("t", (), "Ada")
    deserializer = JsonSchemaDeserializer(None, validate=False, from_dict=lambda found: found["name"])
    assert deserializer.deserialize("t", (), data) == "Ada"
    with pytest.raises(SerializationError, match="its first byte is neither 0 nor 1"):
        deserializer.deserialize("t", (), b'{"a": 1}')


def test_references_of_json_are_those_of_the_registry_alone(
    registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    pytest.importorskip("jsonschema")
    registry.add("person", PERSON, "JSON")
    flat = Schema(FLAT, "JSON", (SchemaReference("person.json", "person", 1),))
    serializer = JsonSchemaSerializer(client, flat)
    serializer.serialize("t", (), {"owner": ADA})
    with pytest.raises(SerializationError, match="'required' fails at 'properties/owner'"):
        serializer.serialize("t", (), {"owner": {}})
    elsewhere = JsonSchemaSerializer(client, {"$ref": f"{registry.url}/stolen.json"})
    with pytest.raises(SerializationError, match="its JSON Schema cannot be used"):
        elsewhere.serialize("t", (), {})
    assert not any("stolen" in path for path in registry.asked)


def test_a_short_schema_of_json_stays_as_it_is(client: SchemaRegistryClient) -> None:
    """Not so of Avro, where {"type": "int"} is "int"."""
    pytest.importorskip("jsonschema")
    client.register_schema("number", Schema('{"type": "integer"}', "JSON"))
    assert client.get_latest_version("number").schema.schema_str == '{"type":"integer"}'
    refers = Schema('{"$ref": "number"}', "JSON", (SchemaReference("number", "number", 1),))
    serializer = JsonSchemaSerializer(client, refers)
    assert JsonSchemaDeserializer(client).deserialize("t", (), serializer.serialize("t", (), 4)) == 4
    with pytest.raises(SerializationError, match="'type' fails"):
        serializer.serialize("t", (), "four")


def test_what_is_no_json_schema(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    pytest.importorskip("jsonschema")
    for given in ("{", '{"type": "nothing"}', "[" * 100_000):
        with pytest.raises(ConfigError, match="this"):
            JsonSchemaSerializer(client, given)
    strange = ('{"type": 5}', "5", "null", "[]", '{"$schema": 5}', '{"$schema": ["x"]}', '{"$id": 5}')
    for number, text in enumerate(strange, 1):
        registry.schemas[number] = {"schema": text, "schemaType": "JSON"}
        for _ in range(2):
            with pytest.raises(
                SerializationError, match=f"id {number} cannot be used: this is not a JSON Schema"
            ):
                JsonSchemaDeserializer(client).deserialize("t", (), framed(number, b"{}"))
    endless = JsonSchemaSerializer(client, {"$ref": "#"})
    with pytest.raises(SerializationError, match="nested too deep"):
        endless.serialize("t", (), {})
