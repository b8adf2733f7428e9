"""OffsetCommit (8). v6 leader epoch  v7 instance id  v8 flexible  v9 KIP-848's errors  v10 topic ids.

Topics that do not exist are refused here, one partition at a time; the rest goes to the coordinator,
which knows topics by name only.
"""

from __future__ import annotations

from kadence.broker.groups import coordinator_error
from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

__all__ = ["HANDLER"]

_FIRST_TOPIC_ID_VERSION = 10


def handle(services: Services, call: Call) -> OffsetCommitResponse | None:
    request: OffsetCommitRequest = call.message
    code = coordinator_error(services, call, request.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    refused: dict[int, list[OffsetCommitResponsePartition]] = {}
    for position, asked in enumerate(request.topics):
        refused[position] = _take_out_unknown(services, call, asked)

    def amend(response: OffsetCommitResponse) -> None:
        for position, topic in enumerate(response.topics):
            topic.partitions.extend(refused[position])

    services.coordination.serve(call, amend)
    return None


def _take_out_unknown(
    services: Services, call: Call, asked: OffsetCommitRequestTopic
) -> list[OffsetCommitResponsePartition]:
    """Leave only partitions that exist in ``asked``, and give it its name; the results of the others."""
    cluster, by_id = services.cluster, call.version >= _FIRST_TOPIC_ID_VERSION
    topic = cluster.topic_by_id(asked.topic_id) if by_id else cluster.topics.get(asked.name)
    code = codes.UNKNOWN_TOPIC_ID if topic is None and by_id else codes.UNKNOWN_TOPIC_OR_PARTITION
    kept: list[OffsetCommitRequestPartition] = []
    refused: list[OffsetCommitResponsePartition] = []
    for each in asked.partitions:
        if topic is not None and topic.partition(each.partition_index) is not None:
            kept.append(each)
        else:
            refused.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            )
    asked.partitions = kept
    if topic is not None:
        asked.name = topic.name
    return refused


def refuse(call: Call, code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in call.message.topics
        ]
    )


HANDLER = Handler(OffsetCommitRequest, handle, refuse)
