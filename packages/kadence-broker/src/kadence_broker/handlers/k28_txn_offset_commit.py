"""TxnOffsetCommit (28). v3 flexible, the group's member (KIP-447)  v5 adds the group to the transaction (KIP-890).

The group coordinator decides which offsets are kept (`kadence_broker.coordinator.offsets.transactional`), the
transaction coordinator whether the producer may commit any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kadence.protocol import error_codes as codes
from kadence.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]

_FIRST_ABORTABLE_VERSION = 4
_FIRST_ADDING_VERSION = 5


def handle(services: Services, call: Call) -> TxnOffsetCommitResponse | None:
    request: TxnOffsetCommitRequest = call.message
    code = services.coordination.coordinator_error(call, request.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    if not request.group_id:
        code = codes.INVALID_GROUP_ID
    elif any(_exists(services, topic.name, each.partition_index) for topic, each in _partitions(request)):
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
    return _answer(
        request,
        lambda topic, index: code if _exists(services, topic, index) else codes.UNKNOWN_TOPIC_OR_PARTITION,
    )


def _partitions(
    request: TxnOffsetCommitRequest,
) -> Iterator[tuple[TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition]]:
    for topic in request.topics:
        for each in topic.partitions:
            yield topic, each


def _exists(services: Services, topic: str, index: int) -> bool:
    return services.cluster.partition(topic, index) is not None


def refuse(call: Call, code: int) -> TxnOffsetCommitResponse:
    return _answer(call.message, lambda _topic, _index: code)


def _answer(request: TxnOffsetCommitRequest, code_of: Callable[[str, int], int]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code_of(topic.name, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions  # as in Kafka: topics without partitions are left out
        ]
    )


HANDLER = Handler(TxnOffsetCommitRequest, handle, refuse)
