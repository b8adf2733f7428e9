"""OffsetForLeaderEpoch (23): where an epoch ended, for truncation detection (KIP-320). v3 replica id  v4 flexible."""

from __future__ import annotations

from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kadence_broker.fetching import check_leader
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]
_STEP_US: Final = 5


def handle(services: Services, call: Call) -> Steps:
    topics: list[Any] = []
    for topic in call.message.topics:
        partitions: list[EpochEndOffset] = []
        for each in topic.partitions:
            partitions.append(_look_up(services, call, topic.topic, each))
            yield _STEP_US
        topics.append(call.element(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)))
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(services: Services, call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = services.cluster.partition(topic, asked.partition)
    code = check_leader(partition, call.node_id, asked.current_leader_epoch)
    answer = EpochEndOffset(error_code=code, partition=asked.partition, leader_epoch=-1, end_offset=-1)
    if partition is None or code != codes.NONE:
        return answer
    answer.leader_epoch, answer.end_offset = partition.epoch_end(asked.leader_epoch)
    return answer


def refuse(call: Call, code: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=code, partition=each.partition) for each in topic.partitions
                ],
            )
            for topic in call.message.topics
        ]
    )


HANDLER = Handler(OffsetForLeaderEpochRequest, handle, refuse)
