"""``uniform`` if members subscribe to different topics (Kafka's UniformHeterogeneousAssignmentBuilder).

Three steps: each member keeps its partitions if it may; free ones go to the reader with the fewest partitions,
the scarcest topics first; then partitions move, topic by topic, from the reader with most to the one with fewest, until
no topic's readers differ by more than one (where one reader cannot give, the next gives). Ties end as in Kafka.
"""

from __future__ import annotations

from itertools import cycle, islice

from kadence_broker.coordinator.consumer.assignors.scale import Scale
from kadence_broker.coordinator.consumer.assignors.specification import GroupSpec, Shares

__all__ = ["assign"]

_PASSES = 16
"""Two are enough for most subscriptions; if they overlap in odd ways, each pass roughly halves the imbalance."""


def assign(spec: GroupSpec) -> Shares:
    """Balance before stickiness, as far as the subscriptions allow."""
    sharing = _Sharing(spec)
    sharing.give_what_is_free()
    sharing.balance()
    return sharing.result()


class _Sharing:
    """The shares in progress; members are numbers, in the order of the specification.

    Attributes:
        loads: the number of partitions of each member.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._counts = spec.counts
        self._members = list(spec.members)
        self._readers: dict[bytes, list[int]] = {}
        for member, each in enumerate(spec.members.values()):
            for topic in each.topics:
                self._readers.setdefault(topic, []).append(member)
        self._topics = sorted(self._readers, key=self._scarcity)
        self.loads = [0] * len(self._members)
        self._owners: dict[bytes, dict[int, int]] = {topic: {} for topic in self._topics}
        for member, each in enumerate(spec.members.values()):
            for topic in each.had.keys() & each.topics:
                for partition in each.had[topic]:
                    if partition < spec.counts[topic] and partition not in self._owners[topic]:
                        self._give(topic, partition, member)

    def give_what_is_free(self) -> None:
        for topic in self._topics:
            free = [each for each in range(self._counts[topic]) if each not in self._owners[topic]]
            if not free:
                continue
            scale = Scale(self._readers[topic], self.loads)
            for partition in free:
                self._give(topic, partition, scale.lightest())

    def balance(self) -> None:
        """Balance topics in turn, until a whole round moves nothing."""
        shared = [topic for topic in self._topics if len(self._readers[topic]) > 1]
        still = 0
        for topic in islice(cycle(shared), _PASSES * len(shared)):
            still = 1 if self._balance(topic) else still + 1
            if still >= len(shared):
                return

    def _balance(self, topic: bytes) -> bool:
        """Balance the loads of a topic's readers; return whether something moved."""
        scale = Scale(self._readers[topic], self.loads)
        if scale.spread <= 1:
            return False
        held: dict[int, list[int]] = {}
        for partition, owner in sorted(self._owners[topic].items()):
            held.setdefault(owner, []).append(partition)
        moved = False
        while not scale.is_even():
            giver = scale.heaviest(held)
            if giver is None:
                break
            partition = held[giver].pop()
            taker = scale.lightest()
            if scale.is_even():
                break
            self.loads[giver] -= 1
            self._give(topic, partition, taker)
            moved = True
        return moved

    def result(self) -> Shares:
        shares: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self._members}
        for topic, owners in self._owners.items():
            for partition, member in owners.items():
                shares[self._members[member]].setdefault(topic, set()).add(partition)
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in topics.items()}
            for member_id, topics in shares.items()
        }

    def _scarcity(self, topic: bytes) -> tuple[float, int, bytes]:
        readers = len(self._readers[topic])
        return (-self._counts[topic] / readers, readers, topic)

    def _give(self, topic: bytes, partition: int, member: int) -> None:
        self._owners[topic][partition] = member
        self.loads[member] += 1
