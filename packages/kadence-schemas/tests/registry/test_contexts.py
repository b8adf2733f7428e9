"""Contexts of a registry, each of which counts ids from 1, and versions that were deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.registry.cases import MONEY, PRICE, message_type, record

from kadence import ConfigError, SchemaNotFoundError, SchemaRegistryError, SerializationError
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
    topic_subject,
)
from kadence_spark.decode.formats import arrow_of_side, decoder_of
from kadence_spark.decode.options import parse
from kadence_testing.schema_registry import SchemaRegistryServer

MINE = record("Price", ("cents", "int"), ("qty", "int"))
OTHER = record("Price", ("qty", "int"), ("cents", "int"))
SOLD = {"cents": 1299, "qty": 2}
AS_OTHER = {"qty": 1299, "cents": 2}


def staged(topic: str, is_key: bool, _: str | None) -> str:
    return ":.staging:" + topic_subject(topic, is_key, None)


def by_topic(topic: str, is_key: bool, _: str | None) -> str:
    """Topics of two contexts."""
    return (":.staging:" if topic == "staged" else "") + topic_subject(topic, is_key, None)


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    """Id 1 is another schema in each context."""
    with SchemaRegistryServer() as server:
        assert server.add("prices-value", OTHER) == 1
        assert server.add(":.staging:staged-value", MINE) == 1
        yield server


@pytest.fixture
def client(server: SchemaRegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient(server.url, max_retries=0)


def as_columns(deserializer: Any, topics: list[str], *values: bytes) -> Any:
    made = deserializer.columns().decode(pa.array(values, pa.binary()), None, pa.array(topics, pa.string()))
    assert not made.bad
    return [
        {name: item for name, item in each.items() if item is not None} for each in made.column.to_pylist()
    ]


def test_an_id_of_two_contexts_is_read_by_the_strategy(client: SchemaRegistryClient) -> None:
    data = AvroSerializer(client, MINE, subject_name_strategy=staged).serialize("staged", (), SOLD)
    assert data[:5] == b"\0\0\0\0\1"
    deserializer = AvroDeserializer(client, subject_name_strategy=by_topic)
    for _ in range(2):
        assert deserializer.deserialize("staged", (), data) == SOLD
        assert deserializer.deserialize("prices", (), data) == AS_OTHER
        assert AvroDeserializer(client).deserialize("staged", (), data) == AS_OTHER
    assert as_columns(deserializer, ["prices", "staged", "prices"], data, data, data) == [
        AS_OTHER,
        SOLD,
        AS_OTHER,
    ]


def test_the_strategy_is_asked_once_for_a_topic_and_the_registry_once_for_a_subject(
    server: SchemaRegistryServer, client: SchemaRegistryClient
) -> None:
    data = AvroSerializer(client, MINE, subject_name_strategy=staged).serialize("staged", (), SOLD)
    server.requests.clear()
    deserializer = AvroDeserializer(client, subject_name_strategy="topic")
    for _ in range(3):
        deserializer.deserialize("prices", (), data)
    assert [each.path for each in server.requests] == ["/schemas/ids/1?subject=prices-value"]
    deserializer.for_keys().deserialize("prices", (), data)
    assert server.requests[-1].path == "/schemas/ids/1?subject=prices-key"


@pytest.mark.parametrize("strategy", ["record", "topic_record"])
def test_strategies_by_record_name_a_subject_where_the_record_is_known(
    server: SchemaRegistryServer, client: SchemaRegistryClient, strategy: str
) -> None:
    """confluent-kafka's deserialiser, too, asks without a subject for what it does not know yet."""
    data = AvroSerializer(client, OTHER).serialize("prices", (), SOLD)
    assert AvroDeserializer(client, subject_name_strategy=strategy).deserialize("prices", (), data) == SOLD
    assert server.requests[-1].path == "/schemas/ids/1"
    deserializer = AvroDeserializer(client, OTHER, subject_name_strategy=strategy)
    assert deserializer.deserialize("prices", (), data) == SOLD
    subject = "Price" if strategy == "record" else "prices-Price"
    assert server.requests[-1].path == f"/schemas/ids/1?subject={subject}"


