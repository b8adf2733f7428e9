"""OffsetDelete (KIP-496): remove committed offsets, but none of a topic that a live group subscribes to."""

from __future__ import annotations

from kadence.coordinator.effects import Caller
from kadence.coordinator.shard import Shard
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit_record import OffsetCommitKey
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["delete"]


def delete(shard: Shard, now: int, caller: Caller, request: OffsetDeleteRequest) -> None:
    """Judge each partition alone, if there is nothing against it for the group as a whole."""
    code = _ask_group(shard, request.group_id)
    topics = (
        [
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=_delete(shard, request.group_id, topic.name, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions  # as Kafka: topics without partitions are not told
        ]
        if code == codes.NONE
        else []
    )
    shard.answer(caller, OffsetDeleteResponse(error_code=code, topics=topics))


def _ask_group(shard: Shard, group_id: str) -> int:
    if not group_id:
        return codes.INVALID_GROUP_ID
    group = shard.groups.get(group_id)
    return codes.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_code()


def _exists(shard: Shard, topic: str, partition: int) -> bool:
    image = shard.topics.by_name(topic)
    return image is not None and 0 <= partition < image.partitions


def _delete(shard: Shard, group_id: str, topic: str, partition: int) -> int:
    if not _exists(shard, topic, partition):
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if shard.groups[group_id].is_subscribed(topic):
        return codes.GROUP_SUBSCRIBED_TO_TOPIC
    if (topic, partition) in shard.offsets.partitions(group_id):
        shard.write(OffsetCommitKey(group_id, topic, partition), None)
    return codes.NONE
