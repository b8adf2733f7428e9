"""Members that speak the classic protocol inside a KIP-848 group: their generation is their epoch (KIP-848).

JoinGroup is answered at once: it is their heartbeat with a report. Their subscription has the partitions that they
own; SyncGroup returns their assignment. A heartbeat that gets REBALANCE_IN_PROGRESS starts a rebalance timeout to join
again, and each join one to sync.
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence_broker.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE
from kadence_broker.coordinator.classic.joining import join as join_classic_group
from kadence_broker.coordinator.classic.parking import refuse_join, refuse_sync
from kadence_broker.coordinator.classic.rebalance import prepare
from kadence_broker.coordinator.classic.syncing import lacks_protocol
from kadence_broker.coordinator.consumer import migration, writing
from kadence_broker.coordinator.consumer.embedded import (
    BadMetadataError,
    assignment_bytes,
    owned_partitions,
    subscription,
)
from kadence_broker.coordinator.consumer.epochs import (
    bump,
    bump_if_topics_changed,
    make_target_if_due,
    target_of,
)
from kadence_broker.coordinator.consumer.expressions import forget_unread
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import consumer_group
from kadence_broker.coordinator.consumer.member import ClassicMetadata, Member, MemberState
from kadence_broker.coordinator.consumer.membership import (
    arm,
    arm_session,
    find,
    put_in_place_of,
    refuse_if_full,
    write_progress,
)
from kadence_broker.coordinator.consumer.reconciliation import reconcile
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["heartbeat", "join", "leave", "sync"]


def join(shard: Shard, now: int, caller: Caller, request: JoinGroupRequest) -> None:
    """A classic member joins, or reports its owned partitions. An empty group becomes a classic one."""
    config = shard.config
    group = consumer_group(shard, request.group_id)
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        refuse_join(shard, caller, codes.INVALID_SESSION_TIMEOUT, request.member_id)
        return
    if not group.members:
        if request.member_id:
            # The classic group would not know it: a refusal changes nothing.
            refuse_join(shard, caller, codes.UNKNOWN_MEMBER_ID, request.member_id)
            return
        writing.remove_group(shard, group)
        join_classic_group(shard, now, caller, request)
        return
    try:
        _join(shard, now, caller, group, request)
    except RefusedError as problem:
        refuse_join(shard, caller, problem.code)


def _join(shard: Shard, now: int, caller: Caller, group: ConsumerGroup, request: JoinGroupRequest) -> None:
    refuse_if_full(group, request.member_id, shard.config.consumer_max_size)
    names = [each.name for each in request.protocols]
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports_protocols(names):
        raise RefusedError(codes.INCONSISTENT_GROUP_PROTOCOL)
    member_id = request.member_id or shard.new_id()
    if not request.member_id and request.group_instance_id is None and caller.version >= 4:
        refuse_join(shard, caller, codes.MEMBER_ID_REQUIRED, member_id)
        return
    try:
        said = subscription(bytes(request.protocols[0].metadata))
    except BadMetadataError as problem:
        raise RefusedError(codes.UNKNOWN_SERVER_ERROR, str(problem)) from None
    turns_classic = migration.can_downgrade_by_join(shard, group, request.group_instance_id)
    known_epoch = group.epoch
    before = _who(shard, group, member_id, request)
    timeout = request.rebalance_timeout_ms
    member = before.evolved(
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=said.rack_id or before.rack_id,
        rebalance_timeout_ms=request.session_timeout_ms if caller.version == 0 or timeout < 0 else timeout,
        topics=frozenset(said.topics),
        regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMetadata(
            request.session_timeout_ms, tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        ),
    )
    if member != before or member_id not in group.members:
        writing.write_member(shard, group.group_id, member)
        forget_unread(shard, group)
    changed = member.topics != before.topics or member.regex != before.regex
    if changed:
        bump(shard, group)
    bump_if_topics_changed(shard, group)
    if not turns_classic:
        make_target_if_due(shard, now, group, member)
    is_behind = turns_classic and group.target_epoch < group.epoch
    if not is_behind:  # else the classic group rebalances at once
        after = reconcile(
            member, target_of(shard, group, member), owned_partitions(said, shard.topics), group.is_taken
        )
        if after != member:
            write_progress(shard, now, group, after)
            member = after
    shard.timers.cancel(TimerKey(TimerKind.JOIN, group.group_id, member_id))
    shard.answer(
        caller,
        JoinGroupResponse(
            member_id=member_id,
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=names[0],
        ),
    )
    if turns_classic:
        classic = migration.downgrade(shard, now, group, known_epoch)
        if is_behind:
            prepare(shard, now, classic)
        return
    arm_session(shard, now, group, member)
    arm(shard, now, group, member_id, TimerKind.SYNC, member.rebalance_timeout_ms)


def _who(shard: Shard, group: ConsumerGroup, member_id: str, request: JoinGroupRequest) -> Member:
    """The joining member as it was before."""
    if request.group_instance_id is None:
        # A KIP-848 member that sends JoinGroup changes its protocol; an unknown id may join.
        return group.members.get(member_id) or Member(member_id)
    before = group.static_member(request.group_instance_id)
    if request.member_id:
        return find(group, member_id, request.group_instance_id)
    if before is None:
        return Member(member_id)
    return put_in_place_of(shard, group, before, member_id)


def sync(shard: Shard, now: int, caller: Caller, request: SyncGroupRequest) -> None:
    """Answer with the member's assignment; a leader's assignments are ignored, since the broker assigns."""
    if lacks_protocol(caller, request):
        refuse_sync(shard, caller, codes.INCONSISTENT_GROUP_PROTOCOL)
        return
    group = consumer_group(shard, request.group_id)
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        classic = member.classic
        assert classic is not None
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            name,
        ):
            raise RefusedError(codes.INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            _wait_for_join(shard, now, group, member)
            raise RefusedError(codes.REBALANCE_IN_PROGRESS)
    except RefusedError as problem:
        refuse_sync(shard, caller, problem.code)
        return
    shard.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id, member.member_id))
    arm_session(shard, now, group, member)
    shard.answer(
        caller,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.assigned, metadata, shard.topics),
        ),
    )


def heartbeat(shard: Shard, now: int, caller: Caller, request: HeartbeatRequest) -> None:
    """A sign of life; REBALANCE_IN_PROGRESS if the member has to join again to get or to revoke partitions."""
    group = consumer_group(shard, request.group_id)
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except RefusedError as problem:
        shard.answer(caller, HeartbeatResponse(error_code=problem.code))
        return
    arm_session(shard, now, group, member)
    waits_no_more = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member)
    code = codes.NONE
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or waits_no_more:
        code = codes.REBALANCE_IN_PROGRESS
        _wait_for_join(shard, now, group, member)
    shard.answer(caller, HeartbeatResponse(error_code=code))


def leave(shard: Shard, now: int, caller: Caller, request: LeaveGroupRequest) -> None:
    """Members of either protocol leave; an administrator names a static member by its instance id alone."""
    group = consumer_group(shard, request.group_id)
    batched = caller.version >= 3
    identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    results, leaving = [], dict.fromkeys(list[str]())
    for identity in identities:
        member_id, instance_id, code = identity.member_id, identity.group_instance_id, codes.NONE
        member = group.static_member(instance_id)
        try:
            if instance_id is None or member is None or member_id:
                member = find(group, member_id, instance_id)
            leaving[member.member_id] = None
        except RefusedError as problem:
            code = problem.code
        results.append(MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code))
    if leaving:
        migration.fence(shard, now, group, list(leaving))
    if batched:
        shard.answer(caller, LeaveGroupResponse(members=results))
    else:
        shard.answer(caller, LeaveGroupResponse(error_code=results[0].error_code))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    member = find(group, member_id, instance_id)
    if member.classic is None:
        raise RefusedError(codes.UNKNOWN_MEMBER_ID)
    if member.epoch != generation:
        raise RefusedError(codes.ILLEGAL_GENERATION)
    return member


def _wait_for_join(shard: Shard, now: int, group: ConsumerGroup, member: Member) -> None:
    key = TimerKey(TimerKind.JOIN, group.group_id, member.member_id)
    if key not in shard.timers:
        arm(shard, now, group, member.member_id, TimerKind.JOIN, member.rebalance_timeout_ms)
