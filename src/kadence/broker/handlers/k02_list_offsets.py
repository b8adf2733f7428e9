"""ListOffsets (2).

v1 one offset per partition  v2 isolation level  v4 leader epochs  v6 flexible
v7 the record with the largest timestamp (-3)  v8 local start (-4)  v9, v11 tiered offsets (-5, -6)
v10 timeout
"""

from __future__ import annotations

from kadence.broker.cluster import Partition
from kadence.broker.fetching import check_leader
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kadence.records import FetchedRecords, Record

__all__ = ["HANDLER"]

_FIRST_EPOCH_VERSION = 4


def handle(services: Services, call: Call) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_look_up(services, call, topic.name, each) for each in topic.partitions],
            )
            for topic in call.message.topics
        ]
    )


def _look_up(
    services: Services, call: Call, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    partition = services.cluster.partition(topic, asked.partition_index)
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    answer.error_code = check_leader(partition, call.node_id, asked.current_leader_epoch)
    if partition is None or answer.error_code != codes.NONE:
        return answer
    log = partition.log
    answer.leader_epoch = partition.leader_epoch
    match asked.timestamp:
        case -1:  # latest
            answer.offset = log.end_offset
        case -2 | -4:  # earliest, earliest local
            answer.offset = log.start_offset
        case -5 | -6:  # latest tiered, earliest pending upload: nothing is tiered
            answer.leader_epoch = -1
        case -3:  # the largest timestamp
            found = _record_of_max_timestamp(partition)
            answer.leader_epoch = _fill(answer, partition, found)
        case timestamp if timestamp >= 0:
            found = _record_at(partition, timestamp)
            answer.leader_epoch = _fill(answer, partition, found)
        case _:
            answer.error_code = codes.UNSUPPORTED_VERSION
    if call.version < _FIRST_EPOCH_VERSION:
        answer.leader_epoch = -1
    return answer


def _fill(answer: ListOffsetsPartitionResponse, partition: Partition, found: Record | None) -> int:
    """Put the record found, if any, into the answer; returns its leader epoch."""
    if found is None:
        return -1
    answer.offset = found.offset
    answer.timestamp = found.timestamp
    return partition.log.epoch_of(found.offset)


def _records(partition: Partition, batch: memoryview) -> list[Record]:
    topic, index = partition.topic.name, partition.index
    records = FetchedRecords(batch, topic, index, partition.log.start_offset)
    try:
        return records.take()
    finally:
        records.close()


def _record_at(partition: Partition, timestamp: int) -> Record | None:
    """The first record at or after ``timestamp``: its batch is known from the headers, then its records are read."""
    batch = partition.log.batch_for_timestamp(timestamp)
    if batch is None:
        return None
    return next((each for each in _records(partition, batch) if each.timestamp >= timestamp), None)


def _record_of_max_timestamp(partition: Partition) -> Record | None:
    batch = partition.log.batch_of_max_timestamp()
    if batch is None:
        return None
    return max(_records(partition, batch), key=lambda each: each.timestamp, default=None)


def refuse(call: Call, code: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in call.message.topics
        ]
    )


HANDLER = Handler(ListOffsetsRequest, handle, refuse)
