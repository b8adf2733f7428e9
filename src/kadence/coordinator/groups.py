"""The interface of groups of every kind, for the code that serves all kinds: offsets and administration.

Source: the interface `Group` of Kafka 4.3.1's group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from kadence.coordinator.records import Record

__all__ = ["Group"]


class Group(Protocol):
    """A group of some kind. Codes are error codes, NONE if there is nothing against it."""

    group_id: str

    @property
    def kind(self) -> str:
        """ListGroups' name of the kind: "classic" or "consumer"."""

    @property
    def protocol_type_name(self) -> str:
        """ListGroups' protocol type; empty for a group that only keeps offsets."""

    @property
    def state_name(self) -> str:
        """Kafka's name of its state."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members; only then may it be deleted."""

    @property
    def is_removable(self) -> bool:
        """Whether it may go by itself once it has no offsets left: nobody is in it or on the way."""

    def commit_code(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool
    ) -> int:
        """Whether this member may commit offsets; ``generation`` is the member epoch in a KIP-848 group."""

    def partition_code(
        self, member_id: str, generation: int, topic_id: bytes, partition: int, *, transactional: bool
    ) -> int:
        """Whether a commit that `commit_code` lets through may name this partition."""

    def fetch_code(self, member_id: str | None, member_epoch: int) -> int:
        """Whether this member may be told the group's offsets."""

    def offset_delete_code(self) -> int:
        """Whether offsets of topics that it does not subscribe to may be deleted."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether it may be reading ``topic``; its offsets there neither expire nor may be deleted."""

    def offset_age_from(self, committed_at: int) -> int | None:
        """Since when an offset that was committed at that time ages; None while none does."""

    def records(self) -> Iterator[Record]:
        """The fewest records that make the group what is stored of it."""

    def tombstones(self) -> Iterator[Any]:
        """Keys of all its records: what must be deleted for it to be gone."""
