"""Texts that people write, or somebody for them: schemas, settings, files of settings, JAAS, places, faults, letters.

Each is read, or refused by an error of ours. The first byte of an input chooses what reads it.
"""

from __future__ import annotations

import base64
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.fuzz.mutation import DEEP
from tests.fuzz.registries import client_of
from tests.fuzz.target import Target
from tests.fuzz.values import protobuf_schema
from tests.registry.cases import CASES

from kadence.config import AdminConfig, ConsumerConfig, ProducerConfig
from kadence.errors import ConfigError, KafkaError, RecordTooLargeError
from kadence.records import Record, encode_batch
from kadence.security import jaas
from kadence.where import where_of
from kadence.work.letters import Letter as SentLetter
from kadence.work.letters import (
    attempts_of,
    dead_letter,
    due_at,
    named,
    place_of,
    replayed,
    retry_record,
    shorter,
    with_its_time,
)
from kadence_broker.faults import Faults
from kadence_broker.faults.text import put_in_force
from kadence_broker.settings import Settings
from kadence_cli.clusters import settings_in
from kadence_cli.letters import Letter, described, document
from kadence_schemas import AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer
from kadence_schemas.framing import head_of

__all__ = ["LETTERS", "SCHEMAS", "SETTINGS"]

_ID: Final = 7
_NOW: Final = 1_700_000_000_000
_OURS: Final = ("kadence.error.", "kadence.retry.", "kadence.replay.", "kadence.")
_BODIES: Final = (b"", b"\0", b"\2\4ab\0", b'{"a": 1, "b": ["c"]}', b"\0\n\3EUR")


# Schemas


def _schema_seeds() -> list[bytes]:
    texts = [
        b"%c" % (case.kind == "JSON") + case.schema.encode() for case in CASES if case.kind != "PROTOBUF"
    ]
    more = {
        "type": "record",
        "name": "a.R",
        "fields": [
            {"name": "self", "type": ["null", "a.R"], "default": None},
            {
                "name": "d",
                "type": {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9},
            },
            {
                "name": "m",
                "type": {"type": "map", "values": {"type": "array", "items": "double"}},
                "aliases": ["x"],
            },
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
        ],
    }
    checks = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{"required": ["a"]}, {"$ref": "#/definitions/x"}],
        "properties": {"a": {"anyOf": [{"type": "integer"}, {"pattern": "^a+$"}]}},
        "patternProperties": {"^b": {"items": [True, False], "uniqueItems": True, "contains": {"const": 1}}},
        "definitions": {"x": {"not": {"type": "null"}, "if": {"maximum": 3}, "then": {"multipleOf": 0.1}}},
        "dependencies": {"a": ["b"]},
        "propertyNames": {"format": "email"},
    }
    return [
        *texts,
        b"\0" + json.dumps(more).encode(),
        b"\1" + json.dumps(checks).encode(),
        b"\0" + DEEP,
        b"\1" + DEEP,
        b"\0" + b'{"type":"array","items":' * 400 + b'"int"' + b"}" * 400,
        b"\1" + b'{"items":' * 400 + b"{}" + b"}" * 400,
        b"\2" + base64.b64decode(protobuf_schema()),
    ]


def _use_schema(data: bytes) -> object:
    """As the schema of the writer, by rows and columns, and as the reader's."""
    import pyarrow as pa

    kind = ("AVRO", "JSON", "PROTOBUF")[(data[0] if data else 0) % 3]
    text = base64.b64encode(data[1:]).decode() if kind == "PROTOBUF" else data[1:].decode(errors="replace")
    client = client_of({"schema": text, "schemaType": kind})
    errors: list[Exception] = []
    read: list[object] = []

    def attempt(call: Callable[[], object]) -> None:
        try:
            read.append([call()])
        except KafkaError as error:
            errors.append(error)

    rows: Any = {"AVRO": AvroDeserializer, "JSON": JsonSchemaDeserializer, "PROTOBUF": ProtobufDeserializer}[
        kind
    ](client)
    values = [head_of(_ID) + body for body in _BODIES]
    for value in values:
        attempt(functools.partial(rows.deserialize, "t", (), value))
    if kind != "JSON":
        decoded = rows.columns().decode(pa.array(values, pa.binary()))
        decoded.column.validate(full=True)
        assert len(decoded.column) == len(values)
    if kind == "AVRO":
        attempt(lambda: AvroDeserializer(client, text).columns())
    elif kind == "JSON":
        attempt(lambda: JsonSchemaDeserializer(None, text).deserialize("t", (), values[3]))
    return read or errors[0]


# Settings

