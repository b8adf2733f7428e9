"""Values with a schema of a registry as JSON for `kadence consume`, and from JSON for `kadence produce`.

JSON has no bytes, decimals or times: bytes are a text, or ``{"base64": …}`` if they are not UTF-8; the others are texts
(times in ISO 8601). In the other direction the schema decides the type of a text.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Final

from kadence_cli.common import CommandError, UsageError, bytes_of, text_of

if TYPE_CHECKING:
    from kadence_schemas import SchemaRegistryClient

__all__ = ["KINDS", "JsonText", "add_registry_option", "plain", "registry_of", "value_serializer"]

KINDS: Final = ("avro", "protobuf", "json-schema")


def add_registry_option(parser: argparse.ArgumentParser) -> None:
    """--schema-registry."""
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        help="the schema registry (default: schema.registry.url of -c or --config, else $KADENCE_SCHEMA_REGISTRY); "
        "that file may have its login and TLS, as schema.registry.basic.auth.user.info = NAME:PASSWORD",
    )


def registry_of(arguments: argparse.Namespace, config: dict[str, Any]) -> SchemaRegistryClient:
    """The registry; its settings are removed from the client's.

    Raises:
        UsageError: no registry is named.
    """
    from kadence_schemas import SchemaRegistryClient

    given = {key: config.pop(key) for key in list(config) if key.startswith("schema.registry.")}
    if arguments.schema_registry:
        given["schema.registry.url"] = arguments.schema_registry
    elif url := os.environ.get("KADENCE_SCHEMA_REGISTRY"):
        given.setdefault("schema.registry.url", url)
    if "schema.registry.url" not in given:
        raise UsageError("values with a schema need --schema-registry URL, or $KADENCE_SCHEMA_REGISTRY")
    return SchemaRegistryClient(given)


class JsonText:
    """A deserialiser that converts values with a schema to JSON in UTF-8."""

    def __init__(self, kind: str, registry: SchemaRegistryClient) -> None:
        import kadence_schemas as formats

        if kind == "avro":
            self._read: Any = formats.AvroDeserializer(registry, from_dict=plain)
        elif kind == "protobuf":
            self._read = formats.ProtobufDeserializer(registry)
        else:
            # Values are shown even if they do not conform to their schema.
            self._read = formats.JsonSchemaDeserializer(None, validate=False)
        self._form: Callable[[Any], Any] = _message if kind == "protobuf" else lambda value: value

    def deserialize(self, topic: str, headers: Any, data: bytes, /) -> bytes:
        """The JSON."""
        made = self._form(self._read.deserialize(topic, headers, data))
        return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()


def _message(message: Any) -> Any:
    from google.protobuf import json_format

    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def plain(value: Any) -> Any:
    """A value of Avro or Arrow as JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


# ---------------------------------------------------------------- writing


def value_serializer(kind: str, file: str, message: str | None, registry: SchemaRegistryClient) -> Any:
    """A serialiser of parsed JSON.

    Args:
        file: the schema; for Protobuf a descriptor set. message: for Protobuf, its full name; None: the first.

    Raises:
        CommandError: the file cannot be read. ConfigError: it is not a schema.
    """
    import kadence_schemas as formats

    if message is not None and kind != "protobuf":
        raise UsageError("--value-message is for --value protobuf")
    if kind == "protobuf":
        from google.protobuf import json_format, message_factory

        from kadence_schemas.descriptors import Messages

        files = Messages.of_file("--value-schema", file)
        found = message_factory.GetMessageClass(files.named(message) if message else files.at((0,)))
        protobuf = formats.ProtobufSerializer(registry, found)
        return _Converting(protobuf, lambda value: json_format.ParseDict(value, found()))
    from pathlib import Path

    try:
        schema = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--value-schema {file}: {getattr(error, 'strerror', None) or error}") from None
    if kind == "json-schema":
        return formats.JsonSchemaSerializer(registry, schema)
    from kadence_schemas.avro_schemas import parsed
    from kadence_schemas.schemas import ResolvedSchema

    convert = _AvroFromJson(parsed(ResolvedSchema("AVRO", schema)))
    return formats.AvroSerializer(registry, schema, to_dict=convert.value)


class _Converting:
    def __init__(self, serializer: Any, convert: Callable[[Any], Any]) -> None:
        self._serializer = serializer
        self._convert = convert

    def serialize(self, topic: str, headers: Any, data: Any, /) -> bytes:
        made: bytes = self._serializer.serialize(topic, headers, self._convert(data))
        return made


_TIMES: Final[dict[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


class _AvroFromJson:
    """Converts parsed JSON to Avro's values."""

    def __init__(self, schema: Any) -> None:
        from kadence_schemas.avro_unions import Unions

        self._schema = schema
        self._unions = Unions(schema)
        self._named: dict[str, Any] = {}

    def value(self, value: Any) -> Any:
        """The value for fastavro, which refuses values that do not fit the schema."""
        return self._of(self._schema, value)

    def _of(self, schema: Any, value: Any) -> Any:
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        if isinstance(schema, list):
            return self._of_union(schema, value)
        if "name" in schema:
            self._named[schema["name"]] = schema
        kind = schema["type"]
        if kind in ("record", "error") and isinstance(value, dict):
            fields = {field["name"]: field["type"] for field in schema["fields"]}
            return {
                name: self._of(fields[name], item) if name in fields else item for name, item in value.items()
            }
        if kind == "array" and isinstance(value, list):
            return [self._of(schema["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._of(schema["values"], item) for name, item in value.items()}
        if isinstance(kind, dict | list):
            return self._of(kind, value)
        logical = schema.get("logicalType")
        try:
            if logical == "decimal" and isinstance(value, str | int | float):
                # Loaded for the first such field.
                from decimal import Decimal

                return Decimal(str(value))
            if logical in _TIMES and isinstance(value, str):
                return _TIMES[logical](value)
        except (ValueError, ArithmeticError):
            # ArithmeticError: decimal's InvalidOperation.
            return value
        if kind in ("bytes", "fixed") and isinstance(value, str | dict):
            return bytes_of(value)
        if kind in ("float", "double") and value in ("nan", "inf", "-inf"):
            return float(value)
        return value

    def _of_union(self, union: list[Any], value: Any) -> Any:
        """The value for the first type that `plain` shows alike; else for the first that takes it."""
        taken = [made for each in union if self._unions.takes(each, made := self._of(each, value))]
        alike = [made for made in taken if plain(made) == value]
        return next(iter(alike or taken), value)
