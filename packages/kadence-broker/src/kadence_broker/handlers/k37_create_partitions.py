"""CreatePartitions (37): a topic grows, it never shrinks. v2 flexible  v3 quota errors."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kadence_broker.cluster import MOST_PARTITIONS
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]
_STEP_US: Final = 50
_PARTITION_US: Final = 60


def handle(services: Services, call: Call) -> Steps:
    request: CreatePartitionsRequest = call.message
    counts = Counter(each.name for each in request.topics)
    if sum(_added(services, each) for each in request.topics if counts[each.name] == 1) > MOST_PARTITIONS:
        message = f"One request makes {MOST_PARTITIONS} partitions at most."
        return CreatePartitionsResponse(
            results=[_result(each, codes.POLICY_VIOLATION, message) for each in request.topics]
        )
    results: list[CreatePartitionsTopicResult] = []
    for name, each in {each.name: each for each in request.topics}.items():
        added = _added(services, each)
        if counts[name] > 1:  # answered once, as in Kafka
            results.append(_result(each, codes.INVALID_REQUEST, "Duplicate topic name."))
        else:
            results.append(_grow(services, each, validate_only=request.validate_only))
        yield _STEP_US + min(added, MOST_PARTITIONS) * _PARTITION_US
    services.reply_durably(call, CreatePartitionsResponse(results=results))
    return None


def _added(services: Services, asked: CreatePartitionsTopic) -> int:
    """The number of partitions that a topic would get."""
    topic = services.cluster.topics.get(asked.name)
    return 0 if topic is None else max(asked.count - len(topic.partitions), 0)


def _grow(
    services: Services, asked: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    topic = services.cluster.topics.get(asked.name)
    if topic is None:
        return _result(asked, codes.UNKNOWN_TOPIC_OR_PARTITION, None)
    have = len(topic.partitions)
    if asked.count <= have:
        return _result(asked, codes.INVALID_PARTITIONS, f"The topic has {have} partitions; ask for more.")
    if asked.assignments is not None and len(asked.assignments) != asked.count - have:
        return _result(
            asked,
            codes.INVALID_REPLICA_ASSIGNMENT,
            f"Assign the {asked.count - have} new partitions, or none.",
        )
    replicas = [each.broker_ids for each in asked.assignments or ()]
    if any(
        not each or len(set(each)) < len(each) or not services.cluster.nodes.keys() >= set(each)
        for each in replicas
    ):
        return _result(
            asked, codes.INVALID_REPLICA_ASSIGNMENT, "Assign each partition to brokers that exist, each once."
        )
    if not validate_only:
        try:
            services.cluster.add_partitions(
                topic, asked.count, [each.broker_ids[0] for each in asked.assignments or ()]
            )
        except OSError as error:
            return _result(asked, codes.KAFKA_STORAGE_ERROR, f"The disk takes no more: {error}")
    return _result(asked, codes.NONE, None)


def _result(asked: CreatePartitionsTopic, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=message)


def refuse(call: Call, code: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_result(each, code, None) for each in call.message.topics])


HANDLER = Handler(CreatePartitionsRequest, handle, refuse, changes=True)
