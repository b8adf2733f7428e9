"""What confluent-kafka's serialisers ask of a registry and write, for each of `cases.py`; kept in golden.json.

A program, for a Python with confluent-kafka[avro,json,protobuf], which CI does not install:

    PYTHONPATH=src:. python tests/registry/golden.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.registry.cases import CASES, TOPIC, Case, message_type

from kadence.testing.schema_registry import RegistryRequest, SchemaRegistryServer

GOLDEN = Path(__file__).with_name("golden.json")


def prepare(server: SchemaRegistryServer, case: Case) -> list[dict[str, Any]]:
    """Register what the schema needs, and itself where that is said; its references."""
    references: list[dict[str, Any]] = []
    for (subject, schema), name in zip(case.needs, case.names, strict=True):
        server.add(subject, schema, case.kind, list(references))
        references.append({"name": name, "subject": subject, "version": 1})
    if case.registered:
        server.add(f"{TOPIC}-value", case.schema, case.kind, references)
    return references


def told(requests: Iterable[RegistryRequest]) -> list[list[Any]]:
    """The requests that change something, or might."""
    return [
        [
            request.method,
            # Confluent's client says what is the default, too.
            request.path.partition("?")[0] + "?normalize" * ("normalize=true" in request.path.lower()),
            json.loads(request.body),
        ]
        for request in requests
        if request.method != "GET"
    ]


def written_by_confluent(case: Case) -> dict[str, Any]:
    from confluent_kafka.schema_registry import (
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        header_schema_id_serializer,
    )
    from confluent_kafka.schema_registry import record_subject_name_strategy as record
    from confluent_kafka.schema_registry import topic_record_subject_name_strategy as topic_record
    from confluent_kafka.schema_registry import topic_subject_name_strategy as topic
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    with SchemaRegistryServer() as server:
        references = prepare(server, case)
        client = SchemaRegistryClient({"url": server.url})
        strategy: Any = {"topic": topic, "record": record, "topic_record": topic_record}[case.strategy]
        conf = {
            "auto.register.schemas": not case.registered,
            "normalize.schemas": case.normalize,
            "subject.name.strategy": strategy,
        }
        if case.in_header:
            conf["schema.id.serializer"] = header_schema_id_serializer
        schema = Schema(case.schema, case.kind, [SchemaReference(**each) for each in references])
        if case.kind == "PROTOBUF":
            kind = message_type(case.schema)
            serializer: Any = ProtobufSerializer(kind, client, conf)
            values = [kind(**value) for value in case.values]
        else:
            made = schema if references else case.schema
            serializer = (
                AvroSerializer(client, made, conf=conf)
                if case.kind == "AVRO"
                else JSONSerializer(made, client, conf=conf)
            )
            values = case.values
        field = MessageField.KEY if case.is_key else MessageField.VALUE
        headers: list[Any] = [[] for _ in values]
        written = [
            serializer(value, SerializationContext(TOPIC, field, added)).hex()
            for value, added in zip(values, headers, strict=True)
        ]
        found: dict[str, Any] = {"written": written, "requests": told(server.requests)}
        if case.in_header:
            found["headers"] = [[(name, data.hex()) for name, data in added] for added in headers]
        return found


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case.name: written_by_confluent(case) for case in CASES}, indent=1) + "\n")
