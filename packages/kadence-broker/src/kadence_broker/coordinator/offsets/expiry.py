"""Deletes offsets after their retention time, and groups that have nothing left (KIP-211).

An empty group keeps its offsets for the retention time after it became empty; a live one loses only those of topics
that it no longer subscribes to; offsets without members age from their commit. An offset that is pending in a
transaction stays.
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.protocol.offset_commit_record import OffsetCommitKey
from kadence_broker.coordinator.admin import remove_group
from kadence_broker.coordinator.groups import Group
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["arm", "on_expiry_timer"]

_KEY = TimerKey(TimerKind.EXPIRY)


def arm(shard: Shard, now: int) -> None:
    """Schedule the next expiry check, if none is scheduled."""
    if _KEY not in shard.timers:
        shard.timers.schedule(_KEY, add_ms(now, shard.config.offsets_retention_check_interval_ms))


def on_expiry_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove expired offsets and empty groups; check again later while there are groups."""
    for group in list(shard.groups.values()):
        if _expire(shard, shard.wall(now), group) and group.is_removable:
            remove_group(shard, group)
    if shard.groups:
        arm(shard, now)


def _expire(shard: Shard, wall: int, group: Group) -> bool:
    """Forget the expired offsets; return whether none is left."""
    retention = shard.config.offsets_retention_ms
    left = False
    for (topic, partition), committed in shard.offsets.of_group(group.group_id).items():
        since = group.offset_age_from(committed.committed_at)
        if committed.expires_at is not None:
            is_over = wall >= committed.expires_at
        else:
            is_over = since is not None and wall >= add_ms(since, retention)
        stays = since is None or group.is_subscribed(topic)
        if is_over and not stays and not shard.offsets.has_pending(group.group_id, topic, partition):
            shard.write(OffsetCommitKey(group.group_id, topic, partition), None)
        else:
            left = True
    return not left and not shard.offsets.is_in_transaction(group.group_id)
