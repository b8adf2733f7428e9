"""AddPartitionsToTxn (24). v3 flexible. The versions that brokers send each other (4 and 5) are not offered."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> AddPartitionsToTxnResponse | None:
    code = services.transactions.coordinator_error(call, call.message.v3_and_below_transactional_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.transactions.serve(call)
    return None


def refuse(call: Call, code: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in call.message.v3_and_below_topics
        ]
    )


HANDLER = Handler(AddPartitionsToTxnRequest, handle, refuse)
