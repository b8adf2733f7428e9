"""OffsetCommit (8). v6 leader epoch  v7 instance id  v8 flexible  v9 KIP-848's errors  v10 topic ids.

The coordinator decides which topics exist (`kadence_broker.coordinator.offsets.commit`).
"""

from __future__ import annotations

from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence_broker.handlers.by_coordinator import of_group
from kadence_broker.service import Call

__all__ = ["HANDLER"]


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


HANDLER = of_group(OffsetCommitRequest, refuse)
