"""A schema's id or GUID in a header of the record, as Confluent 8's clients write it: records, columns, `read`, Spark.

That the bytes are those of confluent-kafka: `test_same_as_confluent.py`.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import until
from tests.registry.cases import message_type, record

from kadence import (
    Broker,
    Consumer,
    Producer,
    RecordDeserializationError,
    SchemaNotFoundError,
    SchemaRegistryError,
    SerializationError,
    read,
)
from kadence_schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
)
from kadence_schemas.answers import REFUSED_MS
from kadence_schemas.framing import KEY_HEADER, VALUE_HEADER, head_of
from kadence_schemas.settings import RegistryOptions
from kadence_spark.decode.formats import beside, decoder_of
from kadence_spark.decode.options import parse
from kadence_testing import FakeClock
from kadence_testing.schema_registry import RegistryRequest, SchemaRegistryServer

ORDER = record("Order", ("n", "int"), ("item", "string"))
PEN = b"\0\0\0\0\1\x06pen"
"""Not the frame of schema id 1: it is data of a schema of five ints and a text, whose name a header has."""
FIVE = record("Five", *((name, "int") for name in "abcde"), ("item", "string"))
PEN_READ = {"a": 0, "b": 0, "c": 0, "d": 0, "e": -1, "item": "pen"}
PERSON = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
Headers = list[tuple[str, bytes | None]]


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        # The id that the first bytes of PEN would name.
        server.add("other-value", record("Other", ("x", "string")))
        yield server


@pytest.fixture
def client(server: SchemaRegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient(server.url, max_retries=0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def names_of(client: SchemaRegistryClient, subject: str, schema: str, kind: str = "AVRO") -> list[bytes]:
    """The id and the GUID of a schema, as they stand in a header."""
    schema_id, guid = client.registered(subject, Schema(schema, kind))
    assert guid is not None
    return [head_of(schema_id), head_of(guid)]


def as_columns(
    deserializer: Any, values: list[bytes | None], headers: list[Headers]
) -> tuple[Any, dict[int, str]]:
    made = deserializer.columns().decode(
        pa.array(values, pa.binary()), column_of(headers), pa.array(["t"] * len(values), pa.string())
    )
    return made.column.to_pylist(), made.bad


def column_of(headers: list[Headers]) -> pa.Array:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.array([[{"key": name, "value": data} for name, data in each] for each in headers], kind)


def test_avro_is_read_by_the_header_and_never_by_its_first_bytes(client: SchemaRegistryClient) -> None:
    for name in names_of(client, "five-value", FIVE):
        headers: Headers = [("trace", b"x"), (VALUE_HEADER, name)]
        assert AvroDeserializer(client).deserialize("t", headers, PEN) == PEN_READ
        assert as_columns(AvroDeserializer(client), [PEN], [headers]) == ([PEN_READ], {})


def test_rows_with_and_without_the_header_in_one_table(client: SchemaRegistryClient) -> None:
    by_id, by_guid = names_of(client, "five-value", FIVE)
    values = [PEN, None, by_id + PEN, PEN, by_guid + PEN, b"", PEN]
    headers: list[Headers] = [
        [(VALUE_HEADER, by_guid)],
        [(VALUE_HEADER, by_guid)],
        [("trace", None), (KEY_HEADER, b"\x07")],
        [(VALUE_HEADER, by_id), (VALUE_HEADER, b"\x07")],
        [(VALUE_HEADER, None), (VALUE_HEADER, by_id)],
        [],
        [(VALUE_HEADER, b"\x07")],
    ]
    column, bad = as_columns(AvroDeserializer(client), values, headers)
    assert column == [PEN_READ, None, PEN_READ, PEN_READ, PEN_READ, None, None]
    assert bad == {
        5: "0 bytes are too few for a schema id",
        6: f"the header {VALUE_HEADER} names no schema: it has no schema id: its first byte is neither 0 nor 1",
    }
    deserializer = AvroDeserializer(client)
    for row, (value, each) in enumerate(zip(values, headers, strict=True)):
        if row in bad:
            with pytest.raises(SerializationError, match=bad[row]):
                deserializer.deserialize("t", tuple(each), value or b"")
        elif value is not None:
            assert deserializer.deserialize("t", tuple(each), value) == column[row]


def test_headers_of_a_part_of_a_table(client: SchemaRegistryClient) -> None:
    """Arrow's slices count from the beginning of the whole."""
    (name, _) = names_of(client, "five-value", FIVE)
    values = pa.array([b"?", PEN, name + PEN, PEN, b"?"], pa.binary()).slice(1, 3)
    headers = column_of(
        [[("a", b"b")], [(VALUE_HEADER, name)], [], [("a", b""), (VALUE_HEADER, name)], []]
    ).slice(1, 3)
    made = AvroDeserializer(client).columns().decode(values, headers)
    assert (made.column.to_pylist(), made.bad) == ([PEN_READ] * 3, {})


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\x01" + bytes(15), b"\x02" + bytes(16), b"\x00\x00\x00\x00\x63"]
)
def test_a_header_that_names_no_schema_makes_a_bad_record(
    client: SchemaRegistryClient, content: bytes
) -> None:
    with pytest.raises((SerializationError, SchemaNotFoundError)) as refused:
        AvroDeserializer(client).deserialize("t", [(VALUE_HEADER, content)], PEN)
    assert VALUE_HEADER in str(refused.value) or "schema id 99" in str(refused.value)
    column, bad = as_columns(AvroDeserializer(client), [PEN], [[(VALUE_HEADER, content)]])
    assert column == [None]
    assert list(bad) == [0]


