"""Answers of a schema registry, as HTTP: what they say is used, or refused by an error of ours.

The input is a byte that chooses what is asked for, and the answer to all that is asked.
"""

from __future__ import annotations

import functools
import io
import json
import ssl
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from tests.fuzz.mutation import DEEP
from tests.fuzz.target import Target

from kadence.errors import KafkaError
from kadence.producer.serializing import serialized
from kadence_schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    Schema,
    SchemaRegistryClient,
)
from kadence_schemas.framing import head_of
from kadence_schemas.settings import RegistryOptions

__all__ = ["REGISTRIES", "client_of"]

_URL: Final = "http://registry.test:1"
_SCHEMA: Final = Schema('"long"')
_ID: Final = 7
_VALUE: Final = head_of(_ID) + b"\0\2"

_ASKED: Final[tuple[Callable[[SchemaRegistryClient], object], ...]] = (
    lambda client: client.get_schema(_ID),
    lambda client: client.get_latest_version("t-value"),
    lambda client: client.get_version("t-value", 1),
    lambda client: client.get_subjects(),
    lambda client: client.get_versions("t-value"),
    lambda client: client.register_schema("t-value", _SCHEMA),
    lambda client: client.lookup_schema("t-value", _SCHEMA),
    lambda client: client.delete_subject("t-value"),
    lambda client: client.get_compatibility("t-value"),
    lambda client: client.set_compatibility("NONE"),
    lambda client: AvroDeserializer(client).deserialize("t", (), _VALUE),
    lambda client: ProtobufDeserializer[Any](client).deserialize("t", (), _VALUE),
    lambda client: JsonSchemaDeserializer(client).deserialize("t", (), head_of(_ID) + b'{"a": 1}'),
    lambda client: serialized("value", AvroSerializer(client, '"long"'), "t", (), 5),
    lambda client: serialized("value", AvroSerializer(client, use_latest_version=True), "t", (), {"a": 5}),
    lambda client: client.resolve_latest("t-value", "JSON"),
)


def _answer(document: object, status: str = "200 OK") -> bytes:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _seeds() -> list[bytes]:
    from tests.fuzz.values import protobuf_schema

    avro = {"schema": '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]}]}'}
    whole = {**avro, "subject": "t-value", "version": 1, "id": _ID, "schemaType": "AVRO"}
    refers = {**whole, "references": [{"name": "R", "subject": "r", "version": 1}]}
    checked = {"schema": '{"type":"object","properties":{"a":{"$ref":"#/x"}},"x":{}}', "schemaType": "JSON"}
    message = {"schema": protobuf_schema(), "schemaType": "PROTOBUF"}
    chunks = b'f\r\n{"schema":"\\"lo\r\n6\r\nng\\""}\r\n0\r\n\r\n'
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    seeds = [bytes([way]) + _answer(whole) for way in range(len(_ASKED))]
    seeds += [bytes([way]) + _answer(refers) for way in (0, 10)]
    seeds += [bytes([way]) + _answer({**whole, **checked}) for way in (12, 15)]
    seeds += [b"\x0b" + _answer({**whole, **message}), b"\0" + chunked]
    seeds += [bytes([way]) + _answer(["a", "b"]) for way in (3, 4)]
    seeds += [bytes([way]) + _answer([1, 2]) for way in (4, 7)]
    seeds += [b"\x08" + _answer({"compatibilityLevel": "NONE"}), b"\x09" + _answer({"compatibility": "NONE"})]
    for status, code in (
        ("404 Not Found", 40403),
        ("409 Conflict", 409),
        ("500 Oops", 50001),
        ("401 No", 401),
    ):
        seeds += [bytes([way]) + _answer({"error_code": code, "message": "no"}, status) for way in (0, 5)]
    deep = b"HTTP/1.1 200 OK\r\n\r\n" + DEEP
    seeds += [bytes([way]) + deep for way in (0, 3)]
    seeds += [
        bytes([way]) + _answer({**whole, "schema": DEEP.decode(), "schemaType": "JSON"}) for way in (10, 12)
    ]
    seeds.append(b"\0HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\n\r\n")
    return seeds


class _Socket:
    """What a connection to a registry is made of: it takes all, and has one answer."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def makefile(self, mode: str, buffering: int = -1) -> io.BytesIO:
        assert mode == "rb"
        return io.BytesIO(self._answer)

    def __getattr__(self, name: str) -> Callable[..., None]:
        assert name in ("sendall", "settimeout", "setsockopt", "close"), name
        return lambda *_: None


@functools.cache
def _tls() -> ssl.SSLContext:
    """It takes as long to make as all the rest."""
    return ssl.create_default_context()


class _Fixed:
    """In place of HTTP: one answer to all that is asked."""

    where = "here"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def ask(self, path: str, missing: tuple[int, ...] = (), **more: Any) -> Any:
        return self._answer


def client_of(answer: Any) -> SchemaRegistryClient:
    """A client that gets this document for all that it asks for."""
    made = SchemaRegistryClient._of(RegistryOptions((_URL,), retries=0), lambda _: None)
    made._http = _Fixed(answer)  # type: ignore[assignment]
    return made


def _ask(data: bytes) -> object:
    client = SchemaRegistryClient._of(RegistryOptions((_URL,), retries=0), lambda _: None)
    client._http._context = _tls()
    with mock.patch("socket.create_connection", side_effect=lambda *_, **__: _Socket(data[1:])):
        try:
            found = _ASKED[(data[0] if data else 0) % len(_ASKED)](client)
        except KafkaError as error:
            return error
    return [found]


REGISTRIES: Final = Target("registries", _seeds, _ask, share=5_000)
