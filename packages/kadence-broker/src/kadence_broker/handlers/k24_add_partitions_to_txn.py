"""AddPartitionsToTxn (24). v3 flexible. The versions that brokers send each other (4 and 5) are not offered."""

from __future__ import annotations

from collections.abc import Callable

from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kadence_broker.cluster import INTERNAL_TOPICS
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> AddPartitionsToTxnResponse | None:
    code = services.transactions.coordinator_error(call, call.message.v3_and_below_transactional_id)
    if code != codes.NONE:
        return refuse(call, code)
    if any(topic.name in INTERNAL_TOPICS for topic in call.message.v3_and_below_topics):
        return _answer(call, lambda topic, index: _code_beside_internal(services, topic, index))
    services.transactions.serve(call)
    return None


def _code_beside_internal(services: Services, topic: str, index: int) -> int:
    """Transactions write to no internal topic; beside one, nothing else was attempted."""
    if topic in INTERNAL_TOPICS:
        return codes.TOPIC_AUTHORIZATION_FAILED
    exists = services.cluster.partition(topic, index) is not None
    return codes.OPERATION_NOT_ATTEMPTED if exists else codes.UNKNOWN_TOPIC_OR_PARTITION


def refuse(call: Call, code: int) -> AddPartitionsToTxnResponse:
    return _answer(call, lambda _topic, _index: code)


def _answer(call: Call, code_of: Callable[[str, int], int]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code_of(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in call.message.v3_and_below_topics
        ]
    )


HANDLER = Handler(AddPartitionsToTxnRequest, handle, refuse)
