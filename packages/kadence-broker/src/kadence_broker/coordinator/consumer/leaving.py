"""The ways in which members leave: for good, for a while, or by a session or rebalance timeout (KIP-848)."""

from __future__ import annotations

from kadence.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kadence_broker.coordinator.consumer import migration, writing
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import consumer_group, find_group
from kadence_broker.coordinator.consumer.member import LEFT_FOR_A_WHILE, Member, MemberState
from kadence_broker.coordinator.consumer.membership import arm, arm_session, cancel, find
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["leave", "loaded", "on_join_or_sync_timer", "on_rebalance_timer", "on_session_timer", "unload"]


def leave(shard: Shard, now: int, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """Epoch −1: for good. Epoch −2: a static member that will come back; its place is kept for a session.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = consumer_group(shard, request.group_id)
    member = find(group, request.member_id, request.instance_id)
    if request.instance_id is not None and request.member_epoch == LEFT_FOR_A_WHILE:
        writing.write_assignment(shard, group.group_id, _away(member))
        shard.timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id))
    else:
        migration.fence(shard, now, group, [member.member_id])
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _away(member: Member) -> Member:
    """The member without the partitions to revoke; after its return it may commit from the beginning (KIP-1251)."""
    assigned = {topic: dict.fromkeys(epochs, 0) for topic, epochs in member.assigned.items()}
    return member.evolved(epoch=LEFT_FOR_A_WHILE, assigned=assigned, revoking={})


def on_session_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove a member without a sign of life for a session."""
    _fence(shard, now, key)


def on_join_or_sync_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove a classic member that did not join, or sync, within its rebalance timeout."""
    _fence(shard, now, key)


def on_rebalance_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove a member that has not revoked its partitions within its rebalance timeout."""
    group = find_group(shard, key.group_id)
    member = None if group is None else group.members.get(key.member_id)
    if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
        _fence(shard, now, key)


def _fence(shard: Shard, now: int, key: TimerKey) -> None:
    group = find_group(shard, key.group_id)
    if group is not None and key.member_id in group.members:
        migration.fence(shard, now, group, [key.member_id])


def loaded(shard: Shard, now: int, group: ConsumerGroup) -> None:
    """Members from the log get a session from now on, and a rebalance timeout if they have partitions to revoke."""
    for member in group.members.values():
        arm_session(shard, now, group, member)
        if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0:
            arm(shard, now, group, member.member_id, TimerKind.REBALANCE, member.rebalance_timeout_ms)


def unload(shard: Shard, group: ConsumerGroup) -> None:
    """The group has another coordinator now. No request is parked here: all are answered at once."""
    for member_id in group.members:
        cancel(shard, group, member_id)
    del shard.groups[group.group_id]