@pytest.mark.parametrize("context", [".staging", "staging", ":.staging:"])
def test_a_client_of_one_context(server: SchemaRegistryServer, context: str) -> None:
    client = SchemaRegistryClient(server.url, context=context)
    assert client.get_subjects() == [":.staging:staged-value"]
    data = AvroSerializer(client, MINE).serialize("staged", (), SOLD)
    assert AvroDeserializer(client).deserialize("staged", (), data) == SOLD
    assert as_columns(AvroDeserializer(client), ["staged"], data) == [SOLD]
    assert client.get_schema(1).schema_str == client.get_latest_version("staged-value").schema.schema_str
    assert client.get_versions(":.staging:staged-value") == [1]
    with pytest.raises(SchemaNotFoundError):
        client.get_versions("prices-value")
    assert client.get_versions(":.:prices-value") == [1]


def test_an_address_of_one_context(server: SchemaRegistryServer) -> None:
    client = SchemaRegistryClient(f"{server.url}/contexts/.staging")
    data = AvroSerializer(client, MINE).serialize("staged", (), SOLD)
    assert AvroDeserializer(client).deserialize("staged", (), data) == SOLD


@pytest.mark.parametrize("context", ["", "a:b", ":"])
def test_names_that_are_no_contexts(context: str) -> None:
    if context:
        with pytest.raises(ConfigError, match="is not the name of a context"):
            SchemaRegistryClient("http://127.0.0.1:1", context="a:b")
    else:
        SchemaRegistryClient("http://127.0.0.1:1", context=context)


def test_what_a_schema_of_a_context_refers_to_is_in_it(
    server: SchemaRegistryServer, client: SchemaRegistryClient
) -> None:
    """As in Java: a subject without a context is meant in that of the schema which refers to it."""
    server.add("money", '"string"')
    server.add(":.staging:money", MONEY)
    server.add(
        ":.staging:sale-value", PRICE, references=[{"name": "Money", "subject": "money", "version": 1}]
    )
    staging = SchemaRegistryClient(server.url, context=".staging")
    references = (SchemaReference("Money", "money", 1),)
    sale = {"net": {"cents": 7, "unit": "USD"}}
    data = AvroSerializer(staging, Schema(PRICE, references=references)).serialize("sale", (), sale)
    for deserializer in (AvroDeserializer(client, subject_name_strategy=staged), AvroDeserializer(staging)):
        assert deserializer.deserialize("sale", (), data) == sale
        assert as_columns(deserializer, ["sale"], data) == [sale]


@pytest.mark.parametrize("in_default", [None, record("Money", ("cents", "long"))])
def test_what_a_serialiser_refers_to_is_in_the_context_that_its_strategy_names(
    server: SchemaRegistryServer, client: SchemaRegistryClient, in_default: str | None
) -> None:
    """The registry takes it from there, and so do readers; in the default context it is something else, or nothing."""
    if in_default is not None:
        server.add("money", in_default)
    server.add(":.staging:money", record("Money", ("unit", "string"), ("cents", "long")))
    price = Schema(record("Price", ("net", "Money")), references=(SchemaReference("Money", "money", 1),))
    sale = {"net": {"unit": "EUR", "cents": 5}}
    hows: list[dict[str, Any]] = [{}, {"auto_register": False}, {"use_latest_version": True}]
    for how in hows:
        data = AvroSerializer(client, price, subject_name_strategy=staged, **how).serialize("sale", (), sale)
        assert AvroDeserializer(client, subject_name_strategy=staged).deserialize("sale", (), data) == sale
    with pytest.raises(ConfigError, match="this is not an Avro schema"):
        AvroSerializer(client, Schema("{", references=price.references), subject_name_strategy=staged)


