"""WriteTxnMarkers (27): an administrator ends a transaction that hangs in a partition. v1 flexible  v2 KIP-1228.

Brokers send it to each other as well; here the coordinator writes its markers itself (`kadence_broker.transactions`).
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.protocol import error_codes as codes
from kadence.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kadence.types import TopicPartition
from kadence_broker.service import Call, Handler, Services
from kadence_broker.storage import BatchError

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> WriteTxnMarkersResponse:
    return _answer(call, lambda marker, at: _write(services, call.node_id, marker, at))


def refuse(call: Call, code: int) -> WriteTxnMarkersResponse:
    return _answer(call, lambda _marker, _at: code)


def _answer(call: Call, write: Callable[[WritableTxnMarker, TopicPartition], int]) -> WriteTxnMarkersResponse:
    """One result for each marker and partition; as Kafka, none for a marker without partitions."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=write(marker, TopicPartition(topic.name, index)),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                    if topic.partition_indexes
                ],
            )
            for marker in call.message.markers
            if any(topic.partition_indexes for topic in marker.topics)
        ]
    )


def _write(services: Services, node_id: int, marker: WritableTxnMarker, at: TopicPartition) -> int:
    partition = services.cluster.partition(*at)
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader_id != node_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return codes.UNKNOWN_SERVER_ERROR  # as in Kafka: no producer has such an id
    try:
        services.transactions.write_marker(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            committed=marker.transaction_result,
        )
    except BatchError as error:
        return error.code
    return codes.NONE


HANDLER = Handler(WriteTxnMarkersRequest, handle, refuse)