_CONFIGS: Final = (ConsumerConfig, ProducerConfig, AdminConfig, Settings)
_SETTINGS: Final = b"""# A file as Java has it.
bootstrap.servers=a:9092,[::1]:9093
group.id = g
auto.offset.reset=by_duration:PT1H30M
session.timeout.ms=45000
partition.assignment.strategy=range,cooperative-sticky
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="a" password="b";
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
isolation.level=read_committed
ssl.truststore.type=PEM
linger.ms=5
compression.type=zstd
acks=all
"""
_TOML: Final = b"""bootstrap.servers = "a:9092"
group.id = "g"
[session]
timeout.ms = 45000
[sasl]
jaas.config = "x required a='b';"
list = ["a", "b"]
nested = { a = { b = 1, c = true } }
"""
_JAAS: Final = (
    b'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password=\'c\';',
    b'a.OAuthBearerLoginModule sufficient clientId=me clientSecret="x;y" scope = z ;',
)
_PLACES: Final = (
    b"earliest", b"1200", b"-10", b"2026-11-22T10:30Z", b"-90s", b"7 days ago", b"time:1700000000000", b"yesterday",
)  # fmt: skip
_PLACE: Final = 6
_FAULTS: Final = (
    b"fetch delay=200ms", b"produce error=NOT_LEADER_OR_FOLLOWER times=3", b"freeze node=2",
    b"any delay=1s node=2 topic=orders probability=0.1 seed=7", b"fetch truncate=100 client=reader-1",
)  # fmt: skip
_BROKER: Final = b"""log.retention.ms=1000
group.min.session.timeout.ms=1
offsets.topic.num.partitions=3
log.cleanup.policy=compact,delete
max.connections=5
"""


def _setting_seeds() -> list[bytes]:
    pairs = (
        (0, [_SETTINGS]),
        (1, [_SETTINGS]),
        (2, [_SETTINGS]),
        (3, [_BROKER]),
        (4, [_TOML, b"a = " + b"[" * 5_000, b"a = " + b"{a=" * 5_000]),
        (5, _JAAS),
        (_PLACE, _PLACES),
        (7, _FAULTS),
    )
    return [bytes([way]) + text for way, texts in pairs for text in texts]


def _read_settings(data: bytes) -> object:
    way, text = (data[0] if data else 0) % 8, data[1:]
    words = text.decode(errors="replace")
    try:
        if way < 5:
            with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
                path = Path(folder, "a.toml" if way == 4 else "a.properties")
                path.touch(0o600)
                path.write_bytes(text)
                found = settings_in(str(path), {"HOME": "x"})
            return _CONFIGS[way % len(_CONFIGS)].parse(found)
        if way == 5:
            return jaas.parse(words)
        if way == _PLACE:
            return _read_place(words)
        put_in_force(Faults(), words)
        return [words]
    except ConfigError as error:
        return error


def _read_place(text: str) -> object:
    try:
        place = where_of(text, _NOW)
    except ValueError as error:
        return error
    return place.as_time if place.kind == "time" else place


_MEMORY: Final = Path("/dev/shm")


# Letters: a record that anybody may have written to a topic of dead letters or of retries

_TEXTS: Final = {
    "topic": b"t",
    "partition": b"0",
    "offset": b"12",
    "timestamp": b"1700000000000",
    "class": b"ValueError",
    "message": b"no number",
    "attempts": b"3",
    "first": b"1700000000000",
    "last": b"1700000000001",
    "group": b"g",
    "field": b"value",
    "value.bytes": b"100",
    "at": b"1700000000002",
    "time": b"1700000000002",
}


def _letter_seeds() -> list[bytes]:
    return [b"\n".join(b"%s=%s" % (name.encode(), value) for name, value in _TEXTS.items())]


def _read_letter(data: bytes) -> object:
    pairs = [line.partition(b"=")[::2] for line in data.split(b"\n")]
    headers = [(prefix + name.decode(errors="replace"), value) for name, value in pairs for prefix in _OURS]
    record: Any = Record("dlq", 0, 5, _NOW, 0, b"key", data, headers)
    letter = Letter.of(record)
    json.dumps(document(letter))
    list(described(letter))
    assert due_at(record) >= 0
    given = with_its_time(record)
    attempts, error = attempts_of(record) + 1, ValueError("x" * 3_000)
    for made in (
        replayed(record, "t", 0),
        retry_record(given, "retry", error, attempts, _NOW, _NOW),
        dead_letter(given, "dlq", error, attempts, _NOW, _NOW, "g"),
    ):
        # It can be written.
        encode_batch([(made.timestamp or 0, made.key, made.value, made.headers)])
    shown = shorter(SentLetter.of(made, "x", error), RecordTooLargeError(""))
    return [letter.at, given, place_of(record), named(record), shown]


SCHEMAS: Final = Target("schemas", _schema_seeds, _use_schema, share=4_000)
SETTINGS: Final = Target("settings", _setting_seeds, _read_settings, share=6_000)
LETTERS: Final = Target("letters", _letter_seeds, _read_letter, share=10_000)
