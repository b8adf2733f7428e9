"""Applies the records of KIP-848 groups to a shard: the only code that changes a `ConsumerGroup` (E0).

A tombstone of something that does not exist has no effect, so a log may be cut anywhere between two records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kadence.protocol.consumer_group_current_member_assignment_record import TopicPartitions
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import find_group
from kadence_broker.coordinator.consumer.member import ClassicMetadata, Member, MemberState
from kadence_broker.coordinator.consumer.patterns import Resolved
from kadence_broker.coordinator.partitions import of_topics
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.shard import Shard

__all__ = [
    "replay_assignment",
    "replay_epoch",
    "replay_member",
    "replay_partition_metadata",
    "replay_pattern",
    "replay_target",
    "replay_target_epoch",
]


class _OfGroup(Protocol):
    group_id: str


def replay_epoch(shard: Shard, record: Record) -> None:
    """ConsumerGroupMetadata: the group's epoch; its tombstone ends the group."""
    if record.value is not None:
        group = _group(shard, record.key)
        group.epoch = record.value.epoch
        group.metadata_hash = record.value.metadata_hash
    elif find_group(shard, record.key.group_id) is not None:
        del shard.groups[record.key.group_id]


def replay_partition_metadata(shard: Shard, record: Record) -> None:
    """ConsumerGroupPartitionMetadata: Kafka 4.0 and older wrote it; the hash in the group's epoch replaced it."""


def replay_member(shard: Shard, record: Record) -> None:
    """ConsumerGroupMemberMetadata: the fields that a member reported; its tombstone removes the member."""
    member_id, value = record.key.member_id, record.value
    if value is None:
        known = find_group(shard, record.key.group_id)
        if known is not None:
            known.remove(member_id)
        return
    group = _group(shard, record.key)
    classic = value.classic_member_metadata
    member = group.members.get(member_id) or Member(member_id)
    group.put(
        member.evolved(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )
    )


def replay_target(shard: Shard, record: Record) -> None:
    """ConsumerGroupTargetAssignmentMember: the target of one member."""
    member_id, value = record.key.member_id, record.value
    if value is not None:
        _group(shard, record.key).target[member_id] = of_topics(value.topic_partitions)
    elif (known := find_group(shard, record.key.group_id)) is not None:
        known.target.pop(member_id, None)


def replay_target_epoch(shard: Shard, record: Record) -> None:
    """ConsumerGroupTargetAssignmentMetadata: the epoch that the target was made for, and the time."""
    group = find_group(shard, record.key.group_id) if record.value is None else _group(shard, record.key)
    if group is not None:
        group.target_epoch = 1 if record.value is None else record.value.assignment_epoch
        group.target_timestamp = 0 if record.value is None else record.value.assignment_timestamp


def replay_assignment(shard: Shard, record: Record) -> None:
    """ConsumerGroupCurrentMemberAssignment: a member's progress; its tombstone takes away its partitions."""
    member_id, value = record.key.member_id, record.value
    if value is None:
        known = find_group(shard, record.key.group_id)
        member = None if known is None else known.members.get(member_id)
        if known is not None and member is not None:
            known.put(
                member.evolved(
                    epoch=-1, previous_epoch=-1, state=MemberState.STABLE, assigned={}, revoking={}
                )
            )
        return
    group = _group(shard, record.key)
    member = group.members.get(member_id) or Member(member_id)
    group.put(
        member.evolved(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_with_epochs(value.assigned_partitions, value.member_epoch),
            revoking=_with_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def replay_pattern(shard: Shard, record: Record) -> None:
    """ConsumerGroupRegularExpression: the topics that an expression matched."""
    pattern, value = record.key.regular_expression, record.value
    if value is not None:
        _group(shard, record.key).resolved[pattern] = Resolved(
            frozenset(value.topics), value.version, value.timestamp
        )
    elif (known := find_group(shard, record.key.group_id)) is not None:
        known.resolved.pop(pattern, None)


def _group(shard: Shard, key: _OfGroup) -> ConsumerGroup:
    """The group of a record that is not a tombstone. A classic group of the name has had its tombstone before."""
    group = find_group(shard, key.group_id)
    if group is None:
        group = shard.groups[key.group_id] = ConsumerGroup(key.group_id)
    return group


def _with_epochs(topics: Iterable[TopicPartitions], member_epoch: int) -> Mapping[bytes, Mapping[int, int]]:
    """Records of Kafka before 4.3 have no assignment epochs: the member's own epoch is used for them."""
    return {
        topic.topic_id: dict(
            zip(
                topic.partitions,
                topic.assignment_epochs or [member_epoch] * len(topic.partitions),
                strict=True,
            )
        )
        for topic in topics
        if topic.partitions
    }
