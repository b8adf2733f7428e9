"""DeleteRecords (21): the records below an offset go. v2 flexible."""

from __future__ import annotations

from typing import Final

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kadence_broker.fetching import check_leader
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]

_HIGH_WATERMARK = -1
_STEP_US: Final = 100


def handle(services: Services, call: Call) -> Steps:
    # As in Kafka: the last entry of a repeated partition counts, and topics without partitions are left out.
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in call.message.topics:
        for each in topic.partitions:
            wanted.setdefault(topic.name, {})[each.partition_index] = each
    topics: list[DeleteRecordsTopicResult] = []
    for name, asked in wanted.items():
        partitions: list[DeleteRecordsPartitionResult] = []
        for each in asked.values():
            partitions.append(_delete(services, call, name, each))
            yield _STEP_US
        topics.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(
    services: Services, call: Call, name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    partition = services.cluster.partition(name, asked.partition_index)
    code = check_leader(partition, call.node_id, -1)
    if partition is None or code != codes.NONE:
        return _result(asked, code)
    if partition.topic.is_internal:
        return _result(asked, codes.INVALID_TOPIC_EXCEPTION)
    if partition.topic.log_config.is_retained:
        return _result(asked, codes.POLICY_VIOLATION)
    offset = partition.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= partition.high_watermark:
        return _result(asked, codes.OFFSET_OUT_OF_RANGE)
    partition.delete_before(offset)
    return _result(asked, codes.NONE, partition.start_offset)


def _result(
    asked: DeleteRecordsPartition, code: int, low_watermark: int = -1
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
    )


def refuse(call: Call, code: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_result(each, code) for each in topic.partitions]
            )
            for topic in call.message.topics
        ]
    )


HANDLER = Handler(DeleteRecordsRequest, handle, refuse, changes=True)
