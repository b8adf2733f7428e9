"""What a client-side assignor is: a pure function that the group's leader runs for all members.

It knows partition counts and what each member said when it joined, nothing else, so it can run on the helper
thread and be tested without a group.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from kadence.types import TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "LastAssignment",
    "MemberSubscription",
    "RebalanceProtocol",
    "Topics",
    "in_order",
]

Assignment = dict[str, list[TopicPartition]]
"""What each member gets, by member id. Every member is in it, with an empty list if it gets nothing."""


class RebalanceProtocol(enum.IntEnum):
    """How members give partitions up (KIP-429). The highest that all configured assignors support is used."""

    EAGER = 0
    """All of them, before joining."""
    COOPERATIVE = 1
    """Only those that move, after the assignment; a second rebalance gives them to their new owners."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member said when it joined.

    Attributes:
        topics: what it wants to read. owned: what it says it owns at this moment.
        generation: in which generation it got what it owns, −1 = it does not say (KIP-792).
        user_data: the assignor's own bytes. rack: where it runs.
        instance_id: its static identity (KIP-345); None for a dynamic member.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    user_data: bytes | None = None
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LastAssignment:
    """What the group gave this member last, whether or not it still owns that; nothing before the first time.

    Attributes:
        generation: in which it was given, −1 before the first time.
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

    All members of a group must know an assignor of the same `name`, and the one that leads the group runs it for
    all. It runs on a helper thread, so it may take its time: heartbeats go on meanwhile. What it raises, or an
    invalid assignment (a partition that does not exist, is given twice, or to a member that does not read it), is
    raised by the leader's ``poll()``, and the group goes on without that member.

        class Alphabetic(Assignor):
            name = "alphabetic"

            def assign(self, partitions, members):
                first = min(members)
                return {first: [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]}

    Attributes:
        name: its name in JoinGroup: members agree on an assignor by it.
        protocols: how members may give partitions up. With COOPERATIVE a partition that is still owned by another
            member is held back from the new owner for one round, by the leader itself (KIP-429).
    """

    name: str
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, last: LastAssignment) -> bytes | None:
        """Bytes for the leader's assignor, sent with this member's subscription; none by default.

        Args:
            last: what the group gave this member last.
        """
        del last
        return None

    @abc.abstractmethod
    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Assign partitions to the members.

        Args:
            partitions: partition counts of the topics that exist; a `Topics`, which also knows racks.
            members: all members of the group by member id.

        Returns:
            What each member gets. A member that is left out gets nothing.
        """


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in Kafka's order: static members first, by instance id (KIP-345), then the others by member id."""
    return sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
