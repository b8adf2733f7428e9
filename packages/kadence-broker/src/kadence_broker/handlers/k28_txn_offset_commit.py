"""TxnOffsetCommit (28). v3 flexible, the group's member (KIP-447)  v5 adds the group to the transaction (KIP-890).

v6 topic ids (KIP-1319)

The group coordinator decides which offsets are kept (`kadence_broker.coordinator.offsets.transactional`), the
transaction coordinator whether the producer may commit any.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.protocol import error_codes as codes
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kadence_broker.cluster import Topic
from kadence_broker.coordinator.offsets.transactional import FIRST_TOPIC_ID_VERSION
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]

_FIRST_ABORTABLE_VERSION = 4
_FIRST_ADDING_VERSION = 5


def handle(services: Services, call: Call) -> TxnOffsetCommitResponse | None:
    request: TxnOffsetCommitRequest = call.message
    code = services.coordination.coordinator_error(call, request.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    by_id = call.version >= FIRST_TOPIC_ID_VERSION

    def find(topic: TxnOffsetCommitRequestTopic) -> Topic | None:
        cluster = services.cluster
        return cluster.topic_by_id(topic.topic_id) if by_id else cluster.topics.get(topic.name)

    if not request.group_id:
        code = codes.INVALID_GROUP_ID
    elif any(
        _exists(find(topic), each.partition_index) for topic in request.topics for each in topic.partitions
    ):
        code = services.transactions.admit_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            adds=call.version >= _FIRST_ADDING_VERSION,
            knows_abortable=call.version >= _FIRST_ABORTABLE_VERSION,
        )
    if code == codes.NONE:
        services.coordination.serve(call)
        return None

    def code_of(topic: TxnOffsetCommitRequestTopic, index: int) -> int:
        known = find(topic)
        if known is None and by_id:
            return codes.UNKNOWN_TOPIC_ID
        return code if _exists(known, index) else codes.UNKNOWN_TOPIC_OR_PARTITION

    return _answer(request, code_of)


def _exists(topic: Topic | None, index: int) -> bool:
    return topic is not None and topic.partition(index) is not None


def refuse(call: Call, code: int) -> TxnOffsetCommitResponse:
    return _answer(call.message, lambda _topic, _index: code)


def _answer(
    request: TxnOffsetCommitRequest, code_of: Callable[[TxnOffsetCommitRequestTopic, int], int]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code_of(topic, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions  # as in Kafka: topics without partitions are left out
        ]
    )


HANDLER = Handler(TxnOffsetCommitRequest, handle, refuse)
