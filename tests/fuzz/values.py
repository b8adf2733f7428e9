"""Keys and values: Avro, Protobuf and JSON behind the id of their schema, and JSON alone; by rows and by columns.

Whoever may write to a topic chooses them. A value is read, or is bad; columns are as long as what they were made of.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.mutation import DEEP
from tests.fuzz.target import Target

from kadence.errors import SerializationError
from kadence_schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
)
from kadence_schemas.settings import read_options

if TYPE_CHECKING:
    from kadence_testing.schema_registry import SchemaRegistryServer

__all__ = ["AVRO", "JSON", "JSON_SCHEMA", "PROTOBUF", "protobuf_schema"]

_PLAIN_JSON: Final = (
    b"{}",
    b'{"id": 1, "name": "\xc3\xa4\\u00e4", "more": [1, 2.5e3, null, true, {"a": []}]}',
    b'{"id": -9223372036854775808, "at": "2024-01-02T03:04:05Z"}',
    b"[1, 2]",
    b'"text"',
    b"12345678901234567890123456789",
    b'{"id": {"id": {"id": 1}}}',
    DEEP,
    b"[" * 900 + b"]" * 900,
)


class _Local:
    """In place of HTTP: asks a registry in this process."""

    def __init__(self, server: SchemaRegistryServer) -> None:
        self._server = server
        self.where = "here"

    def ask(self, path: str, missing: tuple[int, ...] = (), *, method: str = "GET", body: Any = None) -> Any:
        from kadence_testing.schema_registry import RegistryRequest

        data = b"" if body is None else json.dumps(body).encode()
        status, content = self._server.answer(RegistryRequest(method, path, data, None))
        self._server.requests.clear()
        assert status in (200, 404), (path, status, content)
        return json.loads(content) if status == 200 else None


@functools.cache
def _client() -> SchemaRegistryClient:
    """Of a registry that no socket leads to."""
    from kadence_testing.schema_registry import SchemaRegistryServer

    made = SchemaRegistryClient._of(read_options({"url": "http://127.0.0.1:1"}, {}), sleep=lambda _: None)
    made._http = _Local(SchemaRegistryServer())  # type: ignore[assignment]
    return made


@functools.cache
def _seeds(kind: str) -> list[bytes]:
    """What the serialisers make of the values that other tests have."""
    from tests.registry.cases import CASES, message_type

    client, made = _client(), []
    number = itertools.count()
    for case in CASES:
        if case.kind != kind or case.needs:
            continue
        topic = f"{kind}{next(number)}"
        serializer: Any
        if kind == "AVRO":
            serializer = AvroSerializer(client, case.schema)
        elif kind == "JSON":
            serializer = JsonSchemaSerializer(client, case.schema)
        else:
            serializer = ProtobufSerializer(client, message_type(case.schema))
        for value in case.values:
            message = message_type(case.schema)(**value) if kind == "PROTOBUF" else value
            made.append(serializer.serialize(topic, (), message))
    return made


def protobuf_schema() -> str:
    """A compiled file, as registries keep it."""
    _seeds("PROTOBUF")
    return _client().get_latest_version("PROTOBUF0-value").schema.schema_str


def _read(make: Callable[[], Any], *, has_columns: bool) -> Callable[[bytes], object]:
    """What reads a value by itself, and as one of a column between two good ones."""
    kept: list[Any] = []

    def read(data: bytes) -> object:
        if not kept:
            rows = make()
            kept.extend((rows, rows.columns() if has_columns else None))
        rows, columns = kept
        if columns is not None:
            _in_a_column(columns, data)
        try:
            return [rows.deserialize("t", (), data)]
        except SerializationError as error:
            return error

    return read


def _in_a_column(columns: Any, data: bytes) -> None:
    import pyarrow as pa

    values = [data, None, data[:-1], data]
    found = columns.decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    assert len(found.column) == len(values)
    bad = set(found.bad)
    assert 1 not in bad
    assert bad <= {0, 2, 3}
    assert (0 in bad) == (3 in bad)
    assert all(not found.column[row].is_valid for row in (1, *bad))


def _plain(data: bytes) -> object:
    import pyarrow as pa

    from kadence.deserializers import json as json_of
    from kadence.reading.json_values import JsonColumns

    values = [data, None, b'{"id": 1}', data]
    found = JsonColumns().decode(pa.array(values, pa.binary()))
    found.column.validate(full=True)
    assert len(found.column) == len(values)
    try:
        return [json_of(data)]
    except (ValueError, RecursionError) as error:
        # Whatever a deserialiser raises makes a bad record.
        return error


_CHECKED: Final = json.dumps(
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0, "multipleOf": 2},
            "name": {"type": "string", "maxLength": 20, "pattern": "^[a-z]*$"},
            "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}, "uniqueItems": True},
            "inner": {"$ref": "#"},
        },
        "definitions": {"tag": {"enum": ["a", "b", 1, None]}},
        "additionalProperties": {"type": ["number", "null"]},
    }
)
_CHECKED_VALUES: Final = (
    {"id": 4, "name": "abc", "tags": ["a", "b", 1, None], "inner": {"id": 0, "more": 1.5}},
    {"tags": [], "inner": {"inner": {"inner": {}}}},
)


def _checked_seeds() -> list[bytes]:
    serializer = JsonSchemaSerializer(_client(), Schema(_CHECKED, "JSON"))
    whole = serializer.serialize("checked", (), {})
    return [
        *_seeds("JSON"),
        *(serializer.serialize("checked", (), value) for value in _CHECKED_VALUES),
        whole[:5] + b'{"inner":' * 600 + b"{}" + b"}" * 600,
        whole[:5] + DEEP,
    ]


AVRO: Final = Target(
    "avro",
    lambda: _seeds("AVRO"),
    _read(lambda: AvroDeserializer(_client()), has_columns=True),
    share=8_000,
)
PROTOBUF: Final = Target(
    "protobuf",
    lambda: _seeds("PROTOBUF"),
    _read(lambda: ProtobufDeserializer[Any](_client()), has_columns=True),
    share=8_000,
)
JSON_SCHEMA: Final = Target(
    "json-schema",
    _checked_seeds,
    _read(lambda: JsonSchemaDeserializer(_client()), has_columns=False),
    share=100_000,
)
JSON: Final = Target("json", lambda: list(_PLAIN_JSON), _plain, share=4_000)
