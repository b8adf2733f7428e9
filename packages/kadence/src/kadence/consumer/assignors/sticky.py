"""Kafka's ``sticky`` and ``cooperative-sticky``: balanced, and members keep their partitions where balance allows.

*sticky* (KIP-54) is eager: members give everything up before they join, so the user data contains the partitions that
they had, with the generation in which they got them (KIP-341). Its bytes have no version: an array of topics with their
partitions, then the generation, which members before Kafka 2.3 leave out.

*cooperative-sticky*: members claim what they own when they join. A partition that is still claimed by another member
than the chosen one is not assigned in this round (KIP-429): its old owner gives it up first, and a second round assigns
it. Under the eager protocol nothing is claimed when members join, so only balance is left.

`Plan`, of both, is as even as subscriptions permit, and partitions move only for that. Four steps:

1. *Keep.* Each partition stays with the member that claims it; the claim of a higher generation wins, and of
   two claims of one generation neither does (KIP-792: one of them is a zombie, and it is unknown which).
2. *Fill.* Each free partition goes to the least loaded member that reads its topic; which of a topic's partitions
   to which of them is chosen by rack, where that matters (KIP-881).
3. *Settle.* As the next step, but only partitions that no member keeps are moved, so that none goes to a member that
   would have to give up another partition for it.
4. *Balance.* While a chain of moves leads from a member to one with at least two partitions less, follow the shortest.
   When no such chain is left, the loads cannot be made more even: this is the optimal semi-matching of Harvey, Ladner,
   Lovász and Tamir (2003), whose cost-reducing paths these chains are. With equal subscriptions a chain is a single
   move. Each chain makes the sum of the squared loads smaller, so it ends.

A cooperative group agrees after two rounds. The first makes a plan that is as even as possible, and members give up the
partitions that the plan gives to others. In the second all claims are part of that plan, and the rest of the plan shows
that the free partitions can be assigned so that the whole is as even again. *Settle* finds such an assignment, as an
optimal semi-matching of the free partitions alone. So no chain is left for *Balance*, and no member gives up another
partition.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Iterable, Mapping

from kadence.consumer.assignors.base import (
    Assignment,
    Assignor,
    LastAssignment,
    MemberSubscription,
    Racks,
    RebalanceProtocol,
)
from kadence.types import TopicPartition
from kadence.wire import Reader, WireError, Writer, parser

__all__ = ["Claims", "CooperativeStickyAssignor", "Plan", "StickyAssignor", "generation_of", "withhold"]

_INT32 = struct.Struct(">i")


class StickyAssignor(Assignor):
    """Kafka's ``sticky`` assignor, eager and balanced: members keep partitions where balance allows."""

    name = "sticky"

    def user_data(self, last: LastAssignment) -> bytes | None:
        return None if last.generation < 0 else _encode(last)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        claims = {name: _decode(said.user_data) for name, said in members.items()}
        return Plan(partitions, members, claims).made()


