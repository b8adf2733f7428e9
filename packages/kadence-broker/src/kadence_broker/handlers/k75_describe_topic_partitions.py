"""DescribeTopicPartitions (75): topics in order of name, page by page (KIP-966).

No topic named means all. The cursor in the answer says where the next page begins.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kadence_broker.cluster import Topic, is_valid_topic_name
from kadence_broker.operations import TOPIC_OPERATIONS
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]

_PAGE = 2_000


def handle(services: Services, call: Call) -> DescribeTopicPartitionsResponse:
    request: DescribeTopicPartitionsRequest = call.message
    topics = services.cluster.topics
    asked = {each.name for each in request.topics}
    names = sorted(asked or topics)
    first = 0
    if request.cursor is not None and (
        request.cursor.partition_index < 0 or (asked and request.cursor.topic_name not in asked)
    ):
        return refuse(call, codes.INVALID_REQUEST)
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = request.cursor.partition_index
    left = min(max(request.response_partition_limit, 1), _PAGE)
    answer = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        topic = topics.get(name)
        if topic is None:
            answer.topics.append(_unknown(name))
            continue
        if left <= 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        page = _describe(topic, first, left)
        answer.topics.append(page)
        left -= len(page.partitions)
        stop = first + len(page.partitions)
        if stop < len(topic.partitions):
            answer.next_cursor = Cursor(topic_name=name, partition_index=stop)
            break
        first = 0
    return answer


def _describe(topic: Topic, first: int, count: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=codes.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=codes.NONE if each.leader_id >= 0 else codes.LEADER_NOT_AVAILABLE,
                partition_index=each.index,
                leader_id=each.leader_id,
                leader_epoch=each.leader_epoch,
                replica_nodes=[each.replica_id],
                isr_nodes=[each.replica_id],
                offline_replicas=[] if each.leader_id >= 0 else [each.replica_id],
                # The protocol allows null here, but Java's admin client fails on it.
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for each in topic.partitions[first : first + count]
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    if not is_valid_topic_name(name):
        return _failed(name, codes.INVALID_TOPIC_EXCEPTION)
    answer = _failed(name, codes.UNKNOWN_TOPIC_OR_PARTITION)
    answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def _failed(name: str, code: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def refuse(call: Call, code: int) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[_failed(each.name, code) for each in call.message.topics], next_cursor=None
    )


HANDLER = Handler(DescribeTopicPartitionsRequest, handle, refuse)
