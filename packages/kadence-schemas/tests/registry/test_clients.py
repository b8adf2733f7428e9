"""Serialisers and deserialisers of a registry in producers and consumers, on the embedded broker."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.registry.cases import MONEY, message_type
from tests.registry.registry_server import RegistryServer

from kadence import (
    AsyncConsumer,
    AsyncProducer,
    Broker,
    ConfigError,
    Consumer,
    Producer,
    RecordDeserializationError,
    SchemaNotFoundError,
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
    SchemaRegistryClient,
)
from kadence_schemas.settings import RegistryOptions


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(registry: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient._of(RegistryOptions((registry.url,), retries=0), lambda _: None)


def reading(broker: Broker, topic: str, **more: Any) -> Consumer[Any, Any]:
    consumer: Consumer[Any, Any] = Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **more
    )
    consumer.assign([(topic, 0)])
    return consumer


def test_keys_and_values_come_back_as_they_were(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    unit = message_type("shop.Unit")
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=ProtobufSerializer(client, unit, is_key=True),
        value_serializer=AvroSerializer(client, MONEY),
    ) as producer:
        for cents in range(3):
            producer.send("money", {"cents": cents, "unit": "EUR"}, unit(name="x"))
        producer.send("money", None, unit(name="gone"))
    assert client.get_subjects() == ["money-key", "money-value"]
    with reading(
        broker,
        "money",
        key_deserializer=ProtobufDeserializer(client, unit),
        value_deserializer=AvroDeserializer(client),
    ) as consumer:
        records = [next(consumer) for _ in range(4)]
    assert [record.value for record in records] == [*({"cents": n, "unit": "EUR"} for n in range(3)), None]
    assert [record.key.name for record in records] == ["x", "x", "x", "gone"]


def test_asyncio(broker: Broker, client: SchemaRegistryClient) -> None:
    async def run() -> Any:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=AvroSerializer(client, MONEY)
        ) as producer:
            await (await producer.send("async", {"cents": 1, "unit": "USD"}))
        consumer: AsyncConsumer[bytes, Any] = AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(client),
        )
        async with consumer:
            await consumer.assign([("async", 0)])
            return (await anext(consumer)).value

    assert asyncio.run(run()) == {"cents": 1, "unit": "USD"}


def test_what_cannot_be_registered_is_not_sent(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        value_serializer=AvroSerializer(client, MONEY, auto_register=False),
    ) as producer:
        with pytest.raises(SerializationError, match="auto_register") as caught:
            producer.send("refused", {"cents": 1, "unit": "USD"})
        assert isinstance(caught.value.__cause__, SchemaNotFoundError)


@pytest.mark.parametrize("errors", ["raise", "skip", "dead-letter"])
def test_a_registry_that_is_away_costs_no_record(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient, errors: str
) -> None:
    topic = f"away-{errors}"
    money = registry.add("money", MONEY)
    good, unknown = struct.pack(">bI", 0, money) + b"\x02\x00", struct.pack(">bI", 0, 99)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in (good, unknown, good):
            producer.send(topic, value)
    more: dict[str, Any] = {"dead_letter_topic": "dead"} if errors == "dead-letter" else {}
    with reading(
        broker, topic, value_deserializer=AvroDeserializer(client), deserialization_errors=errors, **more
    ) as consumer:
        for fixed, error in (
            ((500, b""), SchemaRegistryError),
            ((404, b"<html>"), SchemaRegistryError),
            ((401, b""), ConfigError),
        ):
            registry.fixed = fixed
            for _ in range(2):
                with pytest.raises(error):
                    next(consumer)
            assert consumer.position((topic, 0)) == 0
        registry.fixed = None
        assert next(consumer).offset == 0
        if errors == "raise":
            with pytest.raises(RecordDeserializationError, match="SchemaNotFoundError"):
                next(consumer)
            consumer.seek((topic, 0), 2)
        assert next(consumer).offset == 2


@pytest.mark.parametrize("kind", ["avro", "json-schema", "protobuf"])
def test_a_login_that_is_refused_once_makes_no_schema_bad(
    registry: RegistryServer, client: SchemaRegistryClient, kind: str
) -> None:
    unit = message_type("shop.Unit")
    cases: dict[str, tuple[Any, Any, Any]] = {
        "avro": (AvroSerializer(client, MONEY), {"cents": 1, "unit": "EUR"}, AvroDeserializer(client)),
        "json-schema": (JsonSchemaSerializer(client, "{}"), {"cents": 1}, JsonSchemaDeserializer(client)),
        "protobuf": (ProtobufSerializer(client, unit), unit(name="EUR"), ProtobufDeserializer[Any](client)),
    }
    serializer, value, deserializer = cases[kind]
    data = serializer.serialize("t", (), value)
    registry.fixed = 401, b""
    with pytest.raises(ConfigError, match="refused access"):
        deserializer.deserialize("t", (), data)
    registry.fixed = None
    assert deserializer.deserialize("t", (), data) is not None
