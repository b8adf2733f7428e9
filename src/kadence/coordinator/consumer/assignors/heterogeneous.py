"""``uniform`` where members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Three steps: everybody keeps what it had and may have; what is free goes to the reader with the fewest partitions,
the scarcest topics first; then partitions move, topic by topic, from the reader with most to the one with fewest, until
no topic's readers differ by more than one (where one reader cannot give, the next gives).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kadence.coordinator.consumer.assignors.specification import GroupSpec, Shares

__all__ = ["assign"]

_PASSES = 16
"""Two are enough for most subscriptions; where they overlap in odd ways each pass roughly halves the imbalance."""


def assign(spec: GroupSpec) -> Shares:
    """Balance before stickiness, as far as the subscriptions allow."""
    sharing = _Sharing(spec)
    sharing.give_what_is_free()
    for _ in range(_PASSES):
        if not sum([sharing.balance(topic) for topic in sharing.topics]):
            break
    return sharing.result()


class _Sharing:
    """The shares while they are made.

    Attributes:
        topics: those with readers, the ones with most partitions for each reader first.
        loads: how many partitions each member has.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._counts = spec.counts
        self._order = {member_id: index for index, member_id in enumerate(spec.members)}
        self._readers: dict[bytes, list[str]] = {}
        for member_id, member in spec.members.items():
            for topic in member.topics:
                self._readers.setdefault(topic, []).append(member_id)
        self.topics = sorted(self._readers, key=self._scarcity)
        self.loads = dict.fromkeys(spec.members, 0)
        self._owners: dict[bytes, dict[int, str]] = {topic: {} for topic in self.topics}
        for member_id, member in spec.members.items():
            for topic in member.had.keys() & member.topics:
                for partition in member.had[topic]:
                    if partition < spec.counts[topic] and partition not in self._owners[topic]:
                        self._give(topic, partition, member_id)

    def give_what_is_free(self) -> None:
        for topic in self.topics:
            heap = self._heap(self._readers[topic])
            for partition in range(self._counts[topic]):
                if partition not in self._owners[topic]:
                    _, _, member_id = heap[0]
                    self._give(topic, partition, member_id)
                    heapq.heapreplace(heap, self._entry(member_id))

    def balance(self, topic: bytes) -> int:
        """Even out the loads of a topic's readers; how many partitions moved."""
        held: dict[str, list[int]] = {}
        for partition, owner in sorted(self._owners[topic].items()):
            held.setdefault(owner, []).append(partition)
        takers = self._heap(self._readers[topic])
        givers = [(-load, index, member_id) for load, index, member_id in self._heap(held)]
        heapq.heapify(givers)
        moved = 0
        while givers:
            giver = givers[0][2]
            taker = takers[0][2]
            if self.loads[giver] - self.loads[taker] <= 1:
                break
            partition = held[giver].pop()
            self.loads[giver] -= 1
            self._give(topic, partition, taker)
            moved += 1
            heapq.heapreplace(takers, self._entry(taker))
            if held[giver]:
                heapq.heapreplace(givers, (-self.loads[giver], self._order[giver], giver))
            else:
                heapq.heappop(givers)
        return moved

    def result(self) -> Shares:
        shares: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self.loads}
        for topic, owners in self._owners.items():
            for partition, member_id in owners.items():
                shares[member_id].setdefault(topic, set()).add(partition)
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in topics.items()}
            for member_id, topics in shares.items()
        }

    def _scarcity(self, topic: bytes) -> tuple[float, int, bytes]:
        readers = len(self._readers[topic])
        return (-self._counts[topic] / readers, readers, topic)

    def _give(self, topic: bytes, partition: int, member_id: str) -> None:
        self._owners[topic][partition] = member_id
        self.loads[member_id] += 1

    def _entry(self, member_id: str) -> tuple[int, int, str]:
        return (self.loads[member_id], self._order[member_id], member_id)

    def _heap(self, members: Iterable[str]) -> list[tuple[int, int, str]]:
        heap = [self._entry(member_id) for member_id in members]
        heapq.heapify(heap)
        return heap
