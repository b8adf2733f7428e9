"""confluent-kafka's serialisers and deserialisers, for the cases of `cases.py`; needs its extra schemaregistry."""

from __future__ import annotations

from typing import Any

from confluent_kafka import schema_registry
from confluent_kafka.schema_registry import avro, json_schema, protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.registry.cases import TOPIC, Case, message_type

__all__ = ["client_of", "context", "deserializer_of", "read_with", "serializer_of", "written_with"]

STRATEGIES: dict[str, Any] = {
    "topic": schema_registry.topic_subject_name_strategy,
    "record": schema_registry.record_subject_name_strategy,
    "topic_record": schema_registry.topic_record_subject_name_strategy,
}


def context(topic: str, headers: list[Any], *, is_key: bool) -> Any:
    """Where a key or value is, as its serialisers and deserialisers are told."""
    return SerializationContext(topic, MessageField.KEY if is_key else MessageField.VALUE, headers)


def client_of(url: str) -> Any:
    """A client of a registry, which is closed at the end of a ``with``."""
    return schema_registry.SchemaRegistryClient({"url": url})


def serializer_of(case: Case, client: Any, references: list[dict[str, Any]], strategy: Any = None) -> Any:
    """The serialiser for a case.

    Args:
        strategy: a function; None: that of the case.
    """
    conf: dict[str, Any] = {
        "auto.register.schemas": not case.registered,
        "normalize.schemas": case.normalize,
        "subject.name.strategy": strategy or STRATEGIES[case.strategy],
    }
    if case.in_header:
        conf["schema.id.serializer"] = schema_registry.header_schema_id_serializer
    if case.kind == "PROTOBUF":
        if strategy is not None:
            # By itself it registers imports outside of the context that the strategy names, where they are not found.
            conf["reference.subject.name.strategy"] = lambda at, reference: (
                strategy(at, None).rpartition(":")[0] + ":" + reference.name
            )
        return protobuf.ProtobufSerializer(message_type(case.schema), client, conf)
    refers = [schema_registry.SchemaReference(**each) for each in references]
    made = schema_registry.Schema(case.schema, case.kind, refers) if refers else case.schema
    if case.kind == "AVRO":
        return avro.AvroSerializer(client, made, conf=conf)
    return json_schema.JSONSerializer(made, client, conf=conf)


def deserializer_of(kind: str, client: Any, message: Any = None, strategy: Any = None) -> Any:
    """The deserialiser of a format.

    Args:
        message: the class of Protobuf's messages. strategy: a function; None: confluent-kafka's default.
    """
    conf = {} if strategy is None else {"subject.name.strategy": strategy}
    if kind == "PROTOBUF":
        return protobuf.ProtobufDeserializer(message, conf, client)
    if kind == "AVRO":
        return avro.AvroDeserializer(client, conf=conf)
    return json_schema.JSONDeserializer(None, schema_registry_client=client, conf=conf)


def written_with(serializer: Any, case: Case, topic: str = TOPIC) -> tuple[list[bytes], list[list[Any]]]:
    """What a serialiser makes of a case's values, and the headers that it adds."""
    values = case.values
    if case.kind == "PROTOBUF":
        values = [message_type(case.schema)(**value) for value in values]
    headers: list[list[Any]] = [[] for _ in values]
    written = [
        serializer(value, context(topic, added, is_key=case.is_key))
        for value, added in zip(values, headers, strict=True)
    ]
    return written, headers


def read_with(
    deserializer: Any,
    written: list[bytes],
    headers: list[list[Any]],
    topic: str = TOPIC,
    *,
    is_key: bool = False,
) -> list[Any]:
    """What a deserialiser makes of such bytes."""
    return [
        deserializer(each, context(topic, added, is_key=is_key))
        for each, added in zip(written, headers, strict=True)
    ]
