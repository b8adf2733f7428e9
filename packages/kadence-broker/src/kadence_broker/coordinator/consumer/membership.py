"""Finds, replaces and removes members of a KIP-848 group, with their timers.

A static member's place outlives its process: a member that joins with its instance id takes over its partitions, but
only after it left with epoch −2, or if one of the two speaks the classic protocol (KIP-848, KIP-345).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.consumer import writing
from kadence_broker.coordinator.consumer.epochs import bump
from kadence_broker.coordinator.consumer.expressions import forget_unread
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.member import LEFT_FOR_A_WHILE, Member, MemberState
from kadence_broker.coordinator.group_settings import session_timeout
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = [
    "arm",
    "arm_session",
    "cancel",
    "check_instance",
    "find",
    "put_in_place_of",
    "refuse_if_full",
    "remove",
    "take_out",
    "write_progress",
]

_KINDS: Final = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.JOIN, TimerKind.SYNC)


def find(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member of that identity.

    Raises:
        RefusedError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID, if another has the instance id now.
    """
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise RefusedError(
                codes.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
            )
        return member
    member = group.static_member(instance_id)
    if member is None:
        raise RefusedError(codes.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RefusedError(
            codes.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_instance(before: Member | None, member_id: str) -> None:
    """Check that ``member_id`` may take the instance id of ``before``, both speaking KIP-848's protocol.

    Raises:
        RefusedError: UNRELEASED_INSTANCE_ID.
    """
    if before is not None and before.classic is None and before.epoch != LEFT_FOR_A_WHILE:
        raise RefusedError(
            codes.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {before.instance_id} cannot join the group because the "
            f"instance id is owned by {before.member_id} member.",
        )


def refuse_if_full(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """Refuse a new member if the group is full.

    Raises:
        RefusedError: GROUP_MAX_SIZE_REACHED.
    """
    if len(group.members) >= limit and member_id not in group.members:
        raise RefusedError(
            codes.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def put_in_place_of(shard: Shard, group: ConsumerGroup, before: Member, member_id: str) -> Member:
    """The same static member in another process: a new id, epoch 0, and all partitions of ``before``."""
    group_id = group.group_id
    target = group.target.get(before.member_id, {})
    writing.remove_member(shard, group_id, before.member_id)
    cancel(shard, group, before.member_id)
    member = before.evolved(member_id=member_id, epoch=0, previous_epoch=0)
    writing.write_member(shard, group_id, member)
    writing.write_target(shard, group_id, member_id, target)
    writing.write_assignment(shard, group_id, member)
    return member


def take_out(shard: Shard, group: ConsumerGroup, member_ids: Collection[str]) -> None:
    """Members leave or are fenced: remove them, and raise the epoch, so that others get their partitions.

    Without members there is nothing to assign, so the target is made at once, as in Kafka since 4.4.
    """
    remove(shard, group, member_ids)
    forget_unread(shard, group)
    bump(shard, group)
    if group.is_empty:
        writing.write_target_epoch(shard, group.group_id, group.epoch, 0)


def remove(shard: Shard, group: ConsumerGroup, member_ids: Collection[str]) -> None:
    """Remove members; the group does not react yet."""
    for member_id in member_ids:
        writing.remove_member(shard, group.group_id, member_id)
        cancel(shard, group, member_id)


def write_progress(shard: Shard, now: int, group: ConsumerGroup, member: Member) -> None:
    """Write the member's next step. While it has partitions to revoke, its rebalance timeout runs."""
    writing.write_assignment(shard, group.group_id, member)
    if member.classic is not None:
        return  # its joins and syncs have their own timers
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        arm(shard, now, group, member.member_id, TimerKind.REBALANCE, member.rebalance_timeout_ms)
    else:
        shard.timers.cancel(TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id))


def arm_session(shard: Shard, now: int, group: ConsumerGroup, member: Member) -> None:
    """The member is alive: restart its session timer."""
    if member.classic is None:
        timeout = session_timeout(shard, group.group_id)
    else:
        timeout = member.classic.session_timeout_ms
    arm(shard, now, group, member.member_id, TimerKind.SESSION, timeout)


def arm(
    shard: Shard, now: int, group: ConsumerGroup, member_id: str, kind: TimerKind, duration_ms: int
) -> None:
    """Start or restart one of the member's timers."""
    shard.timers.schedule(TimerKey(kind, group.group_id, member_id), add_ms(now, duration_ms))


def cancel(shard: Shard, group: ConsumerGroup, member_id: str) -> None:
    """Stop all of the member's timers."""
    for kind in _KINDS:
        shard.timers.cancel(TimerKey(kind, group.group_id, member_id))
