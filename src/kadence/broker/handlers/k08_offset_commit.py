"""OffsetCommit (8). v6 leader epoch  v7 instance id  v8 flexible  v9 KIP-848's errors  v10 topic ids.

Topics that do not exist are refused here, one partition at a time; the rest goes to the coordinator,
which knows topics by name only.
"""

from __future__ import annotations

from kadence.broker.cluster import Topic
from kadence.broker.groups import coordinator_error
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> OffsetCommitResponse | None:
    request: OffsetCommitRequest = call.message
    code = coordinator_error(services, call, request.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for asked in request.topics:
        by_id = call.version >= 10
        topic = (
            services.cluster.topic_by_id(asked.topic_id) if by_id else services.cluster.topics.get(asked.name)
        )
        missing = codes.UNKNOWN_TOPIC_ID if topic is None and by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
        known, unknown = _split(topic, asked)
        if unknown:
            refused.append(_results(asked, unknown, missing))
        if known is not None and topic is not None:
            known.name = topic.name
            accepted.append(known)
    request.topics = accepted
    (answer,) = services.coordinator.handle(call.now, call.caller(), request)
    answer.response.topics.extend(refused)
    services.deliver([answer])
    return None


def _split(
    topic: Topic | None, asked: OffsetCommitRequestTopic
) -> tuple[OffsetCommitRequestTopic | None, list[int]]:
    """The partitions that exist, as a request of their own, and the numbers of those that do not."""
    here = [each for each in asked.partitions if topic and topic.partition(each.partition_index) is not None]
    gone = [each.partition_index for each in asked.partitions if each not in here]
    if not here and asked.partitions:
        return None, gone
    return OffsetCommitRequestTopic(name=asked.name, topic_id=asked.topic_id, partitions=here), gone


def _results(asked: OffsetCommitRequestTopic, indexes: list[int], code: int) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=[OffsetCommitResponsePartition(partition_index=each, error_code=code) for each in indexes],
    )


def refuse(call: Call, code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _results(topic, [each.partition_index for each in topic.partitions], code)
            for topic in call.message.topics
        ]
    )


HANDLER = Handler(OffsetCommitRequest, handle, refuse)
