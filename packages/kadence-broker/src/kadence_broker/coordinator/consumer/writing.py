"""Changes a group by writing records, each of which takes effect at once."""

from __future__ import annotations

from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kadence.protocol.consumer_group_member_metadata_record import ConsumerGroupMemberMetadataKey
from kadence.protocol.consumer_group_regular_expression_record import ConsumerGroupRegularExpressionKey
from kadence.protocol.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.consumer.patterns import Resolved
from kadence_broker.coordinator.consumer.recording import (
    assignment_record,
    epoch_record,
    member_record,
    pattern_record,
    target_epoch_record,
    target_record,
)
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.shard import Shard

__all__ = [
    "remove_group",
    "remove_member",
    "remove_pattern",
    "write_assignment",
    "write_epoch",
    "write_member",
    "write_pattern",
    "write_target",
    "write_target_epoch",
]


def write_epoch(shard: Shard, group_id: str, epoch: int, metadata_hash: int) -> None:
    """The group's epoch, and the hash of the topics that it was made for."""
    shard.write(*epoch_record(group_id, epoch, metadata_hash))


def write_member(shard: Shard, group_id: str, member: Member) -> None:
    """The fields that the member reported about itself."""
    shard.write(*member_record(group_id, member))


def write_assignment(shard: Shard, group_id: str, member: Member) -> None:
    """The member's progress towards its target."""
    shard.write(*assignment_record(group_id, member))


def write_target(shard: Shard, group_id: str, member_id: str, partitions: Partitions) -> None:
    """The target of one member."""
    shard.write(*target_record(group_id, member_id, partitions))


def write_target_epoch(shard: Shard, group_id: str, epoch: int, timestamp: int) -> None:
    """The epoch that the target was made for, and the time."""
    shard.write(*target_epoch_record(group_id, epoch, timestamp))


def write_pattern(shard: Shard, group_id: str, pattern: str, resolved: Resolved) -> None:
    """The topics that an expression matched."""
    shard.write(*pattern_record(group_id, pattern, resolved))


def remove_member(shard: Shard, group_id: str, member_id: str) -> None:
    """Remove a member, in the order of Kafka's tombstones."""
    shard.write(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
    shard.write(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
    shard.write(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def remove_pattern(shard: Shard, group_id: str, pattern: str) -> None:
    """Remove an expression without a subscriber."""
    shard.write(ConsumerGroupRegularExpressionKey(group_id, pattern), None)


def remove_group(shard: Shard, group: ConsumerGroup) -> None:
    """Remove the group and all its records; its offsets stay."""
    for key in list(group.tombstones()):
        shard.write(key, None)
