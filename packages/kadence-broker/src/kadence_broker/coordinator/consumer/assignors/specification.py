"""The arguments and the result of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kadence_broker.coordinator.partitions import Partitions

__all__ = ["GroupSpec", "MemberSpec", "Shares"]

Shares = dict[str, dict[bytes, frozenset[int]]]
"""Member id -> topic id -> partitions. Every member has an entry; topics without partitions have none."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member.

    Attributes:
        instance_id: of a static member.
        topics: ids of the topics that it subscribes to and that exist.
        had: its part of the last target assignment.
    """

    instance_id: str | None
    topics: frozenset[bytes]
    had: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The group: its members by id, and the number of partitions of each subscribed topic."""

    members: Mapping[str, MemberSpec]
    counts: Mapping[bytes, int]

    @property
    def is_homogeneous(self) -> bool:
        """True if all members subscribe to the same topics."""
        return len({member.topics for member in self.members.values()}) <= 1
