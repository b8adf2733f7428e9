"""Finds a KIP-848 group by its name."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard

__all__ = ["consumer_group", "find_group"]


def find_group(shard: Shard, group_id: str) -> ConsumerGroup | None:
    """The group, if it exists and is of this kind."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def consumer_group(shard: Shard, group_id: str) -> ConsumerGroup:
    """The group.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND.
    """
    group = find_group(shard, group_id)
    if group is not None:
        return group
    what = "is not a consumer group" if group_id in shard.groups else "not found"
    raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
