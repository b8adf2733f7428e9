"""Applies each kind of record to the state. State that survives a restart is changed in no other way.

A rule writes a record, which is replayed at once; a coordinator that loads the log replays it again, with the same
result. The functions are in the rooms of their records; this is the table of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kadence.protocol.consumer_group_member_metadata_record import ConsumerGroupMemberMetadataKey
from kadence.protocol.consumer_group_metadata_record import ConsumerGroupMetadataKey
from kadence.protocol.consumer_group_partition_metadata_record import ConsumerGroupPartitionMetadataKey
from kadence.protocol.consumer_group_regular_expression_record import ConsumerGroupRegularExpressionKey
from kadence.protocol.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from kadence.protocol.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kadence.protocol.group_metadata_record import GroupMetadataKey
from kadence.protocol.offset_commit_record import OffsetCommitKey
from kadence.protocol.share_group_current_member_assignment_record import ShareGroupCurrentMemberAssignmentKey
from kadence.protocol.share_group_member_metadata_record import ShareGroupMemberMetadataKey
from kadence.protocol.share_group_metadata_record import ShareGroupMetadataKey
from kadence.protocol.share_group_state_partition_metadata_record import ShareGroupStatePartitionMetadataKey
from kadence.protocol.share_group_target_assignment_member_record import ShareGroupTargetAssignmentMemberKey
from kadence.protocol.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataKey,
)
from kadence_broker.coordinator.classic import storing as classic
from kadence_broker.coordinator.consumer import replay as consumer
from kadence_broker.coordinator.offsets import storing as offsets
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share import replay as share

__all__ = ["replay"]

_TABLE: Final[dict[type[Any], Callable[[Shard, Record], None]]] = {
    OffsetCommitKey: offsets.replay,
    GroupMetadataKey: classic.replay,
    ConsumerGroupMetadataKey: consumer.replay_epoch,
    ConsumerGroupPartitionMetadataKey: consumer.replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: consumer.replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: consumer.replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: consumer.replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: consumer.replay_assignment,
    ConsumerGroupRegularExpressionKey: consumer.replay_pattern,
    ShareGroupCurrentMemberAssignmentKey: share.replay_assignment,
    ShareGroupMemberMetadataKey: share.replay_member,
    ShareGroupMetadataKey: share.replay_epoch,
    ShareGroupStatePartitionMetadataKey: share.replay_state,
    ShareGroupTargetAssignmentMemberKey: share.replay_target,
    ShareGroupTargetAssignmentMetadataKey: share.replay_target_epoch,
}
"""By the type of the record's key."""


def replay(shard: Shard, record: Record) -> None:
    """Apply ``record``. A type that is not in the table has no effect."""
    apply = _TABLE.get(type(record.key))
    if apply is not None:
        apply(shard, record)
