"""Schemas as the registry keeps them, and with their references."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["AVRO", "JSON", "PROTOBUF", "RegisteredSchema", "ResolvedSchema", "Schema", "SchemaReference"]

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """Another schema that a schema needs.

    Attributes:
        name: what the schema calls it: the full name of an Avro type, the file that a Protobuf file imports, the
            address in a ``$ref`` of a JSON Schema.
        subject: its subject. version: its version in that subject.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema.

    Attributes:
        schema_str: its text. For Protobuf also the base64 of a serialised FileDescriptorProto.
        schema_type: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        references: the other schemas that it needs.
    """

    schema_str: str
    schema_type: str = AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject.

    Attributes:
        subject: the subject's name. version: its number, from 1 on. schema_id: the number that records carry.
        guid: the name that the schema has in all registries and contexts; None: the registry gives none.
    """

    subject: str
    version: int
    schema_id: int
    schema: Schema
    guid: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """A schema with its references.

    Attributes:
        kind: AVRO, PROTOBUF or JSON. text: the schema; base64 of a file descriptor for Protobuf.
        references: the schemas it refers to, by the names it uses, in the order of their dependencies.
    """

    kind: str
    text: str
    references: tuple[tuple[str, ResolvedSchema], ...] = ()
