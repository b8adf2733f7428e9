"""The two phases of a classic rebalance, and their timers.

    prepare ──(all joined, or the rebalance timeout)──▶ complete ──(the leader syncs)──▶ Stable
       ▲                                                   │
       └───────(members that did not sync in time)─────────┘

The rebalance timeout is the longest over the group's members, taken when a phase starts; it and the
session timers do not depend on each other (B8). See KIP-62 and KIP-134 (the initial delay).
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupResponse, JoinGroupResponseMember
from kadence.protocol.sync_group import SyncGroupResponse
from kadence_broker.coordinator.classic.group import ClassicGroup, GroupState, Member
from kadence_broker.coordinator.classic.parking import (
    answer_join,
    answer_sync,
    forget_member,
    forget_pending,
    join_key,
    sync_key,
)
from kadence_broker.coordinator.classic.storing import store_empty
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey

__all__ = [
    "complete_join",
    "current_generation",
    "on_join_timer",
    "on_session_timer",
    "on_sync_timer",
    "prepare",
    "rebalance_without",
    "try_complete",
]


def prepare(shard: Shard, now: int, group: ClassicGroup) -> None:
    """Start to collect joins. Members that wait for an assignment get REBALANCE_IN_PROGRESS, and join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            answer_sync(shard, now, group, member, SyncGroupResponse(error_code=codes.REBALANCE_IN_PROGRESS))
    shard.timers.cancel(sync_key(group))
    group.pending_syncs.clear()
    was_empty = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE)
    delay = shard.config.initial_rebalance_delay_ms
    if was_empty:
        # Also with a delay of 0: when it is over, pending member ids that have not joined are no longer waited for.
        group.initial_delay_ms = delay
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
        group.new_member_added = False
        shard.timers.schedule(join_key(group), add_ms(now, delay))
        return
    group.initial_delay_left_ms = None
    if not try_complete(shard, now, group):
        shard.timers.schedule(join_key(group), add_ms(now, group.rebalance_timeout_ms))


def try_complete(shard: Shard, now: int, group: ClassicGroup) -> bool:
    """End the join phase early if all members have joined. The initial delay is never cut short."""
    if (
        group.state is not GroupState.PREPARING_REBALANCE
        or group.initial_delay_left_ms is not None
        or not group.has_all_members_joined
    ):
        return False
    complete_join(shard, now, group)
    return True


def on_join_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """The initial delay or the rebalance timeout is over."""
    group = shard.classic(key.group_id)
    if group is None or group.state is not GroupState.PREPARING_REBALANCE:
        return
    left = group.initial_delay_left_ms
    if left is not None and left != 0 and group.new_member_added:
        delay = min(shard.config.initial_rebalance_delay_ms, left)
        group.initial_delay_left_ms = max(left - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay
        group.new_member_added = False
        shard.timers.schedule(join_key(group), add_ms(now, delay))
        return
    complete_join(shard, now, group)


def complete_join(shard: Shard, now: int, group: ClassicGroup) -> None:
    """Begin the next generation with the members that joined, or with an empty group.

    Dynamic members that did not rejoin are removed. Static ones keep their place until their session ends;
    if only such members are left, the phase is run again, because none of them can lead.
    """
    shard.timers.cancel(join_key(group))
    group.initial_delay_left_ms = None
    for member in [each for each in group.members.values() if each.joining is None and not each.is_static]:
        forget_member(shard, group, member.member_id, codes.UNKNOWN_MEMBER_ID)
    rejoined = next(group.parked_joins(), None)
    if group.members and rejoined is None:
        # Never at once: with a timeout of 0 the timer would fire for ever within one poll.
        shard.timers.schedule(join_key(group), add_ms(now, max(group.rebalance_timeout_ms, 1)))
        return
    if rejoined is None:
        store_empty(shard, now, group)
        return
    group.generation_id += 1
    leader = group.members.get(group.leader_id or "")
    if leader is None or leader.joining is None:
        group.leader_id = rejoined.member_id
    group.protocol_name = group.select_protocol()
    group.subscribed = group.subscribed_topics()
    group.transition(GroupState.COMPLETING_REBALANCE)
    group.pending_syncs = set(group.members)
    shard.timers.schedule(sync_key(group), add_ms(now, group.rebalance_timeout_ms))
    for member in list(group.parked_joins()):
        answer_join(shard, now, group, member, current_generation(group, member))


def current_generation(
    group: ClassicGroup, member: Member, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The JoinGroup response for ``member``; only the leader's has the metadata of the others."""
    members: list[JoinGroupResponseMember] = []
    if member.member_id == group.leader_id:
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata(group.protocol_name or ""),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=codes.NONE,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def on_sync_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove the members that joined and have not synced within the rebalance timeout."""
    group = shard.classic(key.group_id)
    if group is None or not group.pending_syncs:
        return
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    for member_id in list(group.pending_syncs):
        forget_member(shard, group, member_id, codes.UNKNOWN_MEMBER_ID)
    prepare(shard, now, group)


def on_session_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Remove a member without a sign of life for a session timeout."""
    group, member_id = shard.classic(key.group_id), key.member_id
    if group is None:
        return
    if member_id in group.pending_joins:
        forget_pending(shard, group, member_id)
        try_complete(shard, now, group)
    elif member_id in group.members:
        forget_member(shard, group, member_id, codes.UNKNOWN_MEMBER_ID)
        rebalance_without(shard, now, group)


def rebalance_without(shard: Shard, now: int, group: ClassicGroup) -> None:
    """A member is gone: rebalance, so that the others share its partitions."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(shard, now, group)
    else:
        try_complete(shard, now, group)
