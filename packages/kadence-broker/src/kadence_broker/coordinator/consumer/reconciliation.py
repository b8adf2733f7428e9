"""The next step of one member towards its target: revoke first, then get (KIP-848, CurrentAssignmentBuilder).

A partition is assigned to a member only when no other has it. A member that must revoke partitions stays at its
epoch until a heartbeat reports its partitions without them; revoking never raises an epoch by itself (KAFKA-19974).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kadence_broker.coordinator.consumer.member import Member, MemberState
from kadence_broker.coordinator.partitions import Epochs, Partitions

__all__ = ["Target", "reconcile"]


@dataclass(frozen=True, slots=True)
class Target:
    """The target of one member.

    Attributes:
        epoch: of the target assignment.
        partitions: this member's part of it.
        subscribed: ids of the topics that the member subscribes to now. Partitions of other topics in the target are
            not for it any more: the subscription may be newer than the target.
    """

    epoch: int
    partitions: Partitions
    subscribed: frozenset[bytes]


def reconcile(
    member: Member, target: Target, owned: Partitions | None, is_taken: Callable[[bytes, int], bool]
) -> Member:
    """The member after one step; the same value if there is nothing to do.

    Args:
        owned: the partitions that the member reported; None if it reported none.
        is_taken: whether any member, this one included, has a partition or is still to revoke it.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return _drop_unsubscribed(member, target, owned)
        case MemberState.UNREVOKED_PARTITIONS if _owns(owned, member.revoking):
            return _drop_unsubscribed(member, target, owned)
    return _step(member, target, owned, is_taken)


def _step(
    member: Member, target: Target, owned: Partitions | None, is_taken: Callable[[bytes, int], bool]
) -> Member:
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    new: list[tuple[bytes, int]] = []
    waits = False
    for topic in member.assigned.keys() | target.partitions.keys():
        wanted = (
            target.partitions.get(topic, frozenset[int]()) if topic in target.subscribed else frozenset[int]()
        )
        had = member.assigned.get(topic, {})
        for partition, epoch in had.items():
            (assigned if partition in wanted else revoking).setdefault(topic, {})[partition] = epoch
        its_own = member.revoking.get(topic, {})
        for partition in wanted - had.keys():
            if is_taken(topic, partition) and partition not in its_own:
                waits = True
            else:
                new.append((topic, partition))
    if revoking and _owns(owned, revoking):
        return member.at_epoch(member.epoch).evolved(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking
        )
    for topic, partition in new:
        assigned.setdefault(topic, {})[partition] = target.epoch
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    after = member.evolved(state=state, assigned=assigned, revoking={})
    return member if after == member and member.epoch == target.epoch else after.at_epoch(target.epoch)


def _drop_unsubscribed(member: Member, target: Target, owned: Partitions | None) -> Member:
    """Revoke partitions of topics that the member unsubscribed from, without waiting for a new target."""
    gone = {topic: epochs for topic, epochs in member.assigned.items() if topic not in target.subscribed}
    if not gone:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic not in gone}
    revoking: dict[bytes, Mapping[int, int]] = {**member.revoking}
    for topic, epochs in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **epochs}
    after = member.at_epoch(member.epoch).evolved(assigned=assigned)
    if _owns(owned, revoking):
        return after.evolved(state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return after


def _owns(owned: Partitions | None, partitions: Epochs) -> bool:
    """True if the member may still have one of them: it reported so, or reported nothing."""
    if owned is None:
        return True
    return any(not owned[topic].isdisjoint(partitions[topic]) for topic in owned.keys() & partitions.keys())
