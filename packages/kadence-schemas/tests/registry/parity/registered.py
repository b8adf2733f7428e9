"""A registry, and what others than Kadence wrote with its schemas."""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import fastavro
from tests.registry.parity.random_avro import without_logical

from kadence_schemas import SchemaRegistryClient
from kadence_schemas.settings import RegistryOptions
from kadence_testing.schema_registry import SchemaRegistryServer

__all__ = ["Registered", "Written"]


@dataclass(frozen=True)
class Written:
    """Values of one schema: what comes before each, and the bytes behind it."""

    header: bytes
    bodies: list[bytes]


class Registered:
    """Writes with Confluent's serialisers where confluent-kafka has them, else with the libraries that these call.

    It is closed by ``with``.

    Args:
        server: runs.
    """

    def __init__(self, server: SchemaRegistryServer) -> None:
        self._server = server
        self.options = RegistryOptions((server.url,))
        self.client = SchemaRegistryClient(server.url)
        self._confluent = _confluent(server.url)
        self._subjects = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._confluent is not None:
            self._confluent.close()

    @property
    def writer(self) -> str:
        """Who writes."""
        return "fastavro, protobuf and json" if self._confluent is None else "confluent-kafka"

    def avro(self, schema: Any, values: list[Any]) -> Written:
        """Values as fastavro takes them."""
        text = json.dumps(schema)
        topic = self._topic()
        parsed = fastavro.parse_schema(without_logical(schema))
        bodies = []
        for value in values:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, value)
            bodies.append(out.getvalue())
        # For None Confluent's serialiser writes nothing at all.
        if self._confluent is not None and None not in values:
            # In a union fastavro takes a number or text for a time, a decimal or a UUID, and fails, or writes another.
            with suppress(Exception):
                written = _taken_apart(self._confluent.avro(topic, text, values), 5)
                if written.bodies == bodies:
                    return written
        return Written(_header(self._server.add(f"{topic}-value", text)), bodies)

    def protobuf(self, file: Any, kind: Any, messages: list[Any]) -> Written:
        """Messages of one class."""
        topic = self._topic()
        place = b"\0" if len(file.message_type) == 1 else b"\x02\x02"
        if self._confluent is not None:
            return _taken_apart(self._confluent.protobuf(topic, kind, messages), 5 + len(place))
        text = base64.b64encode(file.SerializeToString()).decode()
        header = _header(self._server.add(f"{topic}-value", text, "PROTOBUF"))
        return Written(header + place, [each.SerializeToString() for each in messages])

    def json(self, schema: Any, values: list[Any]) -> Written:
        """Values of which not all need be of the schema; Confluent's serialiser writes none for None."""
        topic, text = self._topic(), json.dumps(schema)
        if self._confluent is not None:
            return _taken_apart(self._confluent.json(topic, text, values), 5)
        header = _header(self._server.add(f"{topic}-value", text, "JSON"))
        return Written(header, [json.dumps(each).encode() for each in values])

    def _topic(self) -> str:
        self._subjects += 1
        return f"parity{self._subjects}"


def _header(schema_id: int) -> bytes:
    return struct.pack(">bI", 0, schema_id)


def _taken_apart(written: list[bytes], size: int) -> Written:
    return Written(written[0][:size], [each[size:] for each in written])


def _confluent(url: str) -> Any:
    try:
        from confluent_kafka import schema_registry
    except ImportError:
        # It needs libraries that confluent-kafka alone does not bring.
        return None
    return _Confluent(schema_registry.SchemaRegistryClient({"url": url}))


class _Confluent:
    def __init__(self, client: Any) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    def avro(self, topic: str, schema: str, values: list[Any]) -> list[bytes]:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        return self._written(AvroSerializer(self._client, schema), topic, values)

    def protobuf(self, topic: str, kind: Any, messages: list[Any]) -> list[bytes]:
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

        serializer = ProtobufSerializer(kind, self._client, {"use.deprecated.format": False})
        return self._written(serializer, topic, messages)

    def json(self, topic: str, schema: str, values: list[Any]) -> list[bytes]:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        # Not all values are of the schema, and ours are to say so.
        made = JSONSerializer(schema, self._client, conf={"validate": False})
        return self._written(made, topic, values)

    def _written(self, serializer: Any, topic: str, values: list[Any]) -> list[bytes]:
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(topic, MessageField.VALUE)
        return [serializer(value, context) for value in values]
