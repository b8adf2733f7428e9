"""LeaveGroup: one member (v0-2), or several with instance ids and reasons (v3+, v5: reason).

An administrator removes a static member by instance id alone, with an empty member id (KIP-345).
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.classic.parking import forget_member, forget_pending
from kadence_broker.coordinator.classic.rebalance import rebalance_without
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard

__all__ = ["leave"]


def leave(shard: Shard, now: int, caller: Caller, request: LeaveGroupRequest) -> None:
    """Each entry is checked after the ones before it have left; one rebalance follows for all."""
    batched = caller.version >= 3
    identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    if not request.group_id:
        shard.answer(caller, LeaveGroupResponse(error_code=codes.INVALID_GROUP_ID))
        return
    group = shard.classic(request.group_id)
    results = [
        MemberResponse(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=codes.UNKNOWN_MEMBER_ID if group is None else _take_out(shard, group, each),
        )
        for each in identities
    ]
    if batched:
        shard.answer(caller, LeaveGroupResponse(error_code=codes.NONE, members=results))
    else:
        shard.answer(caller, LeaveGroupResponse(error_code=results[0].error_code))
    if group is not None and any(each.error_code == codes.NONE for each in results):
        rebalance_without(shard, now, group)


def _take_out(shard: Shard, group: ClassicGroup, identity: MemberIdentity) -> int:
    """Remove one member, or return an error code. A pending member id may leave too."""
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        member_id = group.static_members.get(identity.group_instance_id, "")
    elif member_id in group.pending_joins:
        forget_pending(shard, group, member_id)
        return codes.NONE
    code = group.validate_member(member_id, identity.group_instance_id)
    if code == codes.NONE:
        forget_member(shard, group, member_id, codes.UNKNOWN_MEMBER_ID)
    return code
