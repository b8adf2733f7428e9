"""Values with schemas of a registry: kadence produce --value-schema and kadence consume --value."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from tests.cli.conftest import Run
from tests.registry.cases import PERSON, _files

from kadence import Producer
from kadence_broker import Broker
from kadence_schemas import SchemaRegistryClient
from kadence_testing.schema_registry import SchemaRegistryServer

EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string", {"type": "int", "logicalType": "date"}]},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "far", "type": {"type": "map", "values": "double"}},
        {"name": "inner", "type": {"type": "array", "items": ["null", "Everything"]}},
    ],
}
ONE: dict[str, Any] = {
    "id": 1,
    "note": None,
    "raw": {"base64": "/w=="},
    "price": "-12.30",
    "at": "2026-11-24T10:00:00.123456+00:00",
    "day": "2026-11-24",
    "key": "00000000-0000-0000-0000-000000000005",
    "far": {"a": "inf", "b": 0.5},
    "inner": [],
}
TWO = {**ONE, "id": 2, "note": "2026", "raw": "text", "inner": [ONE, None]}


@pytest.fixture
def registry(schema_registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistryServer:
    monkeypatch.setenv("KADENCE_SCHEMA_REGISTRY", "http://127.0.0.1:9")
    return schema_registry


def lines(*documents: object) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in documents).encode()


def test_avro_there_and_back(kadence: Run, registry: SchemaRegistryServer, tmp_path: Path) -> None:
    schema = tmp_path / "everything.avsc"
    schema.write_text(json.dumps(EVERYTHING))
    there = ("--value-schema", str(schema), "--schema-registry", registry.url)
    assert kadence("produce", "avro", "--format", "json", *there, stdin=lines(ONE, TWO)).status == 0
    read = ("consume", "avro", "-e", "--value", "avro", "-X", f"schema.registry.url={registry.url}")
    seen = kadence(*read)
    assert [row["value"] for row in seen.rows] == [ONE, TWO], seen.err
    assert kadence(*read, "--format", "values").rows == [ONE, TWO]
    again = kadence("produce", "again", *there, stdin=seen.out.encode() + b'{"key":"gone","value":null}')
    assert again.status == 0, again.err
    copy = kadence("consume", "again", "-e", "--value", "avro", "--schema-registry", registry.url)
    assert [row["value"] for row in copy.rows] == [ONE, TWO, None]
    assert SchemaRegistryClient(registry.url).get_subjects() == ["again-value", "avro-value"]


def test_a_value_of_a_union_is_the_type_that_is_shown_alike(
    kadence: Run, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    date, moment = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    values: list[Any] = ["2026-01-01", "2026-01-01T05:00:00+00:00", 0.5, "1.20"]
    schema = tmp_path / "unions.avsc"
    for place, union in enumerate(([date, moment, price, "double"], [moment, date, price, "double"])):
        schema.write_text(json.dumps({"type": "array", "items": union}))
        there = ("--value-schema", str(schema), "--schema-registry", registry.url)
        ran = kadence("produce", f"t{place}", "--format", "json", *there, stdin=lines(values))
        assert ran.status == 0, ran.err
        seen = kadence("consume", f"t{place}", "-e", "--value", "avro", "--schema-registry", registry.url)
        assert [row["value"] for row in seen.rows] == [values], seen.err
    schema.write_text(json.dumps({"type": "array", "items": ["double", "long"]}))
    assert kadence("produce", "t2", "--format", "json", *there, stdin=lines([2**53 + 1, 0.5])).status == 0
    seen = kadence("consume", "t2", "-e", "--value", "avro", "--schema-registry", registry.url)
    assert [row["value"] for row in seen.rows] == [[2**53 + 1, 0.5]]


def test_protobuf_there_and_back(kadence: Run, registry: SchemaRegistryServer, tmp_path: Path) -> None:
    from google.protobuf import timestamp_pb2

    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    descriptors = tmp_path / "sale.pb"
    descriptors.write_bytes(descriptor_pb2.FileDescriptorSet(file=[known, *_files()]).SerializeToString())
    sale = {"id": "5", "price": {"cents": "3"}, "at": "2026-11-24T10:00:00Z"}
    there = ("--value", "protobuf", "--value-schema", str(descriptors), "--schema-registry", registry.url)
    assert kadence("produce", "proto", *there, stdin=lines({"value": sale})).status == 0
    inner = ("--value-message", "shop.Other.Inner3")
    assert kadence("produce", "proto", *there, *inner, stdin=lines({"value": {"text": "x"}})).status == 0
    seen = kadence("consume", "proto", "-e", "--value", "protobuf", "--schema-registry", registry.url)
    assert [row["value"] for row in seen.rows] == [sale, {"text": "x"}], seen.err


def test_json_schema_is_shown_unchecked(kadence: Run, registry: SchemaRegistryServer, broker: Broker) -> None:
    schema_id = registry.add("json-value", PERSON, "JSON")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("json", struct.pack(">bI", 0, schema_id) + b'{ "age": 5 }')
    seen = kadence("consume", "json", "-e", "--value", "json-schema", "--schema-registry", registry.url)
    assert [row["value"] for row in seen.rows] == [{"age": 5}], seen.err


def test_json_schema_is_checked_when_written(
    kadence: Run, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    pytest.importorskip("jsonschema")
    schema = tmp_path / "person.json"
    schema.write_text(PERSON)
    there = ("--value", "json-schema", "--value-schema", str(schema), "--schema-registry", registry.url)
    assert kadence("produce", "person", *there, stdin=lines({"value": {"name": "Ada"}})).status == 0
    bad = kadence("produce", "person", *there, stdin=lines({"value": {"age": 5}}))
    assert bad.status == 1
    assert "'required' fails" in bad.err


def test_values_that_do_not_fit_and_records_that_are_bad(
    kadence: Run, registry: SchemaRegistryServer, broker: Broker, tmp_path: Path
) -> None:
    schema = tmp_path / "long.avsc"
    schema.write_text('"long"')
    there = ("--value-schema", str(schema), "--schema-registry", registry.url)
    refused = kadence("produce", "bad", *there, stdin=lines({"value": "text"}))
    assert refused.status == 1
    assert "cannot be serialised" in refused.err
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("bad", b"plain text")
    bad = kadence("consume", "bad", "-e", "--value", "avro", "--schema-registry", registry.url)
    assert bad.status == 1
    assert "the value of bad-0 at offset 0 is bad" in bad.err
    skipped = kadence(
        "consume",
        "bad",
        "-e",
        "--value",
        "avro",
        "--schema-registry",
        registry.url,
        "-X",
        "deserialization.errors=skip",
    )
    assert (skipped.status, skipped.out) == (0, "")


def test_options_that_do_not_fit(kadence: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KADENCE_SCHEMA_REGISTRY", raising=False)
    for words, said in (
        (("consume", "t", "--value", "avro"), "need --schema-registry URL"),
        (("produce", "t", "--value", "avro"), "need --value-schema FILE"),
        (("produce", "t", "--value-schema", "x", "--schema-registry", "localhost:1"), "begins with http://"),
        (("consume", "t", "-X", "schema.registry.url=http://h"), "schema.registry.url"),
        (
            ("produce", "t", "--value-schema", "x", "--value-message", "m", "--schema-registry", "http://h"),
            "--value-message is for --value protobuf",
        ),
    ):
        ran = kadence(*words)
        assert ran.status == 2, words
        assert said in ran.err
    lost = kadence("produce", "t", "--value-schema", "/nowhere", "--schema-registry", "http://h")
    assert lost.status == 1
    assert "--value-schema /nowhere: No such file" in lost.err
