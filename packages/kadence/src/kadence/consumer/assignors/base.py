"""The basis of every client-side assignor: the base class, members' subscriptions, and racks.

An assignor is a pure function that the group's leader runs for all members. It gets the partition counts and each
member's subscription and nothing else, so it can run on the helper thread and be tested without a group.

`Racks` (KIP-881): members near the partitions that they read, in a rack where one of the replicas is.
Balance comes first for every assignor; among equally even assignments, one that reads near is chosen. Where racks do
not help (no member reports its rack, none of them has a replica, or every partition has one in every rack) the result
is the same as without them.
"""

from __future__ import annotations

import abc
import enum
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kadence.lazy_dataclasses import dataclass
from kadence.types import TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "LastAssignment",
    "MemberSubscription",
    "Racks",
    "RebalanceProtocol",
    "Topics",
    "in_order",
]

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id; an empty list for a member that gets none."""


class RebalanceProtocol(enum.IntEnum):
    """How members give partitions up (KIP-429). The highest that all configured assignors support is used."""

    EAGER = 0
    """A member gives all partitions up before it joins."""
    COOPERATIVE = 1
    """A member gives up only the partitions that move, after the assignment.

    A second rebalance gives them to their new owners.
    """


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of one member, as it was sent in JoinGroup.

    Attributes:
        topics: the topics that it subscribes to. owned: the partitions that it reports as its own.
        generation: the generation in which it got them; −1: not reported (KIP-792).
        user_data: the result of its `Assignor.user_data`. rack: its client.rack.
        instance_id: its group.instance.id (KIP-345); None for a dynamic member.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LastAssignment:
    """The last assignment of this member, whether or not it still owns the partitions; empty before the first one.

    Attributes:
        generation: the generation of that assignment; −1 before the first one.
    """

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = -1


class Topics(dict[str, int]):
    """The topics that exist, each with its number of partitions; and where their replicas are (KIP-881)."""

    def __init__(
        self, counts: Mapping[str, int], racks: Mapping[TopicPartition, frozenset[str]] | None = None
    ) -> None:
        super().__init__(counts)
        self._racks = dict(racks or {})

    def racks(self, partition: TopicPartition) -> frozenset[str]:
        """The racks of the brokers that have a replica of it, as far as they are known."""
        return self._racks.get(partition, frozenset())


class Assignor(abc.ABC):
    """Base of every assignor; a class of your own goes into ``partition.assignment.strategy`` as an object.

    All members of a group must have an assignor of the same `name`, and the group's leader runs it for all of them.
    It runs on a helper thread, so it may take long: heartbeats go on meanwhile. If it raises or returns an invalid
    assignment (a partition that does not exist, that two members get, or whose topic the member does not read), the
    leader's ``poll()`` raises `AssignorError`, and the group goes on without the leader.

        class Alphabetic(Assignor):
            name = "alphabetic"

            def assign(self, partitions, members):
                first = min(members)
                return {first: [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]}

    Attributes:
        name: its name in JoinGroup. The broker chooses a name that all members have.
        protocols: how members may give partitions up. With COOPERATIVE the leader does not give a partition that
            another member still owns to its new owner until the next rebalance (KIP-429).
    """

    name: str
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, last: LastAssignment) -> bytes | None:
        """Bytes that this member sends to the leader's assignor with its subscription; empty by default.

        Args:
            last: this member's last assignment.
        """
        del last
        return None

    @abc.abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Assign partitions to the members.

        Args:
            partitions: the number of partitions of each topic that exists; a `Topics`, which also has racks.
            members: the subscription of every member of the group, by member id.

        Returns:
            The partitions of each member, by member id. A member that is left out gets none.
        """


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in Kafka's order: static members first, by instance id (KIP-345), then the others by member id."""
    return sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))


class Racks:
    """Tells which members are near which partitions.

    Args:
        partitions: the topics; only `Topics` know where replicas are.
    """

    def __init__(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> None:
        self._members = {name: said.rack for name, said in members.items()}
        self._topics = partitions if isinstance(partitions, Topics) and any(self._members.values()) else None

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member has a replica in its rack. A member that does not report its rack is near everything."""
        rack = self._members[member]
        return not rack or self._topics is None or rack in self._topics.racks(partition)

    def matter(self, topic: str, readers: Iterable[str]) -> bool:
        """Whether it matters which reader gets which partition of the topic."""
        if self._topics is None:
            return False
        places = {self._topics.racks(TopicPartition(topic, n)) for n in range(self._topics[topic])}
        replicated = frozenset[str]().union(*places)
        return len(places) > 1 and any(self._members[reader] in replicated for reader in readers)

    def paired(self, partitions: list[TopicPartition], takers: list[str]) -> list[TopicPartition]:
        """The partitions in an order that puts as many as possible near the taker at the same index.

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
        """Move along the path that was found, from its end: each rack takes one partition from the rack before it."""
        while (kind := entered[into]) != racks:
            before = left_by[kind]
            self._held[into].setdefault(kind, []).append(self._held[before][kind].pop())
            into = before
        self._held[into].setdefault(racks, []).append(partition)
