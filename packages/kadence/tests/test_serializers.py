"""The ready serialisers write what Java's deserialisers read, and every way to name one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kadence import deserializers, serializers
from kadence.config import ProducerConfig
from kadence.errors import ConfigError

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}
JAVA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("string", "grüß".encode(), "grüß"),
        ("json", '{"a":[1,null],"ü":"x"}'.encode(), {"a": [1, None], "ü": "x"}),
        ("short", b"\xff\xfe", -2),
        ("integer", b"\x00\x00\x01\x00", 256),
        ("long", b"\xff" * 8, -1),
        ("float32", b"\x3f\xc0\x00\x00", 1.5),
        ("double", b"\xc0\x04\x00\x00\x00\x00\x00\x00", -2.5),
        ("boolean", b"\x01", True),
        ("boolean", b"\x00", False),
        (
            "uuid",
            b"12345678-1234-5678-1234-567812345678",
            uuid.UUID("12345678-1234-5678-1234-567812345678"),
        ),
    ],
)
def test_each_writes_its_bytes_and_they_are_read_back(name: str, data: bytes, value: object) -> None:
    writer, reader = serializers.named(name), deserializers.named(name)
    assert writer is not None
    assert reader is not None
    assert writer(value) == data
    assert reader(data) == value
    assert writer is getattr(serializers, name)


def test_both_directions_have_the_same_names() -> None:
    assert serializers._READY.keys() == deserializers._READY.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("string", 5),
        ("json", {1, 2}),
        ("json", float("nan")),
        ("short", 2**15),
        ("long", "5"),
        ("boolean", 1),
        ("uuid", "no"),
    ],
)
def test_each_refuses_what_it_cannot_write(name: str, value: Any) -> None:
    writer = serializers.named(name)
    assert writer is not None
    with pytest.raises(Exception):  # noqa: B017 - whatever it is, it becomes the cause of a SerializationError
        writer(value)


def test_s3_the_error_of_a_boolean_has_not_the_value() -> None:
    with pytest.raises(TypeError, match=r"^a boolean is True or False, not str$"):
        serializers.boolean("secret")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (f"{JAVA}StringSerializer", serializers.string),
        (f"{JAVA}ByteArraySerializer", None),
        ("IntegerSerializer", serializers.integer),
        ("bytes", None),
        (str.encode, str.encode),
        (None, None),
    ],
)
def test_ways_to_name_one(given: Any, kept: Any) -> None:
    assert ProducerConfig.parse(BOOTSTRAP, value_serializer=given).value_serializer is kept


def test_a_class_of_serialisers_is_made() -> None:
    class Own:
        def serialize(self, topic: str, headers: serializers.Headers, data: Any) -> bytes:
            return b""

    assert isinstance(ProducerConfig.parse(BOOTSTRAP, key_serializer=Own).key_serializer, Own)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("avro", "there is no such ready serialiser"),
        ("io.confluent.kafka.serializers.KafkaAvroSerializer", "a Java class cannot run here"),
        (5, "key.serializer: 5 is not a callable, an object with serialize"),
    ],
)
def test_what_is_no_serialiser_is_refused(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ProducerConfig.parse(BOOTSTRAP | {"key.serializer": given})


def test_a_coroutine_function_is_refused() -> None:
    async def encode(value: Any) -> bytes:
        return b""

    with pytest.raises(ConfigError, match="coroutine function"):
        ProducerConfig.parse(BOOTSTRAP, key_serializer=encode)
