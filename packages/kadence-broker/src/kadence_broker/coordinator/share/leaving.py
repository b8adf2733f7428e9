"""The ways in which members of a share group leave: by themselves, or by a session timeout.

The leaders of partitions do not hear of it: what the member had locked is free when the locks end, or its connection.
"""

from __future__ import annotations

from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.epochs import bump
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.lookup import find_group, find_member, share_group
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.recording import member_tombstones, target_epoch_record
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["leave", "on_session_timer", "unload"]


def leave(shard: Shard, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """Epoch −1. Raises `RefusedError`: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
    group = share_group(shard, request.group_id)
    member = find_member(group, request.member_id)
    _remove(shard, group, member)
    return ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def on_session_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove a member without a sign of life for a session."""
    group = find_group(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if group is not None and member is not None:
        _remove(shard, group, member)


def _remove(shard: Shard, group: ShareGroup, member: ShareMember) -> None:
    for key in member_tombstones(group.group_id, member.member_id):
        shard.write(key, None)
    bump(shard, group)
    if not group.members:
        # There is nothing to assign, so the next member need not wait for the assignment interval.
        shard.write(*target_epoch_record(group.group_id, group.epoch, 0))
    shard.timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member.member_id))


def unload(shard: Shard, group: ShareGroup) -> None:
    """The group has another coordinator now. No request is parked here."""
    for member_id in group.members:
        shard.timers.cancel(TimerKey(TimerKind.SESSION, group.group_id, member_id))
    del shard.groups[group.group_id]
