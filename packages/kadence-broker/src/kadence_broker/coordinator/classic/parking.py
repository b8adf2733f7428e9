"""Requests of members that wait for others, and the session timers, which are stopped meanwhile.

A member has at most one parked JoinGroup and one parked SyncGroup. Parking cancels its session timer, since a member
must not expire while it waits for the coordinator's response; the response starts the timer again.
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupResponse
from kadence.protocol.sync_group import SyncGroupResponse
from kadence_broker.coordinator.classic.group import ClassicGroup, Member
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = [
    "answer_join",
    "answer_sync",
    "end_parked",
    "forget_member",
    "forget_pending",
    "join_key",
    "park_join",
    "park_sync",
    "rearm_session",
    "refuse_join",
    "refuse_sync",
    "session_key",
    "sync_key",
]


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """The session timer of a member or of a pending member id."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    """The timer of the group's join phase."""
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    """The timer of the group's wait for syncs."""
    return TimerKey(TimerKind.SYNC, group.group_id)


def refuse_join(shard: Shard, caller: Caller, code: int, member_id: str = "") -> None:
    """Answer a join with an error. Before v7 the protocol's name cannot be null."""
    name = None if caller.version >= 7 else ""
    response = JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name, generation_id=-1)
    shard.answer(caller, response)


def refuse_sync(shard: Shard, caller: Caller, code: int) -> None:
    """Answer a sync with an error."""
    shard.answer(caller, SyncGroupResponse(error_code=code))


def park_join(shard: Shard, now: int, group: ClassicGroup, member: Member, caller: Caller) -> None:
    """Park the member's join until the end of the join phase."""
    if member.joining is not None:
        # The client dropped its earlier request and sent another; the old one must not hang.
        refuse_join(shard, member.joining, codes.REBALANCE_IN_PROGRESS, member.member_id)
    member.joining = caller
    if member.is_new:
        limit = shard.config.new_member_join_timeout_ms
        shard.timers.schedule(session_key(group, member.member_id), add_ms(now, limit))
    else:
        shard.timers.cancel(session_key(group, member.member_id))


def park_sync(shard: Shard, group: ClassicGroup, member: Member, caller: Caller) -> None:
    """Park the member's sync until the leader's comes."""
    if member.syncing is not None:
        refuse_sync(shard, member.syncing, codes.REBALANCE_IN_PROGRESS)
    member.syncing = caller
    shard.timers.cancel(session_key(group, member.member_id))


def answer_join(
    shard: Shard, now: int, group: ClassicGroup, member: Member, response: JoinGroupResponse
) -> None:
    """Answer the member's parked join, and restart its session timer."""
    caller, member.joining, member.is_new = member.joining, None, False
    if caller is not None:
        shard.answer(caller, response)
        rearm_session(shard, now, group, member)


def answer_sync(
    shard: Shard, now: int, group: ClassicGroup, member: Member, response: SyncGroupResponse
) -> None:
    """Answer the member's parked sync, and restart its session timer."""
    caller, member.syncing = member.syncing, None
    if caller is not None:
        shard.answer(caller, response)
        rearm_session(shard, now, group, member)


def rearm_session(shard: Shard, now: int, group: ClassicGroup, member: Member) -> None:
    """The member is alive: restart its session timer, unless a request of it is parked."""
    if not member.is_parked:
        shard.timers.schedule(session_key(group, member.member_id), add_ms(now, member.session_timeout_ms))


def forget_member(shard: Shard, group: ClassicGroup, member_id: str, code: int) -> None:
    """Remove a member from its group; its parked requests end with ``code``."""
    shard.timers.cancel(session_key(group, member_id))
    member = group.remove(member_id)
    if member is not None:
        end_parked(shard, member, code)


def forget_pending(shard: Shard, group: ClassicGroup, member_id: str) -> None:
    """Forget a pending member id."""
    group.pending_joins.discard(member_id)
    shard.timers.cancel(session_key(group, member_id))


def end_parked(shard: Shard, member: Member, code: int) -> None:
    """End the member's parked requests with an error."""
    joining, member.joining = member.joining, None
    syncing, member.syncing = member.syncing, None
    if joining is not None:
        named = code in (codes.FENCED_INSTANCE_ID, codes.REBALANCE_IN_PROGRESS)
        refuse_join(shard, joining, code, member.member_id if named else "")
    if syncing is not None:
        refuse_sync(shard, syncing, code)
