"""DeleteTopics (20). v4 flexible  v5 messages  v6 by topic id. Offsets committed in the topic go with it."""

from __future__ import annotations

from collections import Counter

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> None:
    asked = _asked(call)
    counts = Counter((each.name, each.topic_id) for each in asked)
    results = []
    for key, each in {(each.name, each.topic_id): each for each in asked}.items():
        if counts[key] > 1:  # told once, as in Kafka
            code, message = codes.INVALID_REQUEST, "Duplicate topic name or id."
            results.append(
                DeletableTopicResult(
                    name=each.name, topic_id=each.topic_id, error_code=code, error_message=message
                )
            )
        else:
            results.append(_delete(services, each))
    services.reply_durably(call, DeleteTopicsResponse(responses=results))


def _asked(call: Call) -> list[DeleteTopicState]:
    request: DeleteTopicsRequest = call.message
    if call.version >= 6:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _delete(services: Services, asked: DeleteTopicState) -> DeletableTopicResult:
    cluster = services.cluster
    if asked.name is None:
        topic = cluster.topic_by_id(asked.topic_id)
        missing = codes.UNKNOWN_TOPIC_ID
    else:
        topic = cluster.topics.get(asked.name)
        missing = codes.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=missing)
    try:
        cluster.delete_topic(topic)
    except OSError:
        return DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=codes.KAFKA_STORAGE_ERROR
        )
    services.coordination.topic_deleted(topic.name)
    services.transactions.topic_deleted(topic.name)
    for partition in topic.partitions:
        partition.wake()
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=codes.NONE)


def refuse(call: Call, code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=code)
            for each in _asked(call)
        ]
    )


HANDLER = Handler(DeleteTopicsRequest, handle, refuse)
