"""Applies the records of share groups to a shard: the only code that changes a `ShareGroup`.

A tombstone of something that does not exist has no effect, so a log may be cut anywhere between two records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kadence.protocol.share_group_state_partition_metadata_record import TopicPartitionsInfo
from kadence_broker.coordinator.partitions import of_topics
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.lookup import find_group
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.state import TopicState

__all__ = [
    "replay_assignment",
    "replay_epoch",
    "replay_member",
    "replay_state",
    "replay_target",
    "replay_target_epoch",
]


class _OfGroup(Protocol):
    group_id: str


def _group(shard: Shard, key: _OfGroup) -> ShareGroup:
    """The group of a record that is not a tombstone. A group of another kind has had its tombstone before."""
    group = find_group(shard, key.group_id)
    if group is None:
        group = shard.groups[key.group_id] = ShareGroup(key.group_id)
    return group


def replay_epoch(shard: Shard, record: Record) -> None:
    """ShareGroupMetadata: the group's epoch; its tombstone ends the group."""
    if record.value is not None:
        group = _group(shard, record.key)
        group.epoch = record.value.epoch
        group.metadata_hash = record.value.metadata_hash
    elif find_group(shard, record.key.group_id) is not None:
        del shard.groups[record.key.group_id]


def replay_member(shard: Shard, record: Record) -> None:
    """ShareGroupMemberMetadata: the fields that a member reported; its tombstone removes the member."""
    member_id, value = record.key.member_id, record.value
    if value is not None:
        group = _group(shard, record.key)
        member = group.members.get(member_id) or ShareMember(member_id)
        group.put(
            member.evolved(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
            )
        )
    elif (known := find_group(shard, record.key.group_id)) is not None:
        known.remove(member_id)


def replay_target(shard: Shard, record: Record) -> None:
    """ShareGroupTargetAssignmentMember: the target of one member."""
    member_id, value = record.key.member_id, record.value
    if value is not None:
        _group(shard, record.key).target[member_id] = of_topics(value.topic_partitions)
    elif (known := find_group(shard, record.key.group_id)) is not None:
        known.target.pop(member_id, None)


def replay_target_epoch(shard: Shard, record: Record) -> None:
    """ShareGroupTargetAssignmentMetadata: the epoch that the target was made for, and the time."""
    group = find_group(shard, record.key.group_id) if record.value is None else _group(shard, record.key)
    if group is not None:
        group.target_epoch = 1 if record.value is None else record.value.assignment_epoch
        group.target_timestamp = 0 if record.value is None else record.value.assignment_timestamp


def replay_assignment(shard: Shard, record: Record) -> None:
    """ShareGroupCurrentMemberAssignment: a member's epoch and partitions; its tombstone takes both away."""
    member_id, value = record.key.member_id, record.value
    if value is not None:
        group = _group(shard, record.key)
        member = group.members.get(member_id) or ShareMember(member_id)
        group.put(
            member.evolved(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=of_topics(value.assigned_partitions),
            )
        )
        return
    known = find_group(shard, record.key.group_id)
    gone = None if known is None else known.members.get(member_id)
    if known is not None and gone is not None:
        known.put(gone.evolved(epoch=-1, previous_epoch=-1, assigned={}))


def replay_state(shard: Shard, record: Record) -> None:
    """ShareGroupStatePartitionMetadata: the topics that are initialised, being initialised, and being deleted."""
    value = record.value
    group = find_group(shard, record.key.group_id) if value is None else _group(shard, record.key)
    if group is None:
        return
    group.has_state = value is not None
    group.initialising = {} if value is None else _topics(value.initializing_topics)
    group.initialised = {} if value is None else _topics(value.initialized_topics)
    group.deleting = (
        {} if value is None else {each.topic_id: each.topic_name for each in value.deleting_topics}
    )


def _topics(topics: Iterable[TopicPartitionsInfo]) -> dict[bytes, TopicState]:
    return {each.topic_id: TopicState(each.topic_name, frozenset(each.partitions)) for each in topics}
