"""``simple``: which members of a share group read which partitions (KIP-932, SimpleAssignor of Kafka 4.4).

A partition may have several members. With as many members as partitions or more, each partition goes to
⌈members / partitions⌉ of them; with fewer members, each partition goes to one. Balance goes before stickiness. Members
that subscribe to different topics are balanced topic by topic. Racks are not used.

Kafka goes through hash tables, so who gets what depends on hash codes; here it does in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, TypeVar

from kadence_broker.coordinator.java_tables import (
    JavaMap,
    in_set,
    in_table,
    number_hash,
    partition_hash,
    string_hash,
    timeline_order,
    topic_hash,
)
from kadence_broker.coordinator.partitions import Partitions

__all__ = ["ShareSpec", "assign"]

_P = TypeVar("_P")

Shares = dict[str, dict[bytes, set[int]]]


@dataclass(frozen=True, slots=True)
class ShareSpec:
    """The group.

    Attributes:
        subscriptions: the ids of the topics that each member subscribes to and that exist, in the order of the
            members' joining.
        had: the last target assignment, by member.
        assignable: the initialised partitions, ascending, of each topic.
        topics: if all members subscribe to the same names, their ids in the order of `in_set` of the names; else None.
    """

    subscriptions: Mapping[str, frozenset[bytes]]
    had: Mapping[str, Partitions]
    assignable: Mapping[bytes, Sequence[int]]
    topics: Sequence[bytes] | None


def assign(spec: ShareSpec) -> Shares:
    """Each member's partitions, by topic. Every member has an entry; topics without partitions have none."""
    if not any(spec.subscriptions.values()):
        return {member_id: {} for member_id in spec.subscriptions}
    members = in_table(string_hash, timeline_order(spec.subscriptions))
    plan = [
        {topic: set(numbers) for topic, numbers in spec.had.get(member_id, {}).items()}
        for member_id in members
    ]
    if spec.topics is None:
        _assign_by_topic(spec, members, plan)
    else:
        _assign_same_topics(spec, members, plan, spec.topics)
    return dict(zip(members, plan, strict=True))


def _assign_same_topics(
    spec: ShareSpec, members: list[str], plan: list[dict[bytes, set[int]]], topics: Sequence[bytes]
) -> None:
    targets = [(topic, number) for topic in topics for number in spec.assignable.get(topic, ())]
    balance = _Balance(partition_hash, targets, range(len(members)), len(members))
    for member, (member_id, held) in enumerate(zip(members, plan, strict=True)):
        for topic in [each for each in held if each not in topics]:
            del held[topic]
        for topic in in_table(topic_hash, sorted(spec.had.get(member_id, {}))):
            for number in _in_set_order(held.get(topic, ())):
                balance.has(member, (topic, number))
    balance.revoke_overfilled(balance.members_with_too_many())
    balance.revoke_overshared()
    balance.assign_rest(balance.wanting())
    for member, held in enumerate(plan):
        held.clear()
        for topic, number in balance.by_member.get(member, ()):
            held.setdefault(topic, set()).add(number)


def _assign_by_topic(spec: ShareSpec, members: list[str], plan: list[dict[bytes, set[int]]]) -> None:
    for topic in frozenset[bytes]().union(*spec.subscriptions.values()):
        readers = [at for at, member_id in enumerate(members) if topic in spec.subscriptions[member_id]]
        balance = _Balance(number_hash, spec.assignable.get(topic, ()), readers, len(members))
        for member, held in enumerate(plan):
            for number in _in_set_order(held.get(topic, ())):
                balance.has(member, number)
        balance.revoke_overfilled(balance.by_member)
        balance.revoke_overshared()
        balance.assign_rest(balance.wanting())
        for member, held in enumerate(plan):
            held.pop(topic, None)
            if balance.by_member.get(member):
                held[topic] = set(balance.by_member[member])


def _in_set_order(numbers: Iterable[int]) -> list[int]:
    """Numbers as Java's set of them gives them."""
    return in_set(number_hash, sorted(numbers))


class _Balance(Generic[_P]):
    """Who has what of some partitions; ``_P`` names one. Members are numbers.

    Args:
        hash_of: of a partition. targets: what may be given out. readers: the members that may get it.

    Attributes:
        by_member: the partitions of each member, as the keys of a table.
    """

    def __init__(
        self, hash_of: Callable[[_P], int], targets: Sequence[_P], readers: Sequence[int], members: int
    ) -> None:
        self._hash_of = hash_of
        self._targets = targets
        self._readers = readers
        self._sharing = -(-len(readers) // len(targets)) if targets else 0
        each = self._sharing * len(targets) / len(readers)
        self._wanted = [0] * members
        for at, member in enumerate(readers):
            self._wanted[member] = ceil(each * (at + 1)) - ceil(each * at)
        self._by_partition: JavaMap[_P, JavaMap[int, None]] = JavaMap.for_many(hash_of, len(targets))
        self.by_member: dict[int, JavaMap[_P, None]] = {}

    def has(self, member: int, partition: _P) -> None:
        """The member had the partition, which may not be assignable any more."""
        self._by_partition.compute(partition, JavaMap(number_hash)).put(member, None)
        self._holding(member).put(partition, None)

    def _holding(self, member: int) -> JavaMap[_P, None]:
        return self.by_member.setdefault(member, JavaMap(self._hash_of))

    def members_with_too_many(self) -> list[int]:
        return [member for member, held in self.by_member.items() if len(held) > self._wanted[member]]

    def wanting(self) -> list[int]:
        """The readers that have fewer than they should, in order."""
        return [
            member for member in self._readers if len(self.by_member.get(member, ())) < self._wanted[member]
        ]

    def revoke_overfilled(self, members: Iterable[int]) -> None:
        """Take the first partitions of members that have too many."""
        for member in members:
            held = self.by_member[member]
            for partition in held.in_order()[: max(len(held) - self._wanted[member], 0)]:
                del held[partition]
                del self._by_partition[partition][member]

    def revoke_overshared(self) -> None:
        """Take partitions from the first of too many members."""
        for partition, holders in self._by_partition.items():
            for member in holders.in_order()[: max(len(holders) - self._sharing, 0)]:
                del holders[member]
                del self.by_member[member][partition]

    def assign_rest(self, wanting: list[int]) -> None:
        """Give what is left to ``wanting``, each in turn, until they have what they should."""
        for target in self._targets:
            self._by_partition.compute(target, JavaMap(number_hash))
        turn = _Turn(wanting)
        for partition in self._by_partition.in_order():
            if not turn.members:
                return
            holders = self._by_partition[partition]
            left = self._sharing - len(holders)
            while left > 0 and (member := turn.next()) is not None:
                # Who gets the partition here is no holder to Kafka: in the next round it may "get" it again.
                if member in holders:
                    continue
                left -= 1
                held = self._holding(member)
                held.put(partition, None)
                turn.has_got(is_done=len(held) >= self._wanted[member])


class _Turn:
    """Goes round the members again and again, until a whole round gave none of them anything."""

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self._at = 0
        self._gave = False

    def next(self) -> int | None:
        """The next member; None: nobody can take anything more of this partition."""
        if self._at == len(self.members):
            if not self._gave or not self.members:
                return None
            self._at, self._gave = 0, False
        self._at += 1
        return self.members[self._at - 1]

    def has_got(self, *, is_done: bool) -> None:
        """The member that was named last has got something; ``is_done``: it gets nothing more."""
        self._gave = True
        if is_done:
            self._at -= 1
            del self.members[self._at]
