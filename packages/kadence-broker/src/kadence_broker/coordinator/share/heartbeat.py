"""ShareGroupHeartbeat: a member joins, stays, leaves, and gets its assignment (KIP-932).

v1  the member makes its id (v0 was Kafka 4.0's only)

A field that is null is unchanged. A heartbeat that names the subscription gets the whole assignment back.
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.group_settings import heartbeat_interval, session_timeout
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share import leaving
from kadence_broker.coordinator.share.epochs import (
    bump_if_changed,
    has_new_partitions,
    make_target_if_due,
    reconciled,
)
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.initialising import initialise_if_needed
from kadence_broker.coordinator.share.lookup import find_member, found_or_new, share_group
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.recording import assignment_record, member_record
from kadence_broker.coordinator.share.validation import refuse_nonsense
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["arm_session", "heartbeat"]


def heartbeat(shard: Shard, now: int, caller: Caller, request: ShareGroupHeartbeatRequest) -> None:
    """Answer at once; a refused heartbeat changes nothing."""
    try:
        refuse_nonsense(shard.config.share, request)
        if request.member_epoch < 0:
            response = leaving.leave(shard, request)
        else:
            response = _live(shard, now, caller, request)
    except RefusedError as problem:
        response = ShareGroupHeartbeatResponse(error_code=problem.code, error_message=problem.message)
    shard.answer(caller, response)


def _live(
    shard: Shard, now: int, caller: Caller, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    group, before = _found(shard, request)
    # What was initialised since the last target was made, before this heartbeat changes the group.
    is_changed = group.target_epoch >= group.epoch and has_new_partitions(shard, group)
    member = _said(caller, before, request)
    is_new = member.member_id not in group.members
    if is_new or member != before:
        shard.write(*member_record(group.group_id, member))
        group = share_group(shard, group.group_id)
    is_changed |= member.topics != before.topics
    is_changed = bump_if_changed(shard, group, is_changed=is_changed)
    make_target_if_due(shard, now, group)
    after = reconciled(shard, group, member, is_changed=is_changed)
    if after != member:
        shard.write(*assignment_record(group.group_id, after))
    arm_session(shard, now, group, after)
    initialise_if_needed(shard, now, group)
    has_assignment = (
        request.member_epoch == 0
        or request.subscribed_topic_names is not None
        or after.assigned != before.assigned
    )
    return ShareGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=heartbeat_interval(shard, group.group_id, "share"),
        assignment=_assignment(after.assigned) if has_assignment else None,
    )


def _found(shard: Shard, request: ShareGroupHeartbeatRequest) -> tuple[ShareGroup, ShareMember]:
    """The group and the member. Epoch 0 joins, or joins again without losing the place.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    if request.member_epoch == 0:
        group = found_or_new(shard, request.group_id)
    elif request.group_id in shard.groups:
        group = share_group(shard, request.group_id)
    else:
        raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
    limit = shard.config.share.max_size
    if len(group.members) >= limit and request.member_id not in group.members:
        raise RefusedError(
            codes.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {limit} members.",
        )
    if request.member_epoch == 0:
        return group, group.members.get(request.member_id) or ShareMember(request.member_id)
    member = find_member(group, request.member_id)
    _check_epoch(member, request.member_epoch)
    return group, member


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """The previous epoch is valid, too: the response with the present one may have been lost.

    Raises:
        RefusedError: FENCED_MEMBER_EPOCH.
    """
    if epoch in (member.epoch, member.previous_epoch) and epoch <= member.epoch:
        return
    is_greater = epoch > member.epoch
    previous = (
        "" if is_greater else f", and it does not match the previous member epoch ({member.previous_epoch})"
    )
    raise RefusedError(
        codes.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.epoch}){previous}. The member must abandon all its partitions and "
        "rejoin.",
    )


def _said(caller: Caller, before: ShareMember, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member with the fields of the request; null ones stay."""
    names = request.subscribed_topic_names
    return before.evolved(
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=before.topics if names is None else frozenset(names),
    )


def arm_session(shard: Shard, now: int, group: ShareGroup, member: ShareMember) -> None:
    """The member is alive: restart its session timer."""
    shard.timers.schedule(
        TimerKey(TimerKind.SESSION, group.group_id, member.member_id),
        add_ms(now, session_timeout(shard, group.group_id, "share")),
    )


def _assignment(partitions: Mapping[bytes, frozenset[int]]) -> Assignment:
    return Assignment(
        [TopicPartitions(topic, sorted(numbers)) for topic, numbers in sorted(partitions.items())]
    )
