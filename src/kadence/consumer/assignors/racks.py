"""Members near the partitions that they read (KIP-881): in a rack where one of the replicas is.

Balance comes first for every assignor; of the ways to be as even, one that reads near is taken. Where racks tell
nothing (no member says its rack, none of them has a replica, or every partition has one in every rack) all is as
without them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kadence.consumer.assignors.base import MemberSubscription, Topics
from kadence.types import TopicPartition

__all__ = ["Racks"]


class Racks:
    """Who is near what.

    Args:
        partitions: the topics; only `Topics` know where replicas are.
    """

    def __init__(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> None:
        self._members = {name: said.rack for name, said in members.items()}
        self._topics = partitions if isinstance(partitions, Topics) and any(self._members.values()) else None

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member has a replica in its rack. One that does not say where it is, is near everything."""
        rack = self._members[member]
        return not rack or self._topics is None or rack in self._topics.racks(partition)

    def matter(self, topic: str, readers: Iterable[str]) -> bool:
        """Whether it makes a difference who of the readers gets which partition of the topic."""
        if self._topics is None:
            return False
        places = {self._topics.racks(TopicPartition(topic, n)) for n in range(self._topics[topic])}
        replicated = frozenset[str]().union(*places)
        return len(places) > 1 and any(self._members[reader] in replicated for reader in readers)

    def paired(self, partitions: list[TopicPartition], takers: list[str]) -> list[TopicPartition]:
        """The partitions in such an order that as many as can be are near to their taker, the one at the same place.

        A maximum matching by augmenting paths, of kinds rather than of single ones: partitions with the same racks
        are alike, and so are takers in the same rack.
        """
        assert self._topics is not None
        room = Counter(self._members[taker] or "" for taker in takers)
        pairs = _Pairs(room)
        far = [
            partition for partition in partitions if not pairs.place(partition, self._topics.racks(partition))
        ]
        near = {rack: deque(sorted(pairs.at(rack))) for rack in room}
        rest = deque(far)
        return [(near[rack] or rest).popleft() for rack in (self._members[taker] or "" for taker in takers)]


class _Pairs:
    """Partitions placed in racks, each rack up to its room; the rack "" is near to all."""

    def __init__(self, room: Mapping[str, int]) -> None:
        self._room = dict(room)
        self._held: dict[str, dict[frozenset[str], list[TopicPartition]]] = {rack: {} for rack in room}

    def at(self, rack: str) -> list[TopicPartition]:
        return [partition for kind in self._held[rack].values() for partition in kind]

    def place(self, partition: TopicPartition, racks: frozenset[str]) -> bool:
        """Put it into one of its racks, moving others to racks of theirs if need be. False: there is no way."""
        left_by: dict[frozenset[str], str] = {}
        entered: dict[str, frozenset[str]] = {}
        queue = deque([racks])
        while queue:
            kind = queue.popleft()
            for rack in self._room:
                if rack in entered or (rack and rack not in kind):
                    continue
                entered[rack] = kind
                if self._room[rack]:
                    self._room[rack] -= 1
                    self._shift(partition, racks, rack, entered, left_by)
                    return True
                for other, held in self._held[rack].items():
                    if held and other != racks and other not in left_by:
                        left_by[other] = rack
                        queue.append(other)
        return False

    def _shift(
        self,
        partition: TopicPartition,
        racks: frozenset[str],
        into: str,
        entered: Mapping[str, frozenset[str]],
        left_by: Mapping[frozenset[str], str],
    ) -> None:
        """Along the path that was found, from its end: each rack takes one that the rack before it lets go."""
        while (kind := entered[into]) != racks:
            before = left_by[kind]
            self._held[into].setdefault(kind, []).append(self._held[before][kind].pop())
            into = before
        self._held[into].setdefault(racks, []).append(partition)
