"""Schema registry client, and serialisers and deserialisers of keys and values.

A package above `kadence.security`, which does not import consumer, producer or Spark: these get its objects. Any number
of threads may use a client. Serialisers run where `send` is called, deserialisers in the poll; both ask the registry
there, once for each schema. Requests are HTTP, by the standard library.
"""

from __future__ import annotations

from kadence_schemas.avro import AvroDeserializer, AvroSerializer
from kadence_schemas.client import SchemaRegistryClient
from kadence_schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from kadence_schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from kadence_schemas.schemas import RegisteredSchema, Schema, SchemaReference
from kadence_schemas.subjects import (
    SubjectNameStrategy,
    record_subject,
    topic_record_subject,
    topic_subject,
)

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "RegisteredSchema",
    "Schema",
    "SchemaReference",
    "SchemaRegistryClient",
    "SubjectNameStrategy",
    "record_subject",
    "topic_record_subject",
    "topic_subject",
]
