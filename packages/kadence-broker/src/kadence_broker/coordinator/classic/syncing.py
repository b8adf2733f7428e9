"""SyncGroup and Heartbeat: the requests of a member that has joined.

SyncGroup v3 and Heartbeat v3: group.instance.id;  SyncGroup v5: protocol type and name both ways (KIP-559)
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from kadence_broker.coordinator.classic.group import ClassicGroup, GroupState, Member
from kadence_broker.coordinator.classic.parking import (
    answer_sync,
    park_sync,
    rearm_session,
    refuse_sync,
    sync_key,
)
from kadence_broker.coordinator.classic.rebalance import prepare
from kadence_broker.coordinator.classic.storing import store
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard

__all__ = ["heartbeat", "lacks_protocol", "sync"]

_FIRST_PROTOCOL_VERSION = 5
"""From this version on a member names its protocol; older versions have no field for it."""


def sync(shard: Shard, now: int, caller: Caller, request: SyncGroupRequest) -> None:
    """Answer with the member's assignment; followers are parked until the leader's assignments come."""
    if lacks_protocol(caller, request):
        refuse_sync(shard, caller, codes.INCONSISTENT_GROUP_PROTOCOL)
        return
    if not request.group_id:
        refuse_sync(shard, caller, codes.INVALID_GROUP_ID)
        return
    group = shard.classic(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        refuse_sync(shard, caller, codes.UNKNOWN_MEMBER_ID)
        return
    code = _validate_sync(group, request)
    if code != codes.NONE:
        refuse_sync(shard, caller, code)
        return
    member = group.members[request.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        refuse_sync(shard, caller, codes.REBALANCE_IN_PROGRESS)
        return
    _mark_synced(shard, group, member)
    if group.state is GroupState.STABLE:
        shard.answer(caller, _assignment(group, member))
        rearm_session(shard, now, group, member)
        return
    park_sync(shard, group, member, caller)
    if group.leader_id == member.member_id:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        is_stored = store(shard, now, group, given)
        for each in list(group.parked_syncs()):
            too_large = SyncGroupResponse(error_code=codes.UNKNOWN_SERVER_ERROR)
            answer_sync(shard, now, group, each, _assignment(group, each) if is_stored else too_large)
        if not is_stored:
            prepare(shard, now, group)


def lacks_protocol(caller: Caller, request: SyncGroupRequest) -> bool:
    """True if a member does not name its protocol, although its version has a field for it."""
    return caller.version >= _FIRST_PROTOCOL_VERSION and None in (
        request.protocol_type,
        request.protocol_name,
    )


def _validate_sync(group: ClassicGroup, request: SyncGroupRequest) -> int:
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code != codes.NONE:
        return code
    if request.generation_id != group.generation_id:
        return codes.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return codes.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return codes.INCONSISTENT_GROUP_PROTOCOL
    return codes.NONE


def _mark_synced(shard: Shard, group: ClassicGroup, member: Member) -> None:
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        shard.timers.cancel(sync_key(group))


def _assignment(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=codes.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def heartbeat(shard: Shard, now: int, caller: Caller, request: HeartbeatRequest) -> None:
    """A sign of life. A heartbeat that gets REBALANCE_IN_PROGRESS counts, too (B5)."""
    shard.answer(caller, HeartbeatResponse(error_code=_heartbeat(shard, now, request)))


def _heartbeat(shard: Shard, now: int, request: HeartbeatRequest) -> int:
    if not request.group_id:
        return codes.INVALID_GROUP_ID
    group = shard.classic(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        return codes.UNKNOWN_MEMBER_ID
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code != codes.NONE:
        return code
    if request.generation_id != group.generation_id:
        return codes.ILLEGAL_GENERATION
    rearm_session(shard, now, group, group.members[request.member_id])
    if group.state is GroupState.PREPARING_REBALANCE:
        return codes.REBALANCE_IN_PROGRESS
    return codes.NONE
