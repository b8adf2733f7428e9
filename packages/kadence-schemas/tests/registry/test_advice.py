"""Advice in errors of the schema registry's client and serialisers: what is written by it works."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.registry.cases import message_type
from tests.registry.registry_server import RegistryServer

from kadence.errors import ConfigError, MissingDependencyError, SchemaNotFoundError, SerializationError
from kadence_schemas import (
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    Schema,
    SchemaRegistryClient,
)
from kadence_schemas.http import _about_to_talk
from kadence_schemas.schemas import ResolvedSchema
from kadence_testing.schema_registry import SchemaRegistryServer

LONG = '"long"'
Call = Callable[[SchemaRegistryClient], object]


class Row(NamedTuple):
    wrong: Call
    error: type[Exception]
    advice: str
    right: tuple[Call, ...]


def writes(schema: Any, value: Any = 1, kind: Any = AvroSerializer, **settings: Any) -> Call:
    return lambda client: kind(client, schema, **settings).serialize("t", settings.pop("headers", []), value)


def registered(client: SchemaRegistryClient) -> None:
    client.register_schema("t-value", Schema('"long"'))
    AvroSerializer(client, LONG, auto_register=False).serialize("t", (), 1)


def latest(client: SchemaRegistryClient) -> None:
    client.register_schema("t-value", Schema('"long"'))
    AvroSerializer(client, use_latest_version=True).serialize("t", (), 1)


def subjects(token: Any) -> Call:
    """What the registry has, for a client with this token."""
    return lambda c: SchemaRegistryClient(*c._urls, bearer_auth_token=token).get_subjects()


class OfTexts:
    """A registry that has definitions of Protobuf as text only, as some others than Confluent's."""

    def resolve_one(self, *_: object) -> ResolvedSchema:
        return ResolvedSchema("PROTOBUF", 'syntax = "proto3"; message Unit {}')


