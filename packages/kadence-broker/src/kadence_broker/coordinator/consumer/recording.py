"""The records of KIP-848 groups, made from values. `replay` reads them; the two are each other's inverse."""

from __future__ import annotations

from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kadence.protocol.consumer_group_member_metadata_record import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kadence.protocol.consumer_group_metadata_record import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from kadence.protocol.consumer_group_regular_expression_record import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from kadence.protocol.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from kadence.protocol.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.consumer.patterns import Resolved
from kadence_broker.coordinator.partitions import Epochs, Partitions

__all__ = [
    "assignment_record",
    "epoch_record",
    "member_record",
    "pattern_record",
    "target_epoch_record",
    "target_record",
]


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int
) -> tuple[ConsumerGroupMetadataKey, ConsumerGroupMetadataValue]:
    """The group's epoch, and the hash of the topics that it was made for."""
    return ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash
    )


def member_record(
    group_id: str, member: Member
) -> tuple[ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue]:
    """The fields that a member reported about itself."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name, metadata) for name, metadata in member.classic.protocols
            ],
        )
    return ConsumerGroupMemberMetadataKey(group_id, member.member_id), ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def assignment_record(
    group_id: str, member: Member
) -> tuple[ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue]:
    """A member's progress towards its target."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return key, ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )


def _with_epochs(partitions: Epochs) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for topic, epochs in sorted(partitions.items())
    ]


def target_record(
    group_id: str, member_id: str, partitions: Partitions
) -> tuple[ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue]:
    """The target of one member."""
    topics = [TopicPartition(topic, sorted(numbers)) for topic, numbers in sorted(partitions.items())]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)


def target_epoch_record(
    group_id: str, epoch: int, timestamp: int
) -> tuple[ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue]:
    """The epoch that the target was made for, and the time."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id)
    return key, ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp
    )


def pattern_record(
    group_id: str, pattern: str, resolved: Resolved
) -> tuple[ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue]:
    """The topics that an expression matched."""
    return ConsumerGroupRegularExpressionKey(group_id, pattern), ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
    )