def test_a_guid_before_the_data(client: SchemaRegistryClient) -> None:
    _, by_guid = names_of(client, "five-value", FIVE)
    deserializer = AvroDeserializer(client)
    assert [deserializer.deserialize("t", (), by_guid + PEN) for _ in range(2)] == [PEN_READ] * 2
    assert as_columns(deserializer, [by_guid + PEN], [[]]) == ([PEN_READ], {})


def test_an_unknown_guid(client: SchemaRegistryClient) -> None:
    name = head_of(str(uuid.UUID(int=5)))
    _, bad = as_columns(AvroDeserializer(client), [PEN], [[(VALUE_HEADER, name)]])
    assert bad == {0: f"schema GUID {uuid.UUID(int=5)} is not in the registry"}
    with pytest.raises(SchemaNotFoundError):
        client.get_schema_by_guid(str(uuid.UUID(int=5)))


class OldRegistry(SchemaRegistryServer):
    """One that knows no GUIDs, as Confluent's before version 8, Karapace and Redpanda.

    Attributes:
        no_path: status and body for paths that it does not know.
        knows_types: whether it answers what all registries do.
    """

    no_path: tuple[int, bytes] = (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}')
    knows_types = True

    def answer(self, request: RegistryRequest) -> tuple[int, bytes]:
        status, content = super().answer(request)
        is_known = "/guids/" not in request.path and (self.knows_types or "/types" not in request.path)
        return (status, content) if is_known else self.no_path


@pytest.mark.parametrize("is_first", [False, True])
def test_a_guid_is_not_bad_while_another_address_of_the_registry_does_not_answer(*, is_first: bool) -> None:
    """It may be the one that knows GUIDs."""
    with OldRegistry() as server:
        urls = ("http://127.0.0.1:1", server.url)
        options = RegistryOptions(urls if is_first else urls[::-1], retries=1)
        client = SchemaRegistryClient._of(options, lambda seconds: None)
        with pytest.raises(SchemaRegistryError) as raised:
            client.get_schema_by_guid(str(uuid.UUID(int=1)))
        assert not isinstance(raised.value, SchemaNotFoundError)


@pytest.mark.parametrize(
    "no_path",
    [
        OldRegistry.no_path,
        (404, b'{"message": "404: Not Found"}'),
        (404, b"<html>"),
        (405, b'{"error_code":405,"message":"HTTP 405 Method Not Allowed"}'),
    ],
)
def test_a_guid_that_an_old_registry_cannot_look_up_makes_a_bad_record(no_path: tuple[int, bytes]) -> None:
    """A stranger can put one into any record; it must not hold up the partition."""
    guids = [str(uuid.UUID(int=number)) for number in range(5)]
    clock = FakeClock()
    with OldRegistry() as server:
        server.no_path = no_path
        schema_id = server.add("t-value", ORDER)
        options = RegistryOptions((server.url,), retries=1)
        client = SchemaRegistryClient._of(options, lambda seconds: None, clock)
        deserializer = AvroDeserializer(client)
        values: list[bytes | None] = [b"\x02\x06pen"] * len(guids)
        column, bad = as_columns(deserializer, values, [[(VALUE_HEADER, head_of(each))] for each in guids])
        assert column == [None] * len(guids)
        assert all("the registry does not know GUIDs" in bad[row] for row in range(len(guids)))
        asked = len(server.requests)
        with pytest.raises(SchemaNotFoundError, match="does not know GUIDs"):
            client.get_schema_by_guid(str(uuid.UUID(int=9)))
        assert len(server.requests) == asked
        value = head_of(schema_id) + b"\x02\x06pen"
        assert deserializer.deserialize("t", (), value) == {"n": 1, "item": "pen"}
        # A minute later it is asked again: it may be a newer one by now.
        clock.advance(REFUSED_MS)
        with pytest.raises(SchemaNotFoundError):
            client.get_schema_by_guid(str(uuid.UUID(int=10)))
        assert len(server.requests) > asked + 1


