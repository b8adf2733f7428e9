"""One commit until its result is reported, the request that carries several, and what a response says of them.

All offsets of one request are one batch of the coordinator's log, which takes a megabyte by default. So larger commits
are sent in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kadence.clock import add_ms
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.consumer.events import Commit
from kadence.consumer.group.committed import by_topic, topic_ids
from kadence.consumer.group.leaving import not_ours
from kadence.consumer.group.membership import ClusterView
from kadence.consumer.subscription import PartitionState
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass, field
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Attempt", "Pending", "codes_of", "combined"]

_LAST_WITH_NAMES: Final = 9


@dataclass(slots=True, eq=False)
class Pending:
    """One commit until its result is reported."""

    call: Commit
    tenure: dict[TopicPartition, PartitionState | None]
    """Proofs that the member has owned each partition since the commit call."""
    topic_ids: dict[str, bytes]
    """Ids of the topics at the commit call: a topic recreated since then is a different topic (KIP-516)."""
    sent: bool = False
    done: bool = False
    is_answered: bool = False
    error: KafkaError | None = None
    failure: KafkaError | None = None
    """Why the last attempt is repeated."""
    lost: set[TopicPartition] = field(default_factory=set)
    """Partitions left out, because the member did not own them all the time."""
    stored: set[TopicPartition] = field(default_factory=set)
    """Those that are committed."""
    foreign: frozenset[TopicPartition] = frozenset()
    """Partitions outside the member's subscription, which any client may commit."""
    strangers: frozenset[TopicPartition] = frozenset()
    """Partitions of subscribed topics that were never assigned to it."""
    void: set[TopicPartition] = field(default_factory=set)
    """Partitions left out, because a seek, a reset or the like has come since the offset was read."""
    is_bare: bool = False
    """Whether metadata that was too large is left out: it cannot be shortened while partitions are given up."""

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to leave out, and the topic of each partition is the one that it always was."""
        if self.lost or self.void:
            return False
        return all(
            held is not None and held.topic_id != ZERO_UUID and not held.former_topic_ids
            for held in self.tenure.values()
        )

    @property
    def offsets(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets still to be committed."""
        if not (self.lost or self.void or self.stored or self.is_bare):
            return self.call.offsets
        return {
            p: OffsetAndMetadata(at.offset, at.leader_epoch) if self.is_bare else at
            for p, at in self.call.offsets.items()
            if not (p in self.lost or p in self.void or p in self.stored)
        }

    @property
    def told(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The offsets in its result."""
        offsets = self.call.offsets
        return {p: at for p, at in offsets.items() if p not in self.void} if self.void else offsets

    def succeed(self) -> None:
        self.done = True
        if self.lost:
            others = bool(self.call.offsets.keys() - self.lost - self.void)
            self.error = not_ours(self.lost, others=others, strangers=self.strangers)


@dataclass(slots=True, eq=False)
class Attempt:
    """The request under way: its commits, partitions and identity."""

    request: Request
    partitions: Collection[TopicPartition]
    commits: list[Pending]
    group: GroupMetadata
    managed: bool
    names: dict[bytes, str] = field(default_factory=dict)


def combined(
    now: int,
    node_id: int,
    batch: list[Pending],
    group: GroupMetadata,
    metadata: ClusterView,
    *,
    managed: bool,
    timeout_ms: int,
) -> Attempt:
    """One request for all of them; of two offsets of a partition, the later one wins.

    Args:
        group: the identity of the committer. managed: whether that is a member of the group.
        metadata: provides topic ids, for the versions that use them.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for pending in batch:
        pending.sent = True
        offsets.update(pending.offsets)
    offsets = _first_part(offsets, group.group_id)
    topics = by_topic(offsets)
    ids = topic_ids(metadata, topics)
    for pending in batch:
        ids.update({name: known for name, known in pending.topic_ids.items() if name in ids})
    message = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                topic_id=ids[name],
                name=name,
                partitions=[_partition(number, offsets[TopicPartition(name, number)]) for number in numbers],
            )
            for name, numbers in topics.items()
        ],
    )
    request = Request(
        message,
        node_id,
        add_ms(now, timeout_ms),
        ConnectionPurpose.GROUP,
        max_version=_LAST_WITH_NAMES if ZERO_UUID in ids.values() else None,
    )
    return Attempt(
        request, offsets, batch, group, managed, {topic_id: name for name, topic_id in ids.items()}
    )


_PART_BYTES: Final = 500_000
"""The most that one request stores, about. The coordinator's log takes 1,048,588 bytes at once by default."""

_OF_ONE_BYTES: Final = 80
"""The most bytes of one offset there, without names and metadata."""


def _first_part(
    offsets: dict[TopicPartition, OffsetAndMetadata], group_id: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """As many of them as one request may carry."""
    left = _PART_BYTES
    for count, (partition, at) in enumerate(offsets.items()):
        left -= _OF_ONE_BYTES + len(group_id) + len(partition.topic) + len(at.metadata.encode())
        if left < 0 and count:
            return dict(list(offsets.items())[:count])
    return offsets


def _partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def codes_of(attempt: Attempt, completed: Completed) -> Mapping[TopicPartition, int]:
    """The broker's result for each partition."""
    answer: Any = completed.response
    by_name = completed.version <= _LAST_WITH_NAMES
    return {
        TopicPartition(
            topic.name if by_name else attempt.names.get(topic.topic_id, ""), partition.partition_index
        ): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
