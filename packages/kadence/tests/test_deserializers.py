"""The ready deserialisers read what Java's serialisers write, and every way to name one."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from kadence import deserializers
from kadence.config import ConsumerConfig
from kadence.errors import ConfigError

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}
JAVA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("string", "grüß".encode(), "grüß"),
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("short", b"\xff\xfe", -2),
        ("integer", b"\x00\x00\x01\x00", 256),
        ("long", b"\xff" * 8, -1),
        ("float32", b"\x3f\xc0\x00\x00", 1.5),
        ("double", b"\xc0\x04\x00\x00\x00\x00\x00\x00", -2.5),
        ("boolean", b"\x01", True),
        (
            "uuid",
            b"12345678-1234-5678-1234-567812345678",
            uuid.UUID("12345678-1234-5678-1234-567812345678"),
        ),
    ],
)
def test_each_reads_its_bytes(name: str, data: bytes, value: object) -> None:
    reader = deserializers.named(name)
    assert reader is not None
    assert reader(data) == value
    assert reader is getattr(deserializers, name)


@pytest.mark.parametrize("name", ["short", "integer", "long", "float32", "double", "boolean", "uuid", "json"])
def test_each_refuses_bytes_that_are_no_such_thing(name: str) -> None:
    reader = deserializers.named(name)
    assert reader is not None
    with pytest.raises(Exception):  # noqa: B017 - whatever it is, it makes the record a bad one
        reader(b"\x01\x02\x03")


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        deserializers.string(b"\xff")


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("String", deserializers.string),
        ("Integer", deserializers.integer),
        ("Long", deserializers.long),
        ("Short", deserializers.short),
        ("Float", deserializers.float32),
        ("Double", deserializers.double),
        ("Boolean", deserializers.boolean),
        ("UUID", deserializers.uuid),
        ("ByteArray", None),
        ("Bytes", None),
        ("ByteBuffer", None),
    ],
)
def test_javas_names_carry_over(java: str, ours: object) -> None:
    config = ConsumerConfig.parse({**BOOTSTRAP, "value.deserializer": f"{JAVA}{java}Deserializer"})
    assert config.value_deserializer is ours
    assert ConsumerConfig.parse(BOOTSTRAP, key_deserializer=f"{java}Deserializer").key_deserializer is ours


def test_callables_objects_and_classes_are_taken() -> None:
    class Mine:
        def deserialize(self, topic: str, headers: object, data: bytes) -> Any:
            return topic, data

    assert ConsumerConfig.parse(BOOTSTRAP, value_deserializer=json.loads).value_deserializer is json.loads
    assert isinstance(ConsumerConfig.parse(BOOTSTRAP, value_deserializer=Mine).value_deserializer, Mine)
    one = Mine()
    assert ConsumerConfig.parse(BOOTSTRAP, value_deserializer=one).value_deserializer is one


class NotOne:
    """Has the names, but they are no methods."""

    on_consume = deserialize = None


class Async:
    async def on_consume(self, records: object) -> object:
        return records

    async def close(self) -> None: ...

    async def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        return data


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"value.deserializer": "io.confluent.kafka.serializers.KafkaAvroDeserializer"},
            "value.deserializer: 'io.confluent.kafka.serializers.KafkaAvroDeserializer': a Java class cannot run here",
        ),
        ({"key.deserializer": "strnig"}, "no such ready deserialiser; give a callable that gets the bytes"),
        ({"key.deserializer": 7}, "key.deserializer: 7 is not a callable, an object with deserialize"),
        ({"deserialization.errors": "skip"}, "needs key.deserializer or value.deserializer"),
        (
            {"value.deserializer": "json", "deserialization.errors": "dead-letter"},
            "dead.letter.topic belong together",
        ),
        ({"value.deserializer": "json", "dead.letter.topic": "d"}, "belong together"),
        ({"interceptors": "com.example.Interceptor"}, "is not a list of objects"),
        (
            {"interceptors": [5]},
            "interceptors: 5 is no interceptor: it needs on_consume(), on_commit() or close()",
        ),
        ({"interceptors": [NotOne()]}, "is no interceptor"),
        ({"interceptors": [Async()]}, "coroutine function, which nothing would await"),
        ({"value.deserializer": Async()}, "coroutine function, which nothing would await"),
        ({"value.deserializer": Async().close}, "coroutine function, which nothing would await"),
        ({"key.deserializer": NotOne()}, "is not a callable, an object with deserialize"),
        ({"stall.report.callback": Async().close}, "coroutine function, which nothing would await"),
    ],
)
def test_what_cannot_work_is_refused_with_advice(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.parse({**BOOTSTRAP, **given})
    assert message in str(error.value)
