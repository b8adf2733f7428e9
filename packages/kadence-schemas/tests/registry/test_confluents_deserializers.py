"""What Kadence's serialisers write confluent-kafka's deserialisers read, and the other way round, on one registry.

That the bytes are the same without a library of Confluent's: `test_same_as_confluent.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from conftest import ON_CI
from tests.registry.cases import CASES, ORDER, ORDERS, PERSON, TOPIC, Case, message_type, record
from tests.registry.golden import prepare
from tests.registry.test_same_as_confluent import serializer_of as ours_of

from kadence_schemas import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    SchemaRegistryClient,
)
from kadence_testing.schema_registry import SchemaRegistryServer

try:
    theirs: Any = importlib.import_module("tests.registry.confluent")
except ImportError as problem:
    if ON_CI:
        raise
    pytest.skip(f"confluent-kafka[schemaregistry] is not installed: {problem}", allow_module_level=True)

CONTEXT = ":.staging:"

IN_CONTEXTS = [
    replace(case, in_header=in_header, is_key=is_key)
    for case in (
        Case("avro", "AVRO", ORDER, ORDERS),
        Case("protobuf", "PROTOBUF", "shop.Sale", [{"id": 5}]),
        Case("json", "JSON", PERSON, [{"name": "Ada"}]),
    )
    for in_header in (False, True)
    for is_key in (False, True)
]


def said(case: Case) -> str:
    return f"{case.name}{', key' * case.is_key}{', header' * case.in_header}"


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def client(server: SchemaRegistryServer) -> Iterator[Any]:
    """confluent-kafka's, of the same registry."""
    with theirs.client_of(server.url) as client:
        yield client


def plain(case: Case, values: list[Any]) -> list[Any]:
    """Messages of two pools of definitions are compared by their bytes."""
    return [each.SerializeToString() for each in values] if case.kind == "PROTOBUF" else values


def expected(case: Case) -> list[Any]:
    """The values as they are read back."""
    if case.kind == "PROTOBUF":
        return [message_type(case.schema)(**value).SerializeToString() for value in case.values]
    if case.name == "everything":
        [value] = case.values
        return [value | {"millis": value["millis"].replace(microsecond=123000)}]
    return case.values


def read_by_kadence(
    case: Case, url: str, written: list[bytes], headers: list[Any], topic: str = TOPIC, strategy: Any = None
) -> list[Any]:
    kinds: dict[str, Any] = {
        "AVRO": AvroDeserializer,
        "PROTOBUF": ProtobufDeserializer,
        "JSON": JsonSchemaDeserializer,
    }
    made = kinds[case.kind](SchemaRegistryClient(url), is_key=case.is_key, subject_name_strategy=strategy)
    return plain(
        case, [made.deserialize(topic, added, each) for each, added in zip(written, headers, strict=True)]
    )


def read_by_confluent(
    case: Case,
    client: Any,
    written: list[bytes],
    headers: list[Any],
    topic: str = TOPIC,
    strategy: Any = None,
) -> list[Any]:
    message = message_type(case.schema) if case.kind == "PROTOBUF" else None
    made = theirs.deserializer_of(case.kind, client, message, strategy)
    return plain(case, theirs.read_with(made, written, headers, topic, is_key=case.is_key))


def written_by_kadence(case: Case, serializer: Any, topic: str = TOPIC) -> tuple[list[bytes], list[Any]]:
    made: tuple[list[bytes], list[Any]] = theirs.written_with(
        lambda value, at: serializer.serialize(topic, at.headers, value), case, topic
    )
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_kadence_writes(server: SchemaRegistryServer, client: Any, case: Case) -> None:
    if case.schema == '"bytes"':
        # It refuses its own serialiser's bytes without data: findings/confluent_avro_no_data.sh.
        case = replace(case, values=[each for each in case.values if each])
    serializer = ours_of(case, SchemaRegistryClient(server.url), prepare(server, case))
    assert read_by_confluent(case, client, *written_by_kadence(case, serializer)) == expected(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_confluent_writes(server: SchemaRegistryServer, client: Any, case: Case) -> None:
    serializer = theirs.serializer_of(case, client, prepare(server, case))
    assert read_by_kadence(case, server.url, *theirs.written_with(serializer, case)) == expected(case)


def staged(topic: str, is_key: bool, _: str | None) -> str:
    return f"{CONTEXT}{topic}-{'key' if is_key else 'value'}"


def staged_of_confluent(context: Any, _: str | None) -> str:
    return staged(context.topic, context.field == "key", None)


@pytest.fixture
def contexts(server: SchemaRegistryServer) -> SchemaRegistryServer:
    """In the default context id 1 is another schema."""
    assert server.add("other-value", record("Other", ("qty", "double"))) == 1
    return server


@pytest.mark.parametrize("case", IN_CONTEXTS, ids=said)
def test_contexts_that_kadence_writes(contexts: SchemaRegistryServer, client: Any, case: Case) -> None:
    serializer = ours_of(case, SchemaRegistryClient(contexts.url), [], subject_name_strategy=staged)
    made = written_by_kadence(case, serializer)
    assert read_by_confluent(case, client, *made, strategy=staged_of_confluent) == expected(case)
    assert read_by_kadence(case, contexts.url, *made, strategy=staged) == expected(case)


@pytest.mark.parametrize("case", IN_CONTEXTS, ids=said)
def test_contexts_that_confluent_writes(contexts: SchemaRegistryServer, client: Any, case: Case) -> None:
    serializer = theirs.serializer_of(case, client, [], staged_of_confluent)
    written, headers = theirs.written_with(serializer, case)
    assert read_by_kadence(case, contexts.url, written, headers, strategy=staged) == expected(case)
    # An address that ends in the context is enough, without a strategy.
    assert read_by_kadence(case, f"{contexts.url}/contexts/.staging", written, headers) == expected(case)
