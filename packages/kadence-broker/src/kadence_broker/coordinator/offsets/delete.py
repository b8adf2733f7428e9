"""OffsetDelete (KIP-496): remove committed offsets, except those of topics that a live group subscribes to."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit_record import OffsetCommitKey
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard

__all__ = ["delete"]


def delete(shard: Shard, now: int, caller: Caller, request: OffsetDeleteRequest) -> None:
    """Check each partition alone, if the group as a whole may delete offsets."""
    code = _ask_group(shard, request.group_id)
    topics = [_judge(shard, request, each) for each in request.topics] if code == codes.NONE else []
    shard.answer(caller, OffsetDeleteResponse(error_code=code, topics=_reported(shard, topics)))


def _judge(
    shard: Shard, request: OffsetDeleteRequest, topic: OffsetDeleteRequestTopic
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=_delete(shard, request.group_id, topic.name, each.partition_index),
            )
            for each in topic.partitions
        ],
    )


def _reported(shard: Shard, topics: list[OffsetDeleteResponseTopic]) -> list[OffsetDeleteResponseTopic]:
    """Topics as in Kafka's response: Kafka looks for unknown partitions first, and adds the others to those.

    So a topic that is named twice comes twice only if nothing is unknown. One without partitions comes only if it
    is unknown itself.
    """
    topics = [each for each in topics if each.partitions or shard.topics.by_name(each.name) is None]
    found = {part.error_code for each in topics for part in each.partitions}
    if codes.UNKNOWN_TOPIC_OR_PARTITION not in found and all(each.partitions for each in topics):
        return topics
    merged: dict[str, OffsetDeleteResponseTopic] = {}
    for each in topics:
        if each.name in merged:
            merged[each.name].partitions += each.partitions
        else:
            merged[each.name] = each
    return list(merged.values())


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
