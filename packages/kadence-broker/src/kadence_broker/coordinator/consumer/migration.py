"""Converts a group from one protocol to the other while it has members (KIP-848, "online migration").

Up: the first KIP-848 heartbeat that joins upgrades a classic group; its members stay and rejoin in time. Down:
when the last member of KIP-848's protocol leaves and classic ones remain. Empty groups just change. Offsets
stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kadence.protocol import error_codes as codes
from kadence.protocol.group_metadata_record import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kadence_broker.coordinator.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from kadence_broker.coordinator.classic.group import Member as OldMember
from kadence_broker.coordinator.classic.parking import end_parked, rearm_session
from kadence_broker.coordinator.classic.rebalance import prepare
from kadence_broker.coordinator.consumer import writing
from kadence_broker.coordinator.consumer.embedded import (
    BadMetadataError,
    assigned_partitions,
    assignment_bytes,
    subscription,
)
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import consumer_group, find_group
from kadence_broker.coordinator.consumer.member import ClassicMetadata, Member
from kadence_broker.coordinator.consumer.membership import (
    arm_session,
    cancel,
    refuse_if_full,
    remove,
    take_out,
)
from kadence_broker.coordinator.metadata_hash import metadata_hash
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard

__all__ = ["can_downgrade_by_join", "downgrade", "fence", "upgraded"]


def upgraded(shard: Shard, now: int, group_id: str, limit: int) -> ConsumerGroup:
    """A KIP-848 group of that name: an upgraded classic group, or a new one, which its first record makes.

    Raises:
        RefusedError: GROUP_ID_NOT_FOUND: the group cannot be upgraded; GROUP_MAX_SIZE_REACHED.
    """
    classic = shard.classic(group_id)
    group = ConsumerGroup(group_id)
    if classic is None and group_id in shard.groups:
        raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if classic is None:
        refuse_if_full(group, "", limit)
    elif classic.is_empty:
        # As in Kafka: its pending member ids go with it, and may be used to join the new group.
        refuse_if_full(group, "", limit)
        _forget(shard, classic)
    else:
        members = _members(shard, classic)
        if len(members) >= limit:
            raise RefusedError(
                codes.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )
        _turn_over(shard, now, classic, members)
    # The group exists from its first record on; until then this object stands in for a caller about to write it.
    return find_group(shard, group_id) or group


def _members(shard: Shard, classic: ClassicGroup) -> list[Member]:
    """The classic group's members, as members of a KIP-848 group at the epoch of their generation."""
    if not shard.config.consumer_upgrades or not classic.is_consumer_group:
        raise RefusedError(codes.GROUP_ID_NOT_FOUND, f"Group {classic.group_id} is not a consumer group.")
    try:
        return [_member(shard, classic, each) for each in classic.members.values()]
    except BadMetadataError as problem:
        raise RefusedError(
            codes.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group: {problem}.",
        ) from None


def _member(shard: Shard, classic: ClassicGroup, old: OldMember) -> Member:
    said = subscription(old.metadata(classic.protocol_name or old.protocols[0][0]))
    had = assigned_partitions(old.assignment, shard.topics)
    generation = classic.generation_id
    return Member(
        old.member_id,
        instance_id=old.group_instance_id,
        rack_id=said.rack_id or None,
        client_id=old.client_id,
        client_host=old.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicMetadata(old.session_timeout_ms, tuple(old.protocols)),
        epoch=generation,
        previous_epoch=generation,
        assigned={topic: dict.fromkeys(numbers, generation) for topic, numbers in had.items()},
    )