def _encode(last: LastAssignment) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(last.partitions):
        topics.setdefault(topic, []).append(number)
    writer = Writer()
    writer.put(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.int32s(numbers)
    writer.put(_INT32.pack(last.generation))
    return writer.getvalue()


def _decode(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """The partitions that a member had.

    Unreadable bytes claim nothing: a member is not refused for the sake of stickiness.
    """
    if not data:
        return [], -1
    try:
        return _read(data)
    except WireError:
        return [], -1


@parser
def _read(data: bytes) -> tuple[list[TopicPartition], int]:
    reader = Reader(data)
    found = []
    for _ in range(reader.count()):
        topic = reader.string()
        found += [TopicPartition(topic, number) for number in reader.int32s()]
    return found, reader.int32() if reader.remaining else -1


_GENERATION = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """Kafka's ``cooperative-sticky`` assignor: balanced; members keep partitions where balance allows."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def user_data(self, last: LastAssignment) -> bytes | None:
        """The generation, where members before Kafka 3.4 look for it; newer ones have a field for it (KIP-792)."""
        return _GENERATION.pack(last.generation)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        claims = {name: (said.owned, generation_of(said)) for name, said in members.items()}
        return withhold(Plan(partitions, members, claims).made(), partitions, claims)


def generation_of(subscription: MemberSubscription) -> int:
    """The generation of a member's claims: from the field of newer members, else from the user data of older ones."""
    if subscription.generation >= 0:
        return subscription.generation
    data = subscription.user_data
    return _GENERATION.unpack_from(data)[0] if data is not None and len(data) >= _GENERATION.size else -1


Claims = Mapping[str, tuple[Iterable[TopicPartition], int]]
"""The partitions that each member claims, and the generation in which it got them; −1: not reported."""


class Plan:
    """An assignment in the making. Members are always looked at in one order, so equal input gives equal output."""

    def __init__(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], claims: Claims
    ) -> None:
        self._counts = counts
        self._members = members
        # Topics with the same readers share one tuple, so a search looks at each set of readers once.
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._readers: dict[str, tuple[str, ...]] = {}
        for topic in sorted(counts):
            readers = tuple(sorted(m for m in members if topic in members[m].topics))
            self._readers[topic] = shared.setdefault(readers, readers)
        # Per member and topic, in order, so that choosing what moves is deterministic.
        self._held: dict[str, dict[str, dict[TopicPartition, None]]] = {m: {} for m in sorted(members)}
        self._load: dict[str, int] = dict.fromkeys(sorted(members), 0)
        self._racks = Racks(counts, members)
        self._claims = _claimed(counts, claims)
        self._owner: dict[TopicPartition, str] = {}
        self._kept: set[TopicPartition] = set()
        self._kept_may_move = True

    def keep(self) -> None:
        for partition in sorted(self._claims):
            claims = self._claims[partition]
            best = max(claims.values())
            winners = [member for member, generation in claims.items() if generation == best]
            if len(winners) == 1 and partition.topic in self._members[winners[0]].topics:
                self._give(partition, winners[0])
                self._kept.add(partition)

    def fill(self) -> None:
        """By topic, so that a topic's partitions are spread; topics with few readers first, which have no choice."""
        for topic in sorted(self._readers, key=lambda t: (len(self._readers[t]), t)):
            readers = self._readers[topic]
            if not readers:
                continue
            free = [
                p
                for p in (TopicPartition(topic, number) for number in range(self._counts[topic]))
                if p not in self._owner
            ]
            takers = list(self._least_loaded(readers, len(free)))
            if self._racks.matter(topic, readers):
                free = self._racks.paired(free, takers)
            for member, partition in zip(takers, free, strict=True):
                self._give(partition, member)

    def _least_loaded(self, readers: tuple[str, ...], count: int) -> Iterable[str]:
        """``count`` times the least loaded of the readers, each choice counted."""
        heap = [(self._load[member], rank) for rank, member in enumerate(readers)]
        heapq.heapify(heap)
        for _ in range(count):
            load, rank = heap[0]
            heapq.heapreplace(heap, (load + 1, rank))
            yield readers[rank]

    def settle(self) -> None:
        """Balance as far as the partitions that no member keeps allow."""
        if self._kept and len(self._kept) < len(self._owner):
            self._kept_may_move = False
            self.balance()
            self._kept_may_move = True

    def balance(self) -> None:
        """Cost-reducing paths from the most loaded members first, until there is none from any of them."""
        settled: set[str] = set()
        while True:
            open_ = [m for m in self._load if m not in settled]
            if not open_:
                return
            start = max(open_, key=lambda m: (self._load[m], m))
            path = self._path(start)
            if path is None:
                # It stays so: a later chain starts at no heavier a member and ends two below it, so none of
                # its members is reachable from here, and what is reachable from here does not change.
                settled.add(start)
                continue
            for giver, topic, taker in path:
                self._move(self._to_move(giver, topic), giver, taker)

    def _path(self, start: str) -> list[tuple[str, str, str]] | None:
        """The shortest chain (giver, topic, taker) from ``start`` to a member with at least two partitions less."""
        limit = self._load[start] - 2
        came_from: dict[str, tuple[str, str]] = {}
        seen = {start}
        looked_at: set[int] = set()
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            best: str | None = None
            for topic in self._held[giver]:
                readers = self._readers[topic]
                if id(readers) in looked_at or not self._may_move(giver, topic):
                    continue
                looked_at.add(id(readers))
                for taker in readers:
                    if taker in seen:
                        continue
                    seen.add(taker)
                    came_from[taker] = (giver, topic)
                    queue.append(taker)
                    if self._load[taker] <= limit and (best is None or self._load[taker] < self._load[best]):
                        best = taker
            if best is not None:
                return _chain(came_from, start, best)
        return None

    def _may_move(self, giver: str, topic: str) -> bool:
        # Kept partitions were given first: any other partition of the topic comes last.
        held = self._held[giver][topic]
        return bool(held) and (self._kept_may_move or next(reversed(held)) not in self._kept)

    def _to_move(self, giver: str, topic: str) -> TopicPartition:
        """A partition that may move: one that its reader does not read yet, if there is one; else the last."""
        held = self._held[giver][topic]
        for partition in reversed(held):
            if giver not in self._claims.get(partition, ()):
                return partition
        return next(reversed(held))

    def _give(self, partition: TopicPartition, member: str) -> None:
        self._owner[partition] = member
        self._held[member].setdefault(partition.topic, {})[partition] = None
        self._load[member] += 1

    def _move(self, partition: TopicPartition, giver: str, taker: str) -> None:
        del self._held[giver][partition.topic][partition]
        self._load[giver] -= 1
        self._give(partition, taker)

    def made(self) -> Assignment:
        """Keep, fill, settle, balance: returns the partitions of each member."""
        self.keep()
        self.fill()
        self.settle()
        self.balance()
        result: Assignment = {member: [] for member in self._members}
        for partition in sorted(self._owner):
            result[self._owner[partition]].append(partition)
        return result


def withhold(plan: Assignment, counts: Mapping[str, int], claims: Claims) -> Assignment:
    """The plan without partitions that members other than the chosen one still claim (KIP-429).

    The old owner sees that it is gone, gives it up and rejoins; then it is free. So no partition ever has two
    owners, whatever the members' timing.
    """
    claimed = _claimed(counts, claims)
    return {
        member: [p for p in partitions if p not in claimed or _keeps(member, claimed[p])]
        for member, partitions in plan.items()
    }


def _claimed(counts: Mapping[str, int], claims: Claims) -> dict[TopicPartition, dict[str, int]]:
    """The members that claim each existing partition, with the generation of the claim."""
    claimed: dict[TopicPartition, dict[str, int]] = {}
    for member, (partitions, generation) in claims.items():
        for partition in partitions:
            if 0 <= partition.partition < counts.get(partition.topic, 0):
                claimed.setdefault(partition, {})[member] = generation
    return claimed


def _keeps(owner: str, claims: Mapping[str, int]) -> bool:
    """Whether a plan that chose ``owner`` leaves the partition with its current owner."""
    mine = claims.get(owner)
    return mine is not None and all(mine > other for member, other in claims.items() if member != owner)


def _chain(came_from: Mapping[str, tuple[str, str]], start: str, end: str) -> list[tuple[str, str, str]]:
    path = []
    while end != start:
        giver, topic = came_from[end]
        path.append((giver, topic, end))
        end = giver
    return path[::-1]
