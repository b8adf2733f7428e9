"""The record of a classic group: its last assigned generation, or an empty one (GroupMetadata).

Kafka writes such a record when the first JoinGroup creates the group, when the leader's SyncGroup has assignments,
when the group becomes empty, and when a static member takes its old place under a new id. So do the rules here, by
`store`; replaying the record then sets the state of the group.
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.protocol import error_codes as codes
from kadence.protocol.group_metadata_record import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kadence_broker.coordinator.classic.group import ClassicGroup, GroupState, Member
from kadence_broker.coordinator.classic.parking import (
    end_parked,
    join_key,
    rearm_session,
    session_key,
    sync_key,
)
from kadence_broker.coordinator.records import Record, batch_bytes
from kadence_broker.coordinator.shard import Shard

__all__ = ["create", "loaded", "replay", "store", "store_empty", "unload"]


def create(shard: Shard, now: int, group_id: str) -> ClassicGroup:
    """Create an empty group."""
    value = GroupMetadataValue(current_state_timestamp=shard.wall(now), protocol=None, leader=None)
    shard.write(GroupMetadataKey(group_id), value)
    group = shard.classic(group_id)
    assert group is not None
    return group


def store(shard: Shard, now: int, group: ClassicGroup, assignments: Mapping[str, bytes]) -> bool:
    """Write the group's generation with ``assignments`` by member id; members without one get none.

    Returns:
        False, with no effect, if the record would be longer than the coordinator's topic takes.
    """
    protocol = group.protocol_name or ""
    members = [
        MemberMetadata(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout=each.rebalance_timeout_ms,
            session_timeout=each.session_timeout_ms,
            subscription=each.metadata(protocol),
            assignment=assignments.get(each.member_id, b""),
        )
        for each in group.members.values()
    ]
    value = _value(shard, now, group, group.generation_id, group.protocol_name, group.leader_id, members)
    record = Record(GroupMetadataKey(group.group_id), value)
    sent = sum(len(each.subscription) + len(each.assignment) for each in members)
    # Most groups are far below the limit, and need not be encoded to know it.
    if sent > shard.config.max_batch_bytes // 2 and batch_bytes([record]) > shard.config.max_batch_bytes:
        return False
    shard.write(record.key, record.value)
    return True


def store_empty(shard: Shard, now: int, group: ClassicGroup) -> None:
    """Write a generation without members."""
    value = _value(shard, now, group, group.generation_id + 1, None, None, [])
    shard.write(GroupMetadataKey(group.group_id), value)


def _value(
    shard: Shard,
    now: int,
    group: ClassicGroup,
    generation: int,
    protocol: str | None,
    leader: str | None,
    members: list[MemberMetadata],
) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=shard.wall(now),
        members=members,
    )


def replay(shard: Shard, record: Record) -> None:
    """Set the group's state from the record; a tombstone removes it."""
    group_id, value = record.key.group, record.value
    group = shard.classic(group_id)
    if value is None:
        if group is not None:
            _cancel_timers(shard, group)
            group.state = GroupState.DEAD
            del shard.groups[group_id]
        return
    if group is None:
        group = shard.groups[group_id] = ClassicGroup(group_id)
    _install(group, value)


def _install(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Known members keep their unstored state: parked requests, and protocols that were not chosen."""
    known = {each.group_instance_id: each for each in group.members.values() if each.is_static}
    members: dict[str, Member] = {}
    for each in value.members:
        stored = _member(each, value.protocol or "")
        member = group.members.get(each.member_id) or known.get(each.group_instance_id) or stored
        member.take_over(stored)
        members[each.member_id] = member
    group.stored = value
    group.members = members
    group.protocols_changed()
    group.static_members = {
        each.group_instance_id: each.member_id
        for each in members.values()
        if each.group_instance_id is not None
    }
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    group.subscribed = group.subscribed_topics()
    group.empty_since = None if members else value.current_state_timestamp
    group.state = GroupState.STABLE if members else GroupState.EMPTY


def _member(stored: MemberMetadata, protocol: str) -> Member:
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=stored.rebalance_timeout
        if stored.rebalance_timeout >= 0
        else stored.session_timeout,
        protocols=[(protocol, stored.subscription)],
        assignment=stored.assignment,
        is_new=False,
    )


def loaded(shard: Shard, now: int, group: ClassicGroup) -> None:
    """Members from the log get a session timeout from now on to send a request."""
    for member in group.members.values():
        if session_key(group, member.member_id) not in shard.timers:
            rearm_session(shard, now, group, member)


def unload(shard: Shard, group: ClassicGroup) -> None:
    """The group has another coordinator now: parked requests end with NOT_COORDINATOR."""
    _cancel_timers(shard, group)
    for member in group.members.values():
        end_parked(shard, member, codes.NOT_COORDINATOR)
    group.state = GroupState.DEAD
    del shard.groups[group.group_id]


def _cancel_timers(shard: Shard, group: ClassicGroup) -> None:
    shard.timers.cancel(join_key(group))
    shard.timers.cancel(sync_key(group))
    for member_id in (*group.members, *group.pending_joins):
        shard.timers.cancel(session_key(group, member_id))