TITLED = {"title": "Count", "type": "integer"}
ROWS = {
    "a schema that is no Schema": Row(
        lambda c: c.register_schema("s", '"long"'),  # type: ignore[arg-type]
        ConfigError,
        "pass Schema(text), or Schema(text, type) if the type is not AVRO",
        (
            lambda c: c.register_schema("s", Schema('"long"')),
            lambda c: c.register_schema("j", Schema('{"type": "integer"}', "JSON")),
        ),
    ),
    "a schema that is not registered": Row(
        writes(LONG, auto_register=False),
        SchemaNotFoundError,
        "register it, or let the serialiser do so (auto_register)",
        (writes(LONG, auto_register=True), registered),
    ),
    "no schema": Row(
        AvroSerializer,
        ConfigError,
        "without a schema a serialiser needs use_latest_version=True",
        (latest,),
    ),
    "a record without a name": Row(
        writes({"type": "integer"}, kind=JsonSchemaSerializer, subject_name_strategy="record"),
        ConfigError,
        'give it one (in JSON Schema the title), or use subject_name_strategy="topic"',
        (
            writes(TITLED, kind=JsonSchemaSerializer, subject_name_strategy="record"),
            writes({"type": "integer"}, kind=JsonSchemaSerializer, subject_name_strategy="topic"),
        ),
    ),
    "an unknown strategy": Row(
        writes(LONG, subject_name_strategy="name"),
        ConfigError,
        "there are topic, record, topic_record",
        tuple(
            writes({"type": "record", "name": "R", "fields": []}, {}, subject_name_strategy=each)
            for each in ("topic", "record", "topic_record")
        ),
    ),
    "a place for the id": Row(
        writes(LONG, schema_id_in="key"),
        ConfigError,
        "schema_id_in must be 'data' or 'header'",
        (writes(LONG, schema_id_in="data"), writes(LONG, schema_id_in="header")),
    ),
    "headers that cannot be added to": Row(
        lambda c: AvroSerializer(c, LONG, schema_id_in="header").serialize("t", (), 1),
        SerializationError,
        "serialize() needs a list of headers",
        (lambda c: AvroSerializer(c, LONG, schema_id_in="header").serialize("t", [], 1),),
    ),
    "JSON without a schema": Row(
        lambda _: JsonSchemaDeserializer(None),
        ConfigError,
        "needs a registry or a schema",
        (
            JsonSchemaDeserializer,
            lambda _: JsonSchemaDeserializer(None, {"type": "integer"}).deserialize(
                "t", (), b"\0\0\0\0\x011"
            ),
            lambda _: JsonSchemaDeserializer(None, validate=False).deserialize("t", (), b"\0\0\0\0\x011"),
        ),
    ),
    "Protobuf without messages": Row(
        lambda _: ProtobufDeserializer(None),
        ConfigError,
        "needs a registry or a message_type",
        (ProtobufDeserializer, lambda _: ProtobufDeserializer(None, message_type("shop.Unit"))),
    ),
    "no address": Row(
        lambda _: SchemaRegistryClient({}),
        ConfigError,
        "needs schema.registry.url, such as http://localhost:8081",
        (lambda _: SchemaRegistryClient("http://localhost:8081"),),
    ),
    "a user in the address": Row(
        lambda _: SchemaRegistryClient("http://me:pw@b"),
        ConfigError,
        "use the option schema.registry.basic.auth.user.info for these",
        (lambda _: SchemaRegistryClient("http://b", basic_auth_user_info="me:pw"),),
    ),
    "a misspelt key": Row(
        lambda _: SchemaRegistryClient("http://b", timeoutt=1),
        ConfigError,
        "did you mean timeout?",
        (lambda _: SchemaRegistryClient("http://b", timeout=1),),
    ),
    "two logins": Row(
        lambda _: SchemaRegistryClient("http://b", basic_auth_user_info="me:pw", bearer_auth_token="t"),
        ConfigError,
        "give one",
        (
            lambda _: SchemaRegistryClient("http://b", basic_auth_user_info="me:pw"),
            lambda _: SchemaRegistryClient("http://b", bearer_auth_token="t"),
        ),
    ),
    "a token of two lines": Row(
        subjects("secret\n"),
        ConfigError,
        "must give a token: ASCII characters on one line",
        (subjects("secret"), subjects(lambda: "secret")),
    ),
    "a callable without a token": Row(
        subjects(lambda: b"secret"),
        ConfigError,
        "must give a token: ASCII characters on one line",
        (subjects(lambda: "secret"),),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_calls_that_follow_the_advice_work(row: Row) -> None:
    with SchemaRegistryServer() as server, pytest.raises(row.error, match=re.escape(row.advice)):
        row.wrong(SchemaRegistryClient(server.url, max_retries=0))
    for right in row.right:
        with SchemaRegistryServer() as server:
            right(SchemaRegistryClient(server.url, max_retries=0))


def test_protobuf_of_a_registry_of_texts() -> None:
    of_texts: Any = OfTexts()
    record = b"\0\0\0\0\7\0"
    with pytest.raises(
        SerializationError, match="a ProtobufDeserializer with a message_type needs none of them"
    ):
        ProtobufDeserializer(of_texts).deserialize("t", (), record)
    unit = message_type("shop.Unit")
    assert ProtobufDeserializer(of_texts, unit).deserialize("t", (), record) == unit()


def test_json_without_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    record = b"\0\0\0\0\x011"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jsonschema", None)
        with pytest.raises(MissingDependencyError, match="or pass validate=False"):
            JsonSchemaDeserializer(None, {"type": "integer"})
        assert JsonSchemaDeserializer(None, validate=False).deserialize("t", (), record) == 1


def test_a_registry_that_asks_for_a_login(registry: RegistryServer) -> None:
    registry.schemas[7] = {"schema": '"long"'}
    for header, login in (
        ("Basic bWU6cHc=", {"basic_auth_user_info": "me:pw"}),
        ("Bearer t", {"bearer_auth_token": "t"}),
    ):
        registry.token = header
        with pytest.raises(
            ConfigError,
            match=r"see the options schema\.registry\.basic\.auth\.user\.info, schema\.registry\.bearer\.auth\.token",
        ):
            SchemaRegistryClient(registry.url).get_schema(7)
        assert SchemaRegistryClient(registry.url, **login).get_schema(7).schema_str == '"long"'


def test_a_login_in_the_open(caplog: pytest.LogCaptureFixture) -> None:
    _about_to_talk("http://advice.example")
    assert caplog.messages[0].endswith("is sent to http://advice.example unencrypted: use https://")
    _about_to_talk("https://advice.example")
    assert len(caplog.messages) == 1
