"""What a client-side assignor is: a pure function that the group's leader runs for all members.

It knows partition counts and what each member said when it joined, nothing else, so it can run on the helper
thread and be tested without a group.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kadence.types import TopicPartition

__all__ = ["Assignment", "Assignor", "MemberSubscription", "RebalanceProtocol"]

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


class Assignor(Protocol):
    """See the head of this file."""

    @property
    def name(self) -> str:
        """Its name in JoinGroup: members agree on an assignor by it."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]: ...

    def user_data(self, generation: int) -> bytes | None:
        """The assignor's own bytes in this member's subscription.

        Args:
            generation: in which the member got what it owns, −1 if it owns nothing of a live generation.
        """
        ...

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Distribute.

        Args:
            partitions: partition counts of the topics that exist.
            members: all members of the group by member id.
        """
        ...
