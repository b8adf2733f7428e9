"""The interface of groups of every kind, for the code that serves all kinds: offsets and administration.

Source: the interface `Group` of Kafka 4.3.1's group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from kadence_broker.coordinator.records import Record

__all__ = ["Group"]


class Group(Protocol):
    """A group of some kind. Codes are error codes, NONE if the call is allowed."""

    group_id: str

    @property
    def kind(self) -> str:
        """ListGroups' name of the kind: "classic", "consumer" or "share"."""

    @property
    def protocol_type_name(self) -> str:
        """ListGroups' protocol type; empty for a group that only keeps offsets."""

    @property
    def state_name(self) -> str:
        """Kafka's name of its state."""

    @property
    def is_empty(self) -> bool:
        """True if it has no members; only then may it be deleted."""

    @property
    def is_removable(self) -> bool:
        """True if it may be removed once it has no offsets left: it has no members and no pending ones."""

    def commit_code(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool
    ) -> int:
        """The code for a commit by this member; ``generation`` is the member epoch in a KIP-848 group."""

    def partition_code(self, member_id: str, generation: int, topic_id: bytes, partition: int) -> int:
        """The code for a commit of this partition, if `commit_code` allows the commit."""

    def fetch_code(self, member_id: str | None, member_epoch: int) -> int:
        """The code for a fetch of the group's offsets by this member."""

    def offset_delete_code(self) -> int:
        """The code for deleting offsets of topics that it does not subscribe to."""

    def is_subscribed(self, topic: str) -> bool:
        """True if it may be reading ``topic``; its offsets there neither expire nor may be deleted."""

    def offset_age_from(self, committed_at: int) -> int | None:
        """The time from which an offset that was committed at ``committed_at`` ages; None if it does not age."""

    def records(self) -> Iterator[Record]:
        """The fewest records that make the group's stored state."""

    def tombstones(self) -> Iterator[Any]:
        """The keys of all its records, to remove the group."""
