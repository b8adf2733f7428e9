"""The text of an Avro schema, as Avro for Java writes it, and the registry for tests that compares it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kadence_schemas import Schema, SchemaRegistryClient
from kadence_testing.avro_text import avro_text
from kadence_testing.schema_registry import SchemaRegistryServer

# A schema, and what ``new Schema.Parser().parse(it).toString()`` of Avro for Java 1.12.1 gives.
PAIRS = [
    pair.splitlines() for pair in Path(__file__).with_name("avro_texts.txt").read_text().split("\n\n") if pair
]


@pytest.mark.parametrize(("given", "by_java"), PAIRS)
def test_the_text_is_that_of_java(given: str, by_java: str) -> None:
    assert avro_text(json.loads(given)) == by_java
    assert avro_text(json.loads(by_java)) == by_java


def test_properties_stand_in_their_order_unless_it_is_normalized() -> None:
    schema = {"z": 1, "type": "int", "a": 2}
    assert avro_text(schema) == '{"type":"int","z":1,"a":2}'
    assert avro_text(schema, normalized=True) == '{"type":"int","a":2,"z":1}'


@pytest.mark.parametrize(
    "wrong", [None, 5, {}, {"type": None}, {"type": "record", "fields": 3}, [[{"type": 4}]]]
)
def test_what_is_no_schema_is_left_to_who_checks_schemas(wrong: object) -> None:
    json.loads(avro_text(wrong))


def test_one_schema_has_one_id_however_it_is_written() -> None:
    """As Confluent's registry, which compares Avro's own text, with ``normalize`` or without."""
    plain = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    turned = '{"name": "R", "type": "record", "fields": [{"type": {"type": "int"}, "name": "a"}]}'
    with SchemaRegistryServer() as server:
        registry = SchemaRegistryClient(server.url)
        first = registry.register_schema("s", Schema(plain))
        assert registry.register_schema("s", Schema(turned)) == first
        assert registry.get_versions("s") == [1]
        assert registry.get_schema(first).schema_str == plain
        for normalize in (False, True):
            assert registry.lookup_schema("s", Schema(turned), normalize=normalize).schema_id == first


def test_a_look_up_that_is_normalized_finds_what_was_registered_otherwise() -> None:
    with SchemaRegistryServer() as server:
        registry = SchemaRegistryClient(server.url)
        first = registry.register_schema("s", Schema('{"type":"int","z":1,"a":2}'))
        assert (
            registry.lookup_schema("s", Schema('{"a":2,"type":"int","z":1}'), normalize=True).schema_id
            == first
        )
