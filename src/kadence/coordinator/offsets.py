"""OffsetCommit, OffsetFetch, OffsetDelete and expiry.

Topics are names here. The shell translates topic ids (OffsetCommit and OffsetFetch v10) and refuses
topics that do not exist before it asks.
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.coordinator.effects import Caller
from kadence.coordinator.group import ClassicGroup, State
from kadence.coordinator.joining import validate_member
from kadence.coordinator.offset_store import Committed
from kadence.coordinator.shard import Shard
from kadence.coordinator.timers import TimerKey
from kadence.protocol import error_codes as codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

__all__ = ["commit", "delete", "on_expiry_timer"]


def commit(shard: Shard, now: int, caller: Caller, request: OffsetCommitRequest) -> None:
    """Store the offsets of a member, or of whoever assigns partitions by hand (generation < 0)."""
    code = _may_commit(shard, now, caller, request)
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            partition_code = code
            if code == codes.NONE and len(metadata) > shard.config.offset_metadata_max_bytes:
                partition_code = codes.OFFSET_METADATA_TOO_LARGE
            if partition_code == codes.NONE:
                retention = request.retention_time_ms
                committed = Committed(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=metadata,
                    committed_at=now,
                    expires_at=add_ms(now, retention) if retention >= 0 else None,
                )
                shard.offsets.put(request.group_id, topic.name, each.partition_index, committed)
            partitions.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=partition_code)
            )
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    shard.answer(caller, OffsetCommitResponse(topics=topics))


def _may_commit(shard: Shard, now: int, caller: Caller, request: OffsetCommitRequest) -> int:
    generation = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation >= 0:
            return codes.GROUP_ID_NOT_FOUND if caller.version >= 9 else codes.ILLEGAL_GENERATION
        shard.groups[request.group_id] = ClassicGroup(request.group_id, empty_since=now)
        return codes.NONE
    if generation < 0 and group.state is State.EMPTY:
        # Offsets kept by someone who does not use the group's membership.
        return codes.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return codes.UNKNOWN_MEMBER_ID
    code = validate_member(group, request.member_id, request.group_instance_id)
    if code != codes.NONE:
        return code
    if generation != group.generation_id:
        return codes.ILLEGAL_GENERATION
    if group.state is State.COMPLETING_REBALANCE:
        # The new generation's owners are not known yet, so nobody owns what is committed here.
        return codes.REBALANCE_IN_PROGRESS
    shard.rearm_session(now, group, group.members[request.member_id])
    return codes.NONE


def delete(shard: Shard, now: int, caller: Caller, request: OffsetDeleteRequest) -> None:
    """Remove committed offsets, but none of a topic that a live group subscribes to."""
    group = shard.groups.get(request.group_id)
    code = codes.NONE
    subscribed: set[str] = set()
    if not request.group_id:
        code = codes.INVALID_GROUP_ID
    elif group is None:
        code = codes.GROUP_ID_NOT_FOUND
    elif group.state is not State.EMPTY:
        if group.is_consumer_group:
            known = group.subscribed_topics()
            subscribed = {topic.name for topic in request.topics} if known is None else known
        else:
            code = codes.NON_EMPTY_GROUP
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics if code == codes.NONE else []:
        in_use = topic.name in subscribed
        for each in topic.partitions:
            if not in_use:
                shard.offsets.remove(request.group_id, topic.name, each.partition_index)
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.GROUP_SUBSCRIBED_TO_TOPIC if in_use else codes.NONE,
                    )
                    for each in topic.partitions
                ],
            )
        )
    shard.answer(caller, OffsetDeleteResponse(error_code=code, topics=topics))


def on_expiry_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Look for what may go, and look again later while there are groups."""
    expire(shard, now)
    if shard.groups:
        shard.timers.schedule(key, add_ms(now, shard.config.offsets_retention_check_interval_ms))


def expire(shard: Shard, now: int) -> None:
    """Remove what has outlived its retention, and groups that have nothing left.

    An empty group keeps its offsets for the retention after it became empty; a live one loses only
    topics it no longer subscribes to; offsets without members count from their commit (KIP-211).
    """
    retention = shard.config.offsets_retention_ms
    for group in list(shard.groups.values()):
        subscribed: set[str] = set()
        if group.members:
            known = group.subscribed_topics() if group.state is State.STABLE else None
            if known is None:
                continue
            subscribed = known
        for (topic, partition), committed in shard.offsets.of_group(group.group_id).items():
            since = committed.committed_at
            if not group.members and group.protocol_type is not None and group.empty_since is not None:
                since = max(since, group.empty_since)
            expires_at = committed.expires_at
            if expires_at is None:
                expires_at = add_ms(since, retention)
            if now >= expires_at and topic not in subscribed:
                shard.offsets.remove(group.group_id, topic, partition)
        if group.state is State.EMPTY and not group.pending_joins and not shard.offsets.has(group.group_id):
            shard.remove_group(group)
