"""LeaveGroup: one member (v0-2), or several with instance ids and reasons (v3+, v5: reason).

An administrator removes a static member by instance id alone, with an empty member id (KIP-345).
"""

from __future__ import annotations

from kadence.coordinator.effects import Caller
from kadence.coordinator.group import ClassicGroup
from kadence.coordinator.joining import validate_member
from kadence.coordinator.rebalance import drop_pending, remove_and_rebalance
from kadence.coordinator.shard import Shard
from kadence.protocol import error_codes as codes
from kadence.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

__all__ = ["leave"]


def leave(shard: Shard, now: int, caller: Caller, request: LeaveGroupRequest) -> None:
    """Each entry is judged alone; one rebalance follows for all that left."""
    batched = caller.version >= 3
    identities = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    if not request.group_id:
        shard.answer(caller, LeaveGroupResponse(error_code=codes.INVALID_GROUP_ID))
        return
    group = shard.groups.get(request.group_id)
    results: list[MemberResponse] = []
    leaving: list[str] = []
    for identity in identities:
        member_id, code = _who_leaves(group, identity)
        if member_id is not None and member_id not in leaving:
            leaving.append(member_id)
        results.append(
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
            )
        )
    if batched:
        shard.answer(caller, LeaveGroupResponse(error_code=codes.NONE, members=results))
    else:
        shard.answer(caller, LeaveGroupResponse(error_code=results[0].error_code))
    if group is not None and leaving:
        _take_out(shard, now, group, leaving)


def _who_leaves(group: ClassicGroup | None, identity: MemberIdentity) -> tuple[str | None, int]:
    """The member to remove, or None and why not."""
    if group is None:
        return None, codes.UNKNOWN_MEMBER_ID
    if not identity.member_id and identity.group_instance_id is not None:
        member_id = group.static_members.get(identity.group_instance_id)
        return member_id, codes.UNKNOWN_MEMBER_ID if member_id is None else codes.NONE
    if identity.member_id in group.pending_joins:
        return identity.member_id, codes.NONE
    code = validate_member(group, identity.member_id, identity.group_instance_id)
    return (identity.member_id if code == codes.NONE else None), code


def _take_out(shard: Shard, now: int, group: ClassicGroup, leaving: list[str]) -> None:
    """Only a member that had joined is a reason to rebalance; a pending one never took part."""
    joined = [member_id for member_id in leaving if member_id in group.members]
    pending = [member_id for member_id in leaving if member_id in group.pending_joins]
    if pending:
        drop_pending(shard, now, group, pending)
    if joined:
        remove_and_rebalance(shard, now, group, joined)
