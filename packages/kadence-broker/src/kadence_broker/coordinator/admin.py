"""ListGroups, DescribeGroups, DeleteGroups: groups as an administrator sees them.

ListGroups v4: states filter and state (KIP-518), v5: types filter and type (KIP-848)
DescribeGroups v6: an unknown group is GROUP_ID_NOT_FOUND; before it, a Dead group without error
"""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kadence.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kadence.protocol.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kadence_broker.coordinator.classic.group import GroupState
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.groups import Group
from kadence_broker.coordinator.offsets.storing import forget_all
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.deleting import delete_state

__all__ = ["delete_groups", "describe_groups", "list_groups", "remove_group"]


def list_groups(shard: Shard, now: int, caller: Caller, request: ListGroupsRequest) -> None:
    """All groups, or those in the states and of the types asked for (names in any case)."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type_name,
            group_state=group.state_name,
            group_type=group.kind,
        )
        for group in shard.groups.values()
        if (not states or group.state_name.lower() in states) and (not types or group.kind in types)
    ]
    shard.answer(caller, ListGroupsResponse(error_code=codes.NONE, groups=groups))


def describe_groups(shard: Shard, now: int, caller: Caller, request: DescribeGroupsRequest) -> None:
    """State, protocol and members of each group named."""
    described = [_describe(shard, name, caller.version) for name in request.groups]
    shard.answer(caller, DescribeGroupsResponse(groups=described))


def _describe(shard: Shard, group_id: str, version: int) -> DescribedGroup:
    group = shard.classic(group_id)
    if group is None:
        if version < 6:
            return DescribedGroup(error_code=codes.NONE, group_id=group_id, group_state=GroupState.DEAD.value)
        return DescribedGroup(
            error_code=codes.GROUP_ID_NOT_FOUND,
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            error_message=f"Group {group_id} {'is not a classic group' if group_id in shard.groups else 'not found'}.",
        )
    # Before it is stable its protocol may still change; the members' assignments are those of the last generation.
    is_stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    return DescribedGroup(
        error_code=codes.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def delete_groups(shard: Shard, now: int, caller: Caller, request: DeleteGroupsRequest) -> None:
    """Remove groups without members, and with them their offsets and the state of their share-partitions."""
    names = list(dict.fromkeys(request.groups_names))  # a repeated name gets one result, as in Kafka

    def delete(shard: Shard, failed: dict[str, int]) -> None:
        results = [
            DeletableGroupResult(
                group_id=name, error_code=failed[name] if name in failed else _delete(shard, name)
            )
            for name in names
        ]
        shard.answer(caller, DeleteGroupsResponse(results=results))

    delete_state(shard, caller, names, delete)


def _delete(shard: Shard, group_id: str) -> int:
    group = shard.groups.get(group_id)
    if group is None:
        return codes.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return codes.NON_EMPTY_GROUP
    remove_group(shard, group)
    return codes.NONE


def remove_group(shard: Shard, group: Group) -> None:
    """Remove a group without members, with its offsets and its pending member ids."""
    forget_all(shard, group.group_id)
    for key in group.tombstones():
        shard.write(key, None)