def test_what_a_json_serialiser_refers_to_is_in_the_context_that_its_strategy_names(
    server: SchemaRegistryServer, client: SchemaRegistryClient
) -> None:
    pytest.importorskip("jsonschema")
    server.add("money", json.dumps({"type": "string"}), "JSON")
    server.add(":.staging:money", json.dumps({"type": "integer"}), "JSON")
    text = json.dumps({"properties": {"net": {"$ref": "money.json"}}})
    price = Schema(text, "JSON", (SchemaReference("money.json", "money", 1),))
    serializer = JsonSchemaSerializer(client, price, subject_name_strategy=staged)
    assert serializer.serialize("sale", (), {"net": 5})[5:] == b'{"net":5}'
    with pytest.raises(SerializationError):
        serializer.serialize("sale", (), {"net": "5"})


def test_a_strategy_that_names_no_subject_is_told(client: SchemaRegistryClient) -> None:
    def number(topic: str, is_key: bool, _: str | None) -> Any:
        return 5

    data = b"\0\0\0\0\1\4\xa6\x14"
    for call in (
        lambda: AvroSerializer(client, OTHER, subject_name_strategy=number).serialize("t", (), SOLD),
        lambda: AvroDeserializer(client, subject_name_strategy=number).deserialize("t", (), data),
        lambda: as_columns(AvroDeserializer(client, subject_name_strategy=number), ["t"], data),
    ):
        with pytest.raises(ConfigError, match="must return the name of a subject, not int"):
            call()


@pytest.mark.parametrize("schema_id_in", ["data", "header"])
def test_newest_versions_of_two_contexts_have_one_id(
    server: SchemaRegistryServer, client: SchemaRegistryClient, schema_id_in: Any
) -> None:
    serializer = AvroSerializer(
        client, use_latest_version=True, subject_name_strategy=by_topic, schema_id_in=schema_id_in
    )
    deserializer = AvroDeserializer(client, subject_name_strategy=by_topic)
    for topic in ("prices", "staged", "prices"):
        headers: list[tuple[str, bytes]] = []
        data = serializer.serialize(topic, headers, SOLD)
        assert deserializer.deserialize(topic, headers, data) == SOLD
        # The two schemas have their fields in another order.
        assert data.endswith({"prices": b"\x04\xa6\x14", "staged": b"\xa6\x14\x04"}[topic])


@pytest.mark.parametrize("strategy", [staged, None])
def test_protobuf_in_a_context(
    server: SchemaRegistryServer, client: SchemaRegistryClient, strategy: Any
) -> None:
    kind = message_type("shop.Sale")
    # The same names and numbers, in the default context, of something else.
    ProtobufSerializer(client, message_type("shop.Unit")).serialize("money", (), message_type("shop.Unit")())
    mine = client if strategy else SchemaRegistryClient(server.url, context=".staging")
    how: Any = {} if strategy is None else {"subject_name_strategy": strategy}
    data = ProtobufSerializer(mine, kind, **how).serialize("sale", (), kind(id=5))
    deserializer = ProtobufDeserializer(mine, **how)
    found: Any = deserializer.deserialize("sale", (), data)
    assert (found.DESCRIPTOR.full_name, found.id) == ("shop.Sale", 5)
    assert as_columns(deserializer, ["sale"], data)[0]["id"] == 5
    assert ":.staging:shop/money.proto" in client.get_subjects()
    assert "shop/money.proto" not in client.get_subjects()


def test_json_in_a_context(server: SchemaRegistryServer, client: SchemaRegistryClient) -> None:
    pytest.importorskip("jsonschema")
    number, text = json.dumps({"type": "number"}), json.dumps({"type": "string"})
    server.add("texts-value", text, "JSON")
    server.add("more-value", number, "JSON")
    server.add(":.staging:more-value", json.dumps({"type": "array"}), "JSON")
    data = JsonSchemaSerializer(client, text, subject_name_strategy=staged).serialize("texts", (), "a")
    assert client.get_schema(data[4]).schema_str == number.replace(" ", "")
    assert JsonSchemaDeserializer(client, subject_name_strategy=staged).deserialize("texts", (), data) == "a"


