"""The records of share groups, made from values. `replay` reads them; the two are each other's inverse."""

from __future__ import annotations

from collections.abc import Mapping

from kadence.protocol.share_group_current_member_assignment_record import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kadence.protocol.share_group_member_metadata_record import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from kadence.protocol.share_group_metadata_record import ShareGroupMetadataKey, ShareGroupMetadataValue
from kadence.protocol.share_group_state_partition_metadata_record import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from kadence.protocol.share_group_target_assignment_member_record import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kadence.protocol.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.state import TopicState

__all__ = [
    "assignment_record",
    "epoch_record",
    "member_record",
    "member_tombstones",
    "state_record",
    "target_epoch_record",
    "target_record",
]

_STABLE = 0
"""Kafka's number of the only state that a member of a share group has."""


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int
) -> tuple[ShareGroupMetadataKey, ShareGroupMetadataValue]:
    """The group's epoch, and the hash of the topics that it was made for."""
    return ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)


def member_record(
    group_id: str, member: ShareMember
) -> tuple[ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue]:
    """The fields that a member reported about itself."""
    return ShareGroupMemberMetadataKey(group_id, member.member_id), ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )


def assignment_record(
    group_id: str, member: ShareMember
) -> tuple[ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue]:
    """A member's epoch and partitions."""
    key = ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return key, ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(member.assigned.items())
        ],
    )


def target_record(
    group_id: str, member_id: str, partitions: Partitions
) -> tuple[ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue]:
    """The target of one member."""
    topics = [TopicPartition(topic, sorted(numbers)) for topic, numbers in sorted(partitions.items())]
    key = ShareGroupTargetAssignmentMemberKey(group_id, member_id)
    return key, ShareGroupTargetAssignmentMemberValue(topic_partitions=topics)


def target_epoch_record(
    group_id: str, epoch: int, timestamp: int
) -> tuple[ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue]:
    """The epoch that the target was made for, and the time."""
    key = ShareGroupTargetAssignmentMetadataKey(group_id)
    return key, ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp
    )


def state_record(
    group_id: str,
    initialising: Mapping[bytes, TopicState],
    initialised: Mapping[bytes, TopicState],
    deleting: Mapping[bytes, str],
) -> tuple[ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue]:
    """The topics that are initialised, being initialised, and being deleted."""
    return ShareGroupStatePartitionMetadataKey(group_id), ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(initialising),
        initialized_topics=_topics(initialised),
        deleting_topics=[TopicInfo(topic, name) for topic, name in sorted(deleting.items())],
    )


def _topics(states: Mapping[bytes, TopicState]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic, state.name, sorted(state.partitions))
        for topic, state in sorted(states.items())
    ]


def member_tombstones(
    group_id: str, member_id: str
) -> tuple[
    ShareGroupCurrentMemberAssignmentKey, ShareGroupTargetAssignmentMemberKey, ShareGroupMemberMetadataKey
]:
    """The keys of a member's records, in the order of Kafka's tombstones."""
    return (
        ShareGroupCurrentMemberAssignmentKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupMemberMetadataKey(group_id, member_id),
    )
