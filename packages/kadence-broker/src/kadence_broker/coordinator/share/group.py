"""The data of a share group: epochs, members, target assignment, initialised topics. It makes no decisions.

Only `replay` changes it: the attributes, and the members by `put` and `remove`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.partitions import Partitions
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.share.member import ShareMember
from kadence_broker.coordinator.share.recording import (
    assignment_record,
    epoch_record,
    member_record,
    state_record,
    target_epoch_record,
    target_record,
)
from kadence_broker.coordinator.share.state import TopicState

__all__ = ["ShareGroup"]


class ShareGroup:
    """One group. Member order is the order of joining.

    Attributes:
        epoch: grows when members, subscriptions, topics or initialised partitions change; Kafka begins with 1.
        metadata_hash: of the topics, when the epoch was written.
        target_epoch, target_timestamp: the group epoch of the target, and the time of day (ms) when it was made.
        initialising, initialised: topics by id. deleting: names of topics, by id, whose state is being deleted.
        has_state: a record of the three was written, though they may be empty.
        topics_version: soft; the `TopicImages.version` that `metadata_hash` was last compared with.
        asked_at: soft; when a topic's partitions were last asked to be initialised.
        deletions: soft; how often the deletion of a topic's state was asked for.
    """

    __slots__ = (
        "_names",
        "asked_at",
        "deleting",
        "deletions",
        "epoch",
        "group_id",
        "has_state",
        "initialised",
        "initialising",
        "members",
        "metadata_hash",
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
        self.members: dict[str, ShareMember] = {}
        self.initialising: dict[bytes, TopicState] = {}
        self.initialised: dict[bytes, TopicState] = {}
        self.deleting: dict[bytes, str] = {}
        self.has_state = False
        self.topics_version: int | None = None
        self.asked_at: dict[bytes, int] = {}
        self.deletions: Counter[bytes] = Counter()
        self._names: Counter[str] = Counter()
        """The number of members that subscribe to each topic name."""

    def __repr__(self) -> str:
        return f"<share group {self.group_id!r} {self.state_name} epoch {self.epoch}, {len(self.members)} members>"

    # ------------------------------------------------------------ queries

    def subscribed_topics(self) -> set[str]:
        """The topic names that members subscribe to."""
        return set(self._names)

    @property
    def is_homogeneous(self) -> bool:
        """True if all members subscribe to the same names."""
        return all(count == len(self.members) for count in self._names.values())

    # --- as any group (`kadence_broker.coordinator.groups.Group`)

    @property
    def kind(self) -> str:
        return "share"

    @property
    def protocol_type_name(self) -> str:
        return "share"

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_removable(self) -> bool:
        """A share group never expires."""
        return False

    def commit_code(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool
    ) -> int:
        return codes.GROUP_ID_NOT_FOUND

    def partition_code(self, member_id: str, generation: int, topic_id: bytes, partition: int) -> int:
        return codes.GROUP_ID_NOT_FOUND

    def fetch_code(self, member_id: str | None, member_epoch: int) -> int:
        # Kafka answers as for a group that does not exist: without offsets.
        return codes.NONE

    def offset_delete_code(self) -> int:
        return codes.GROUP_ID_NOT_FOUND

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._names

    def offset_age_from(self, committed_at: int) -> int | None:
        return None

    def records(self) -> Iterator[Record]:
        """The state of the group, as the fewest records that make it."""
        for member in self.members.values():
            yield Record(*member_record(self.group_id, member))
        yield Record(*epoch_record(self.group_id, self.epoch, self.metadata_hash))
        for member_id, partitions in self.target.items():
            yield Record(*target_record(self.group_id, member_id, partitions))
        yield Record(*target_epoch_record(self.group_id, self.target_epoch, self.target_timestamp))
        for member in self.members.values():
            yield Record(*assignment_record(self.group_id, member))
        if self.has_state:
            yield Record(*state_record(self.group_id, self.initialising, self.initialised, self.deleting))

    def tombstones(self) -> Iterator[Any]:
        """The keys of those records; the one that ends the group is the last."""
        keys = [record.key for record in self.records()]
        is_last = type(epoch_record(self.group_id, 0, 0)[0])
        yield from (key for key in reversed(keys) if not isinstance(key, is_last))
        yield from (key for key in keys if isinstance(key, is_last))

    # ------------------------------------------------------------ changes

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace it by its next version."""
        self._discount(self.members.get(member.member_id))
        self.members[member.member_id] = member
        self._names.update(member.topics)

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        self._discount(self.members.pop(member_id, None))

    def _discount(self, member: ShareMember | None) -> None:
        if member is not None:
            self._names -= Counter(member.topics)