@pytest.mark.parametrize("how", ["context", "subject", "none"])
def test_contexts_of_the_spark_source(server: SchemaRegistryServer, how: str) -> None:
    given = {"value.format": "avro", "schema.registry.url": server.url}
    if how == "context":
        given |= {"schema.registry.context": ".staging", "value.subject": "staged-value"}
    elif how == "subject":
        given |= {"value.subject": ":.staging:staged-value"}
    options = parse(given)
    assert options is not None
    kind = arrow_of_side(options.value, options.value.subject or "prices-value")
    data = pa.array([b"\0\0\0\0\1\xa6\x14\x04"], pa.binary())
    made = decoder_of(options.value, kind).decode(data, None, pa.array(["staged"]))
    assert made.column.to_pylist() == [AS_OTHER if how == "none" else SOLD]


# ---------------------------------------------------------------- deleted versions


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_records_are_read_whose_schema_refers_to_a_deleted_version(
    server: SchemaRegistryServer, kind: str
) -> None:
    """Java and confluent-kafka ask for it with deleted=true."""
    client = SchemaRegistryClient(server.url, max_retries=0)
    references = (SchemaReference("Money", "money", 1),)
    value: Any = {"net": {"cents": 7, "unit": "USD"}}
    if kind == "AVRO":
        server.add("money", MONEY)
        data = AvroSerializer(client, Schema(PRICE, references=references)).serialize("sale", (), value)
        deserializer: Any = AvroDeserializer(SchemaRegistryClient(server.url, max_retries=0))
    elif kind == "JSON":
        pytest.importorskip("jsonschema")
        server.add("money", '{"type": "object"}', "JSON")
        price = Schema('{"properties": {"net": {"$ref": "Money"}}}', "JSON", references)
        data = JsonSchemaSerializer(client, price).serialize("sale", (), value)
        deserializer = JsonSchemaDeserializer(SchemaRegistryClient(server.url, max_retries=0))
    else:
        sale = message_type("shop.Sale")
        value = sale(id=5, price={"cents": 3})
        data = ProtobufSerializer(client, sale).serialize("sale", (), value)
        deserializer = ProtobufDeserializer(SchemaRegistryClient(server.url, max_retries=0))
    for subject in ("sale-value", "money" if kind != "PROTOBUF" else "shop/money.proto"):
        client.delete_subject(subject)
    found = deserializer.deserialize("sale", (), data)
    if kind == "PROTOBUF":
        found = found.SerializeToString()
        value = value.SerializeToString()
    assert found == value
    if kind != "JSON":
        assert not deserializer.columns().decode(pa.array([data], pa.binary())).bad


def test_a_new_schema_must_not_refer_to_a_deleted_version(server: SchemaRegistryServer) -> None:
    client = SchemaRegistryClient(server.url, max_retries=0)
    server.add("money", MONEY)
    client.delete_subject("money")
    schema = Schema(PRICE, references=(SchemaReference("Money", "money", 1),))
    with pytest.raises(SchemaRegistryError, match="refers to subject 'money' with version 1"):
        AvroSerializer(client, schema)
    AvroDeserializer(client, schema)


def test_the_servers_deleted_versions(server: SchemaRegistryServer) -> None:
    from kadence_testing.schema_registry import RegistryRequest

    def ask(method: str, path: str) -> Any:
        status, body = server.answer(RegistryRequest(method, path))
        return json.loads(body) if status == 200 else json.loads(body)["error_code"]

    server.add("s", '"int"')
    server.add("s", '"long"')
    assert ask("DELETE", "/subjects/s/versions/1?permanent=true") == 40407
    assert ask("DELETE", "/subjects/s/versions/1") == 1
    assert ask("GET", "/subjects/s/versions") == [2]
    assert ask("GET", "/subjects/s/versions/1") == 40402
    assert ask("GET", "/subjects/s/versions/1?deleted=true")["schema"] == '"int"'
    assert ask("DELETE", "/subjects/s") == [2]
    assert ask("GET", "/subjects/s/versions") == 40401
    assert ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert "s" in ask("GET", "/subjects?deleted=true")
    assert "s" not in ask("GET", "/subjects")
    assert server.add("s", '"int"') == 2
    assert ask("GET", "/subjects/s/versions") == [3]
    assert ask("DELETE", "/subjects/s/versions/2?permanent=true") == 2
    assert ask("GET", "/subjects/s/versions?deleted=true") == [1, 3]
    assert ask("GET", "/contexts") == [".", ".staging"]
