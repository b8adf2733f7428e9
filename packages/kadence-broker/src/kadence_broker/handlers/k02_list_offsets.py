"""ListOffsets (2).

v1 one offset per partition  v2 isolation level  v4 leader epochs  v6 flexible
v7 the record with the largest timestamp (-3)  v8 local start (-4)  v9, v11 tiered offsets (-5, -6)
v10 timeout
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from kadence.errors import LocalError
from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kadence_broker.fetching import check_leader
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.storage import Isolation, TimedOffset

__all__ = ["HANDLER"]

_log = logger("kadence.broker")

_FIRST_EPOCH_VERSION = 4
_READ_COMMITTED = 1
_SPECIAL_FROM = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The version from which a timestamp that is no time may be asked for."""
_NEVER = 2**15
_LARGEST = -3
_STEP_US: Final = 10
_SEARCH_US: Final = 1_000
"""A look for a date: it may read a segment of the disk."""


def handle(services: Services, call: Call) -> Steps:
    counts = Counter(
        (topic.name, each.partition_index) for topic in call.message.topics for each in topic.partitions
    )
    found: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in call.message.topics:
        for each in topic.partitions:
            if counts[topic.name, each.partition_index] > 1:  # answered once, as in Kafka
                answer = ListOffsetsPartitionResponse(each.partition_index, codes.INVALID_REQUEST)
            else:
                answer = _look_up(services, call, topic.name, each)
            found.setdefault(topic.name, {})[each.partition_index] = answer
            yield _SEARCH_US if each.timestamp == _LARGEST or each.timestamp >= 0 else _STEP_US
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(partitions.values()))
            for name, partitions in found.items()
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
    isolation = (
        Isolation.COMMITTED if call.message.isolation_level == _READ_COMMITTED else Isolation.UNCOMMITTED
    )
    if asked.timestamp < 0 and call.version < _SPECIAL_FROM.get(asked.timestamp, _NEVER):
        answer.error_code = codes.UNSUPPORTED_VERSION
        return answer
    limit = partition.limit(isolation)
    answer.leader_epoch = partition.leader_epoch
    match asked.timestamp:
        case -1:  # latest
            answer.offset = limit
        case -2 | -4:  # earliest, earliest local
            answer.offset = partition.start_offset
        case -5 | -6:  # latest tiered, earliest pending upload: nothing is tiered
            answer.leader_epoch = -1
        case -3:  # the largest timestamp
            _find(answer, partition.offset_of_newest, limit)
        case timestamp:
            _find(answer, partial(partition.offset_since, timestamp), limit)
    if call.version < _FIRST_EPOCH_VERSION:
        answer.leader_epoch = -1
    return answer


def _find(answer: ListOffsetsPartitionResponse, look: Callable[[], TimedOffset | None], limit: int) -> None:
    """Look for a record by its date, in whatever the disk kept of the log."""
    try:
        _fill(answer, look(), limit)
    except LocalError as error:
        _log.error("dates cannot be looked up: %s", error)
        answer.error_code = codes.CORRUPT_MESSAGE


def _fill(answer: ListOffsetsPartitionResponse, found: TimedOffset | None, limit: int) -> None:
    """Put the record found into the answer, unless the reader may not see it."""
    if found is None or found.offset >= limit:
        answer.leader_epoch = -1
        return
    answer.offset, answer.timestamp, answer.leader_epoch = found


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
