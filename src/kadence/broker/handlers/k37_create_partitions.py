"""CreatePartitions (37): a topic grows, it never shrinks. v2 flexible  v3 quota errors."""

from __future__ import annotations

from kadence.broker.cluster import MOST_PARTITIONS
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> CreatePartitionsResponse:
    request: CreatePartitionsRequest = call.message
    return CreatePartitionsResponse(
        results=[_grow(services, each, validate_only=request.validate_only) for each in request.topics]
    )


def _grow(
    services: Services, asked: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    topic = services.cluster.topics.get(asked.name)
    if topic is None:
        return _result(asked, codes.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
    have = len(topic.partitions)
    if asked.count <= have:
        return _result(asked, codes.INVALID_PARTITIONS, f"The topic has {have} partitions; ask for more.")
    if asked.count - have > MOST_PARTITIONS:
        return _result(
            asked, codes.POLICY_VIOLATION, f"One request makes {MOST_PARTITIONS} partitions at most."
        )
    if asked.assignments is not None and len(asked.assignments) != asked.count - have:
        return _result(
            asked,
            codes.INVALID_REPLICA_ASSIGNMENT,
            f"Assign the {asked.count - have} new partitions, or none.",
        )
    if not validate_only:
        try:
            services.cluster.add_partitions(topic, asked.count)
        except OSError as error:
            return _result(asked, codes.KAFKA_STORAGE_ERROR, f"The disk takes no more: {error}")
    return _result(asked, codes.NONE, None)


def _result(asked: CreatePartitionsTopic, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message)


def refuse(call: Call, code: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_result(each, code, None) for each in call.message.topics])


HANDLER = Handler(CreatePartitionsRequest, handle, refuse)
