"""Finds a share group, and members in it."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.member import ShareMember

__all__ = ["find_group", "find_member", "found_or_new", "share_group"]


def find_group(shard: Shard, group_id: str) -> ShareGroup | None:
    """The group, if it exists and is of this kind."""
    group = shard.groups.get(group_id)
    return group if isinstance(group, ShareGroup) else None


def share_group(shard: Shard, group_id: str) -> ShareGroup:
    """The group.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND, also if the name belongs to a group of another kind, even an empty one.
    """
    group = find_group(shard, group_id)
    if group is not None:
        return group
    what = "is not a share group" if group_id in shard.groups else "not found"
    raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")


def found_or_new(shard: Shard, group_id: str) -> ShareGroup:
    """The group; if there is none, one that its first record makes. Raises `RefusedError` as `share_group`."""
    return share_group(shard, group_id) if group_id in shard.groups else ShareGroup(group_id)


def find_member(group: ShareGroup, member_id: str) -> ShareMember:
    """The member. Raises `RefusedError`: UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise RefusedError(
            codes.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member
