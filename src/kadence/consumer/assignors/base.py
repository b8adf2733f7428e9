"""The base of client-side assignors: pure functions that the group's leader runs for all members.

An assignor gets the partition counts and each member's subscription and nothing else, so it can run on the helper
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
    """A member gives all partitions up before it joins."""
    COOPERATIVE = 1
    """A member gives up only the partitions that move, after the assignment.

    A second rebalance gives them to their new owners.
    """


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of one member, as it was sent in JoinGroup.

    Attributes:
        topics: the topics that it subscribes to. owned: the partitions that it says it owns now.
        generation: the generation in which it got them; −1: it does not say (KIP-792).
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