def test_a_guid_that_was_not_requested_is_requested_when_the_first_one_is() -> None:
    """It was refused for a reason that was 59 s old, so it is refused for 1 s."""
    clock = FakeClock()
    with OldRegistry() as server:
        client = SchemaRegistryClient._of(
            RegistryOptions((server.url,), retries=1), lambda seconds: None, clock
        )
        first, later = (str(uuid.UUID(int=number)) for number in (1, 2))
        for guid, ms in ((first, REFUSED_MS - 1_000), (later, 1_000)):
            with pytest.raises(SchemaNotFoundError, match="does not know GUIDs"):
                client.get_schema_by_guid(guid)
            clock.advance(ms)
        asked = len(server.requests)
        with pytest.raises(SchemaNotFoundError):
            client.get_schema_by_guid(later)
        assert len(server.requests) > asked


def test_what_is_no_registry_makes_no_record_bad_for_its_guid() -> None:
    with OldRegistry() as server:
        server.knows_types = False
        client = SchemaRegistryClient(server.url, max_retries=0)
        for _ in range(2):
            with pytest.raises(SchemaRegistryError, match="it answered 404"):
                AvroDeserializer(client).deserialize(
                    "t", [(VALUE_HEADER, head_of(str(uuid.UUID(int=5))))], PEN
                )


def test_protobuf_whose_header_has_the_place_of_the_message(client: SchemaRegistryClient) -> None:
    kind = message_type("shop.Other.Inner69")
    serializer = ProtobufSerializer(client, kind, schema_id_in="header")
    headers: Headers = [(VALUE_HEADER, b"of a record that was forwarded"), ("trace", b"x")]
    data = serializer.serialize("t", headers, kind(text="pen"))
    assert data == kind(text="pen").SerializeToString()
    assert [name for name, _ in headers] == ["trace", VALUE_HEADER]
    name = headers[1][1]
    assert name is not None
    assert name[17:] == b"\x04\x02\x8a\x01"
    assert client.get_schema_by_guid(str(uuid.UUID(bytes=name[1:17]))).schema_type == "PROTOBUF"
    for deserializer in (ProtobufDeserializer(client), ProtobufDeserializer(client, kind)):
        found: Any = deserializer.deserialize("t", headers, data)
        assert (found.DESCRIPTOR.name, found.text) == ("Inner69", "pen")
        assert as_columns(deserializer, [data, None], [headers, []]) == ([{"text": "pen"}, None], {})


def test_json_by_the_header(client: SchemaRegistryClient) -> None:
    pytest.importorskip("jsonschema")
    headers: Headers = []
    data = JsonSchemaSerializer(client, PERSON, schema_id_in="header").serialize(
        "t", headers, {"name": "Ada"}
    )
    assert data == b'{"name":"Ada"}'
    for deserializer in (JsonSchemaDeserializer(client), JsonSchemaDeserializer(None, validate=False)):
        assert deserializer.deserialize("t", headers, data) == {"name": "Ada"}
    with pytest.raises(SerializationError, match="does not match its JSON Schema"):
        JsonSchemaDeserializer(client).deserialize("t", headers, b'{"name":1}')
    with pytest.raises(SerializationError, match="it is not JSON"):
        JsonSchemaDeserializer(client).deserialize("t", headers, b'{"name":')


