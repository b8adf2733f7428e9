"""Records that claim more than they have: a clear error, and no more memory than they have bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE
from tests.registry.cases import message_type, record

from kadence import Broker, Consumer, Producer, RecordDeserializationError, SerializationError
from kadence_schemas import AvroDeserializer, ProtobufDeserializer, ProtobufSerializer, SchemaRegistryClient
from kadence_testing.schema_registry import SchemaRegistryServer


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def number(value: int) -> bytes:
    """An int or long of Avro."""
    return varint((value << 1) ^ (value >> 63))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: SchemaRegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient(server.url)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


NOTHING = record("Nothing")
EMPTY = {
    "nulls": array("null"),
    "records": array(json.loads(NOTHING)),
    "deep": array(array(array("null"))),
    "in a map": {"type": "map", "values": array("null")},
}
LENGTHS = {
    "text": number(2**62),
    "negative": number(-(2**62)),
    "smallest": number(-(2**63)),
    "endless": b"\xff" * 100,
    "nothing": b"",
}
CLAIMS = {
    "billions": number(10**9) * 3 + b"\0",
    "2**62": number(2**62) * 3 + b"\0",
    "negative": (number(-(10**9)) + number(0)) * 3 + b"\0",
    "many": number(10**6) * 1000,
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("kind", EMPTY)
def test_elements_that_take_no_bytes(
    server: SchemaRegistryServer, client: SchemaRegistryClient, kind: str, claim: str
) -> None:
    schema_id = server.add(f"empty {kind}", record("R", ("a", EMPTY[kind])))
    key = number(1) + number(0) if kind == "in a map" else b""
    refused(AvroDeserializer(client), schema_id, key + CLAIMS[claim], columns=True)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_lengths(server: SchemaRegistryServer, client: SchemaRegistryClient, kind: str, length: str) -> None:
    schema_id = server.add(f"length {kind}", record("R", ("a", kind)))
    refused(AvroDeserializer(client), schema_id, LENGTHS[length], columns=True)


@pytest.mark.parametrize("length", [2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**31])
def test_lengths_of_protobuf(client: SchemaRegistryClient, length: int) -> None:
    pytest.importorskip("ptars")
    unit = message_type("shop.Unit")
    good = ProtobufSerializer(client, unit).serialize("lengths", (), unit(name="EUR"))
    place = good.index(b"\3EUR")
    bad = good[:place] + varint(length) + good[place + 1 :]
    deserializer = ProtobufDeserializer[Any](client)
    with pytest.raises(SerializationError):
        deserializer.deserialize("lengths", (), bad)
    found = deserializer.columns().decode(pa.array([good, bad, good], pa.binary()))
    assert list(found.bad) == [1]
    assert found.column.to_pylist() == [{"name": "EUR"}, None, {"name": "EUR"}]


def refused(deserializer: AvroDeserializer, schema_id: int, data: bytes, *, columns: bool) -> None:
    value = b"\0" + schema_id.to_bytes(4, "big") + data
    with pytest.raises(SerializationError):
        deserializer.deserialize("t", (), value)
    found = deserializer.columns().decode(pa.array([value], pa.binary()))
    assert list(found.bad) == [0]
    assert found.column.nbytes < 1000


def by_poll(consumer: Consumer[Any, Any]) -> Any:
    return consumer.poll(PATIENCE)


def by_iteration(consumer: Consumer[Any, Any]) -> Any:
    return next(consumer)


def as_arrow(consumer: Consumer[Any, Any]) -> Any:
    return consumer.poll_arrow(PATIENCE, value="protobuf")


@pytest.mark.parametrize("read", [by_poll, by_iteration, as_arrow])
def test_a_consumer_names_the_record_and_goes_on_behind_it(
    broker: Broker, client: SchemaRegistryClient, read: Callable[[Consumer[Any, Any]], Any]
) -> None:
    pytest.importorskip("ptars")
    unit = message_type("shop.Unit")
    good = ProtobufSerializer(client, unit).serialize("units", (), unit(name="EUR"))
    place = good.index(b"\3EUR")
    topic = f"units-{read.__name__}"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, good[:place] + varint(2**64 - 1) + good[place + 1 :], partition=0)
        producer.send(topic, good, partition=0)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=ProtobufDeserializer[Any](client),
    ) as consumer:
        consumer.assign([(topic, 0)])
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as told:
                read(consumer)
            assert told.value.offset == 0
        consumer.seek((topic, 0), 1)
        read(consumer)
        assert consumer.position((topic, 0)) == 2