def _turn_over(shard: Shard, now: int, classic: ClassicGroup, members: list[Member]) -> None:
    """Upgrade the group; parked requests of the classic members end with REBALANCE_IN_PROGRESS."""
    for old in list(classic.members.values()):
        end_parked(shard, old, codes.REBALANCE_IN_PROGRESS)
    _forget(shard, classic)
    group_id, epoch = classic.group_id, classic.generation_id
    for member in members:
        writing.write_member(shard, group_id, member)
    topics = {name for member in members for name in member.topics}
    writing.write_epoch(shard, group_id, epoch, metadata_hash(topics, shard.topics))
    for member in members:
        target = {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}
        writing.write_target(shard, group_id, member.member_id, target)
    writing.write_target_epoch(shard, group_id, epoch, 0)
    for member in members:
        writing.write_assignment(shard, group_id, member)
        arm_session(shard, now, consumer_group(shard, group_id), member)


def _forget(shard: Shard, classic: ClassicGroup) -> None:
    """Remove the classic group; its offsets stay."""
    shard.write(GroupMetadataKey(classic.group_id), None)


def fence(shard: Shard, now: int, group: ConsumerGroup, member_ids: Collection[str]) -> None:
    """Remove members; if only classic members are left, downgrade the group."""
    if can_downgrade(shard, group, member_ids):
        # Its generation is the epoch that the members know, so they get REBALANCE_IN_PROGRESS, not ILLEGAL_GENERATION.
        remove(shard, group, member_ids)
        prepare(shard, now, downgrade(shard, now, group, group.epoch))
    else:
        take_out(shard, group, member_ids)


def can_downgrade(shard: Shard, group: ConsumerGroup, without: Collection[str]) -> bool:
    """True if all other members speak the classic protocol."""
    left = len(group.members) - len(without)
    left_classic = group.classic_members - sum(group.members[each].classic is not None for each in without)
    return shard.config.consumer_downgrades and 0 < left == left_classic and left <= shard.config.max_size


def can_downgrade_by_join(shard: Shard, group: ConsumerGroup, instance_id: str | None) -> bool:
    """True if the static member of that instance id is the only one that does not speak the classic protocol."""
    member = group.static_member(instance_id)
    return (
        shard.config.consumer_downgrades
        and member is not None
        and member.classic is None
        and group.classic_members == len(group.members) - 1
        and len(group.members) <= shard.config.max_size
    )


def downgrade(shard: Shard, now: int, group: ConsumerGroup, generation: int) -> ClassicGroup:
    """Make a classic group of the members, Stable at that generation with their targets as assignments."""
    members = list(group.members.values())
    targets = {member.member_id: group.target.get(member.member_id, {}) for member in members}
    for member in members:
        cancel(shard, group, member.member_id)
    writing.remove_group(shard, group)
    protocol = _common_protocol(members)
    value = GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=generation,
        protocol=protocol,
        leader=members[0].member_id,
        current_state_timestamp=shard.wall(now),
        members=[_old_member(shard, member, protocol, targets[member.member_id]) for member in members],
    )
    shard.write(GroupMetadataKey(group.group_id), value)
    classic = shard.classic(group.group_id)
    assert classic is not None
    assert classic.state is GroupState.STABLE
    for member in members:
        old = classic.members[member.member_id]
        assert member.classic is not None
        # The record has the metadata of one protocol; the member's other protocols are kept beside it.
        old.protocols = list(member.classic.protocols)
        old.is_new = False
        rearm_session(shard, now, classic, old)
    classic.protocols_changed()
    return classic


def _common_protocol(members: list[Member]) -> str:
    """Of the common protocols, the one that most members list first, as a classic group chooses it."""
    known = [
        [name for name, _ in member.classic.protocols] for member in members if member.classic is not None
    ]
    common = [name for name in known[0] if all(name in names for names in known)]
    votes = Counter(next(name for name in names if name in common) for names in known)
    return max(common, key=votes.__getitem__)


def _old_member(shard: Shard, member: Member, protocol: str, target: Partitions) -> MemberMetadata:
    assert member.classic is not None
    metadata = dict(member.classic.protocols)[protocol]
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=metadata,
        assignment=assignment_bytes(target, metadata, shard.topics),
    )