def test_a_registry_that_gives_no_guid_has_its_id_in_the_header(
    server: SchemaRegistryServer, client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kadence_schemas.client._guid_of", lambda found: None)
    headers: Headers = []
    data = AvroSerializer(client, ORDER, schema_id_in="header").serialize(
        "t", headers, {"n": 1, "item": "pen"}
    )
    assert headers == [(VALUE_HEADER, struct.pack(">BI", 0, 2))]
    assert AvroDeserializer(client).deserialize("t", headers, data) == {"n": 1, "item": "pen"}


def test_who_writes_ids_before_the_data_drops_the_header_of_a_forwarded_record(
    client: SchemaRegistryClient,
) -> None:
    headers: Headers = [(VALUE_HEADER, b"\0\0\0\0\1"), (KEY_HEADER, b"k"), ("trace", b"x")]
    data = AvroSerializer(client, ORDER).serialize("t", headers, {"n": 1, "item": "pen"})
    assert headers == [(KEY_HEADER, b"k"), ("trace", b"x")]
    assert AvroDeserializer(client).deserialize("t", headers, data) == {"n": 1, "item": "pen"}


def test_a_header_needs_a_list_to_be_added_to(client: SchemaRegistryClient) -> None:
    with pytest.raises(SerializationError, match="needs a list of headers, not tuple"):
        AvroSerializer(client, ORDER, schema_id_in="header").serialize("t", (), {"n": 1, "item": "pen"})


@pytest.mark.parametrize("headers", [(), {"trace": b"x"}, [("trace", b"x")], (("trace", b"x"),)])
@pytest.mark.parametrize("count", [1, 2])
def test_keys_and_values_by_header_on_a_topic(
    broker: Broker, server: SchemaRegistryServer, client: SchemaRegistryClient, headers: Any, count: int
) -> None:
    """The first record of a topic goes another way through the producer than those after it."""
    topic = f"t{uuid.uuid4().hex}"
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=AvroSerializer(client, '"string"', schema_id_in="header"),
        value_serializer=AvroSerializer(client, FIVE, schema_id_in="header"),
    ) as producer:
        for _ in range(count):
            producer.send(topic, PEN_READ, key="k", headers=headers).result(30)
    assert [each for each in client.get_subjects() if topic in each] == [f"{topic}-key", f"{topic}-value"]
    settings: Any = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with Consumer(
        key_deserializer=AvroDeserializer(client), value_deserializer=AvroDeserializer(client), **settings
    ) as consumer:
        consumer.assign([(topic, 0)])
        for _ in range(count):
            found = next(consumer)
            assert (found.key, found.value) == ("k", PEN_READ)
            assert [name for name, _ in found.headers] == ["trace"] * bool(headers) + [
                VALUE_HEADER,
                KEY_HEADER,
            ]
    with Consumer(value_deserializer=AvroDeserializer(client), **settings) as consumer:
        consumer.assign([(topic, 0)])
        tables: list[pa.Table] = []

        def enough() -> bool:
            tables.append(consumer.poll_arrow(0.1, value="avro", columns=["value"]))
            return bool(sum(table.num_rows for table in tables) == count)

        until(enough)
        assert (
            pa.concat_tables(tables, promote_options="permissive")["value"].to_pylist() == [PEN_READ] * count
        )
    table = read(
        topic,
        value="avro",
        columns=["value"],
        bootstrap_servers=broker.bootstrap_servers,
        schema_registry_url=server.url,
    )
    assert table.column_names == ["value"]
    assert table["value"].to_pylist() == [PEN_READ] * count


def test_a_poll_says_which_header_is_bad(broker: Broker, client: SchemaRegistryClient) -> None:
    topic = f"t{uuid.uuid4().hex}"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, PEN, headers=[(VALUE_HEADER, b"\x07")]).result(30)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client),
    ) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(RecordDeserializationError, match=VALUE_HEADER):
            consumer.poll_arrow(10, value="avro")


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_side_of_the_spark_source(
    server: SchemaRegistryServer, client: SchemaRegistryClient, side: str, form: str
) -> None:
    options = parse({f"{side}.format": form, f"{side}.wire": "confluent", "schema.registry.url": server.url})
    assert options is not None
    mine = getattr(options, side)
    kind = pa.struct([(name, pa.int32()) for name in "abcde"] + [("item", pa.string())])
    decoder = decoder_of(mine, kind)
    assert beside(mine) == ("headers", "topic")
    data = PEN if form == "avro" else json.dumps(PEN_READ).encode()
    for name in names_of(client, "five-value", FIVE):
        own, other = (KEY_HEADER, VALUE_HEADER) if side == "key" else (VALUE_HEADER, KEY_HEADER)
        headers = column_of([[(other, b"?"), (own, name)], [(other, b"?")]])
        made = decoder.decode(pa.array([data, name + data], pa.binary()), headers, pa.array(["t", "t"]))
        assert (made.column.to_pylist(), made.bad) == ([PEN_READ] * 2, {})
