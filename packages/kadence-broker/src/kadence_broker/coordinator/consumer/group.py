"""The data of a KIP-848 group: epochs, members, target assignment, and queries on them. It makes no decisions.

Only `replay` changes it: the attributes, and the members by `put` and `remove`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.consumer.census import Census
from kadence_broker.coordinator.consumer.member import Member
from kadence_broker.coordinator.consumer.patterns import Matching, Resolved
from kadence_broker.coordinator.consumer.recording import (
    assignment_record,
    epoch_record,
    member_record,
    pattern_record,
    target_epoch_record,
    target_record,
)
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.records import Record

__all__ = ["ConsumerGroup", "GroupState"]


_FIRST_COMMIT_VERSION: Final = 9
"""Older OffsetCommits have no codes for KIP-848's errors."""


class GroupState(Enum):
    """The value is the name on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group has changed since the target was made."""
    RECONCILING = "Reconciling"
    """Some member has not reached the target yet."""
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Member order is the order of joining.

    Attributes:
        epoch: grows when members, subscriptions or topics change; Kafka begins with 1, and with no target to make.
        metadata_hash: of the topics, when the epoch was written.
        target_epoch, target_timestamp: the group epoch of the target, and the time of day (ms) when it was made.
        topics_version: soft; the `TopicImages.version` that `metadata_hash` was last compared with.
        matched_version: soft; the version that the regular expressions were last matched against.
        matching: soft; the matching in progress, over several steps.
    """

    __slots__ = (
        "_census",
        "epoch",
        "group_id",
        "matched_version",
        "matching",
        "members",
        "metadata_hash",
        "resolved",
        "static_members",
        "target",
        "target_epoch",
        "target_timestamp",
        "topics_version",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_timestamp = 0
        self.target: dict[str, Partitions] = {}
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.resolved: dict[str, Resolved] = {}
        self.topics_version: int | None = None
        self.matched_version: int | None = None
        self.matching: Matching | None = None
        self._census = Census()

    def __repr__(self) -> str:
        return f"<consumer group {self.group_id!r} {self.state.value} epoch {self.epoch}, {len(self.members)} members>"

    # ------------------------------------------------------------ queries

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    def is_taken(self, topic: bytes, partition: int) -> bool:
        """True if a member has the partition, or is still to revoke it."""
        return (topic, partition) in self._census.owners

    @property
    def classic_members(self) -> int:
        """The number of members that speak the classic protocol."""
        return self._census.classic

    def patterns(self) -> list[str]:
        """The regular expressions that members subscribe to."""
        return list(self._census.patterns)

    def readers_of_pattern(self, pattern: str) -> int:
        return self._census.patterns[pattern]

    def subscribed_topics(self) -> set[str]:
        """The topic names that members subscribe to, including those that expressions matched."""
        names = set(self._census.names)
        for pattern in self._census.patterns:
            if pattern in self.resolved:
                names |= self.resolved[pattern].topics
        return names

    def topics_of(self, member: Member) -> frozenset[str]:
        """The topics that one member subscribes to. An expression that has not been matched yet matches none."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def preferred_assignor(self, default: str, present: str | None = None) -> str:
        """The assignor that most members name.

        If all have one vote, the one of the member that is served at present; else ``uniform`` comes before ``range``.
        That is the order of Kafka's hash tables.
        """
        votes = self._census.assignors
        return max(
            votes, key=lambda name: (votes[name], votes[name] == 1 and name == present, name), default=default
        )

    def supports_protocols(self, names: Iterable[str]) -> bool:
        """True if all classic members support one of these protocols."""
        return any(self._census.protocols[name] == self._census.classic for name in names)

    def waits_for_others(self, member: Member) -> bool:
        """True if another member has a partition of the member's target."""
        return any(
            partition not in member.assigned.get(topic, {}) and self.is_taken(topic, partition)
            for topic, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    # --- as any group (`kadence_broker.coordinator.groups.Group`)

    @property
    def kind(self) -> str:
        return "consumer"

    @property
    def protocol_type_name(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_removable(self) -> bool:
        return not self.members

    def commit_code(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool
    ) -> int:
        """An older epoch than the member's is valid for partitions that it had then; see `partition_code`."""
        if generation < 0 and not self.members:
            return codes.NONE
        if transactional and generation == -1 and not member_id and instance_id is None:
            return codes.NONE
        member = self.members.get(member_id)
        if member is None:
            return codes.UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and version < _FIRST_COMMIT_VERSION:
            return codes.UNSUPPORTED_VERSION
        return _stale(member) if generation > member.epoch else codes.NONE

    def partition_code(self, member_id: str, generation: int, topic_id: bytes, partition: int) -> int:
        """The error code for a commit of this partition that `commit_code` allows (KIP-1251)."""
        member = self.members.get(member_id)
        if member is None or generation == member.epoch:
            return codes.NONE
        since = member.assignment_epoch(topic_id, partition)
        return _stale(member) if since is None or generation < since else codes.NONE

    def fetch_code(self, member_id: str | None, member_epoch: int) -> int:
        if member_id is None and member_epoch < 0:
            return codes.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return codes.UNKNOWN_MEMBER_ID
        return codes.NONE if member_epoch == member.epoch else _stale(member)

    def offset_delete_code(self) -> int:
        return codes.NONE

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._census.names or any(
            pattern in self.resolved and topic in self.resolved[pattern].topics
            for pattern in self._census.patterns
        )

    def offset_age_from(self, committed_at: int) -> int | None:
        return committed_at

    def records(self) -> Iterator[Record]:
        """The state of the group, as the fewest records that make it."""
        for member in self.members.values():
            yield Record(*member_record(self.group_id, member))
        for pattern, resolved in self.resolved.items():
            yield Record(*pattern_record(self.group_id, pattern, resolved))
        yield Record(*epoch_record(self.group_id, self.epoch, self.metadata_hash))
        for member_id, partitions in self.target.items():
            yield Record(*target_record(self.group_id, member_id, partitions))
        yield Record(*target_epoch_record(self.group_id, self.target_epoch, self.target_timestamp))
        for member in self.members.values():
            yield Record(*assignment_record(self.group_id, member))

    def tombstones(self) -> Iterator[Any]:
        """The keys of those records; the one that ends the group is the last."""
        epoch, *others = sorted((record.key for record in self.records()), key=lambda key: key.RECORD_TYPE)
        yield from reversed(others)
        yield epoch

    # ------------------------------------------------------------ changes

    def put(self, member: Member) -> None:
        """Add a member, or replace it by its next version."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._census.discount(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._census.count(member)

    def remove(self, member_id: str) -> None:
        """Remove a member and its partitions."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._census.discount(member)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]


def _stale(member: Member) -> int:
    """The error code for a member with an outdated epoch."""
    return codes.STALE_MEMBER_EPOCH if member.classic is None else codes.ILLEGAL_GENERATION
