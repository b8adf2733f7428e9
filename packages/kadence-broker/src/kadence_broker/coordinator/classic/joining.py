"""JoinGroup: the members that may join, and the effect of a join on the group.

v0  no rebalance timeout: the session timeout is used for both (B8)
v4  a first join gets an id with MEMBER_ID_REQUIRED and is repeated with it (KIP-394)
v5  group.instance.id: static members (KIP-345)
v7  protocol name may be null    v8  reason    v9  skipAssignment (KIP-814)
"""

from __future__ import annotations

from kadence.clock import add_ms
from kadence.protocol import error_codes as codes
from kadence.protocol.join_group import JoinGroupRequest
from kadence_broker.coordinator.classic.group import ClassicGroup, GroupState, Member
from kadence_broker.coordinator.classic.parking import (
    end_parked,
    forget_member,
    forget_pending,
    park_join,
    rearm_session,
    refuse_join,
    session_key,
)
from kadence_broker.coordinator.classic.rebalance import current_generation, prepare, try_complete
from kadence_broker.coordinator.classic.storing import create, store
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard

__all__ = ["join"]


def join(shard: Shard, now: int, caller: Caller, request: JoinGroupRequest) -> None:
    """Answer at once, or park the caller in its member until the join phase ends."""
    config = shard.config
    if not request.group_id:
        refuse_join(shard, caller, codes.INVALID_GROUP_ID, request.member_id)
        return
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        refuse_join(shard, caller, codes.INVALID_SESSION_TIMEOUT, request.member_id)
        return
    group = shard.classic(request.group_id)
    if group is None:
        if request.group_id in shard.groups:  # of another kind
            refuse_join(shard, caller, codes.INCONSISTENT_GROUP_PROTOCOL)
            return
        if request.member_id:
            refuse_join(shard, caller, codes.UNKNOWN_MEMBER_ID, request.member_id)
            return
        group = create(shard, now, request.group_id)
    if not _has_room(shard, group, request.member_id):
        forget_member(shard, group, request.member_id, codes.GROUP_MAX_SIZE_REACHED)
        forget_pending(shard, group, request.member_id)
        try_complete(shard, now, group)
        refuse_join(shard, caller, codes.GROUP_MAX_SIZE_REACHED)
        return
    if not group.accepts_protocols(request.protocol_type, (each.name for each in request.protocols)):
        refuse_join(shard, caller, codes.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        return
    if request.member_id:
        _join_known(shard, now, group, caller, request)
        return
    if request.group_instance_id is not None:
        _join_static(shard, now, group, caller, request)
        return
    member_id = f"{caller.client_id}-{shard.new_id()}"
    if caller.version >= 4:
        group.pending_joins.add(member_id)
        deadline = add_ms(now, request.session_timeout_ms)
        shard.timers.schedule(session_key(group, member_id), deadline)
        refuse_join(shard, caller, codes.MEMBER_ID_REQUIRED, member_id)
        return
    _add(shard, now, group, member_id, caller, request)


def _has_room(shard: Shard, group: ClassicGroup, member_id: str) -> bool:
    limit = shard.config.max_size
    member = group.members.get(member_id)
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.joining is not None:
            return True
        return len(group.members) < limit or sum(1 for _ in group.parked_joins()) < limit
    return member is not None or len(group.members) < limit


def _rebalance_timeout(caller: Caller, request: JoinGroupRequest) -> int:
    # A negative timeout of a later version is kept, as in Kafka: members that join then have no time to sync.
    if caller.version == 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _protocols(request: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(each.name, bytes(each.metadata)) for each in request.protocols]


def _add(
    shard: Shard, now: int, group: ClassicGroup, member_id: str, caller: Caller, request: JoinGroupRequest
) -> None:
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_timeout(caller, request),
        protocols=_protocols(request),
    )
    group.add(member, request.protocol_type)
    park_join(shard, now, group, member, caller)
    group.new_member_added = True
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete(shard, now, group)
    else:
        prepare(shard, now, group)


def _join_known(
    shard: Shard, now: int, group: ClassicGroup, caller: Caller, request: JoinGroupRequest
) -> None:
    """A join with a member id: the second one of a new member, a rejoin, or a repetition."""
    member_id = request.member_id
    if member_id in group.pending_joins and request.group_instance_id is None:
        _add(shard, now, group, member_id, caller, request)
        return
    code = group.validate_member(member_id, request.group_instance_id)
    if code != codes.NONE:
        refuse_join(shard, caller, code, member_id)
        return
    member = group.members[member_id]
    changed = member.protocols != _protocols(request)
    leads = group.leader_id == member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        _update(group, member, caller, request)
        park_join(shard, now, group, member, caller)
        try_complete(shard, now, group)
    elif changed or (group.state is GroupState.STABLE and leads):
        # A leader that joins again has seen new metadata and wants a new assignment.
        _update(group, member, caller, request)
        park_join(shard, now, group, member, caller)
        prepare(shard, now, group)
    else:
        # The member did not get the response, or asks again to be sure: it gets the present state of the group.
        shard.answer(caller, current_generation(group, member))
        rearm_session(shard, now, group, member)


def _join_static(
    shard: Shard, now: int, group: ClassicGroup, caller: Caller, request: JoinGroupRequest
) -> None:
    """A static member without an id has been (re)started; it takes its old place if it had one (KIP-345)."""
    assert request.group_instance_id is not None
    new_id = f"{request.group_instance_id}-{shard.new_id()}"
    old_id = group.static_members.get(request.group_instance_id)
    if old_id is None:
        _add(shard, now, group, new_id, caller, request)
        return
    member = group.members[old_id]
    shard.timers.cancel(session_key(group, old_id))
    end_parked(shard, member, codes.FENCED_INSTANCE_ID)
    old_leader = group.leader_id
    group.replace_static(member, new_id)
    _update(group, member, caller, request)
    is_unchanged = group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name
    shares = {each.member_id: each.assignment for each in group.members.values()}
    if is_unchanged and store(shard, now, group, shares):
        _answer_returned(shard, now, group, member, caller, old_leader or "")
        return
    park_join(shard, now, group, member, caller)
    if group.state is GroupState.PREPARING_REBALANCE:
        try_complete(shard, now, group)
    else:
        prepare(shard, now, group)


def _answer_returned(
    shard: Shard, now: int, group: ClassicGroup, member: Member, caller: Caller, old_leader: str
) -> None:
    """Answer a static member whose restart changes nothing for the group, so there is no rebalance.

    A returned leader must not assign again: v9 has a field for that; in older versions the response names the old
    leader id, which no member has now.
    """
    if member.member_id == group.leader_id and caller.version >= 9:
        response = current_generation(group, member, skip_assignment=True)
    else:
        response = current_generation(group, member)
        response.leader = old_leader
        response.members = []
    member.is_new = False
    shard.answer(caller, response)
    rearm_session(shard, now, group, member)


def _update(group: ClassicGroup, member: Member, caller: Caller, request: JoinGroupRequest) -> None:
    protocols = _protocols(request)
    if [name for name, _ in protocols] != [name for name, _ in member.protocols]:
        group.protocols_changed()
    member.protocols = protocols
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout(caller, request)
