"""DeleteTopics (20). v4 flexible  v5 messages  v6 by topic id. Offsets committed in the topic go with it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kadence.wire import ZERO_UUID
from kadence_broker.cluster import Topic
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]
_STEP_US: Final = 50
_PARTITION_US: Final = 50


def handle(services: Services, call: Call) -> Steps:
    asked = _asked(call)
    counts = Counter((each.name, each.topic_id) for each in asked)
    ids = {each.topic_id for each in asked if each.name is None}
    names = {each.name for each in asked}
    results: list[DeletableTopicResult] = []
    for key, each in {(each.name, each.topic_id): each for each in asked}.items():
        by_id = each.name is None
        topic = _find(services, each)
        if counts[key] > 1:  # answered once, as in Kafka
            results.append(_result(each, codes.INVALID_REQUEST, "The topic is named more than once."))
        elif by_id is (each.topic_id == ZERO_UUID):
            results.append(_result(each, codes.INVALID_REQUEST, "Say the topic's name, or its id."))
        elif topic is None:
            code = codes.UNKNOWN_TOPIC_ID if by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
            results.append(_result(each, code, "This topic does not exist."))
        elif not by_id and topic.topic_id in ids:
            twice = DeleteTopicState(topic.name, topic.topic_id)
            results.append(_result(twice, codes.INVALID_REQUEST, "The topic is named, and its id is given."))
        elif not by_id or topic.name not in names:
            results.append(_delete(services, topic))
        yield _STEP_US + (len(topic.partitions) * _PARTITION_US if topic is not None else 0)
    services.reply_durably(call, DeleteTopicsResponse(responses=results))
    return None


def _asked(call: Call) -> list[DeleteTopicState]:
    request: DeleteTopicsRequest = call.message
    if call.version >= 6:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _find(services: Services, asked: DeleteTopicState) -> Topic | None:
    if asked.name is None:
        return services.cluster.topic_by_id(asked.topic_id)
    return services.cluster.topics.get(asked.name)


def _delete(services: Services, topic: Topic) -> DeletableTopicResult:
    state = DeleteTopicState(topic.name, topic.topic_id)
    try:
        services.cluster.delete_topic(topic)
    except OSError as error:
        return _result(state, codes.KAFKA_STORAGE_ERROR, f"The disk takes no more: {error}")
    services.coordination.topic_deleted(topic.name)
    services.transactions.topic_deleted(topic.name)
    services.shares.topic_deleted(topic.name, topic.topic_id)
    return _result(state, codes.NONE, None)


def _result(asked: DeleteTopicState, code: int, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message
    )


def refuse(call: Call, code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(each, code, None) for each in _asked(call)])


HANDLER = Handler(DeleteTopicsRequest, handle, refuse, changes=True)
