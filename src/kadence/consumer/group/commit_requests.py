"""One commit until its result is told, and the request that carries several of them.

What a broker's answer to a commit means, and the errors that say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kadence import errors
from kadence.clock import add_ms
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.consumer.events import Commit
from kadence.consumer.group.committed import by_topic, topic_ids
from kadence.consumer.group.membership import ClusterView
from kadence.consumer.subscription import PartitionState
from kadence.errors import CommitFailedError, KafkaError
from kadence.protocol import error_codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = [
    "IDENTITY",
    "Attempt",
    "Pending",
    "codes_of",
    "combined",
    "error_of",
    "expelled",
    "not_ours",
    "outsider",
]

IDENTITY: Final = frozenset(
    {
        error_codes.UNKNOWN_MEMBER_ID,
        error_codes.ILLEGAL_GENERATION,
        error_codes.REBALANCE_IN_PROGRESS,
        error_codes.FENCED_INSTANCE_ID,
        error_codes.STALE_MEMBER_EPOCH,
        error_codes.FENCED_MEMBER_EPOCH,
    }
)
"""Codes that judge the member, not the offsets."""


def error_of(codes: Mapping[TopicPartition, int]) -> KafkaError | None:
    """What became of one commit: what cannot be mended comes before what can."""
    failed = {partition: code for partition, code in codes.items() if code != error_codes.NONE}
    if not failed:
        return None
    denied = sorted({p.topic for p, code in failed.items() if code == error_codes.TOPIC_AUTHORIZATION_FAILED})
    lasting = [
        (p, code)
        for p, code in failed.items()
        if code not in error_codes.RETRIABLE and code != error_codes.TOPIC_AUTHORIZATION_FAILED
    ]
    if lasting:
        partition, code = lasting[0]
        return errors.for_code(code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused')}")
    if denied:
        return errors.for_code(
            error_codes.TOPIC_AUTHORIZATION_FAILED, f"not allowed to commit for {', '.join(denied)}"
        )
    partition, code = next(iter(failed.items()))
    return errors.for_code(
        code, f"commit of {partition}: {error_codes.MESSAGES.get(code, 'refused for now')}"
    )


def outsider(code: int, group_id: str | None) -> CommitFailedError:
    """The group has members, and this consumer is none of them."""
    return CommitFailedError(
        f"{error_codes.name(code)}: group {group_id!r} has members that subscribe, so offsets "
        "of partitions chosen with assign() are refused; use a group id of its own"
    )


def expelled(code: int) -> CommitFailedError:
    """The group goes on without this member."""
    return CommitFailedError(
        f"{error_codes.name(code)}: the group has removed this member, and other members may read its partitions "
        f"now. {_ADVICE}"
    )


def not_ours(partitions: set[TopicPartition], *, others: bool) -> CommitFailedError:
    """These were not the member's all the time. ``others``: the rest of the commit is committed."""
    names = ", ".join(str(partition) for partition in sorted(partitions)[:5])
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    rest = " The other partitions of the commit are committed." if others else ""
    return CommitFailedError(
        f"{names}{more} not assigned to this member (any more).{rest} {_ADVICE}",
        partitions=frozenset(partitions) if others else frozenset(),
    )


_ADVICE = (
    "This happens when the time between two polls exceeds max.poll.interval.ms (poll more often, process less "
    "per poll by max.poll.records, or raise it), or when the process stands still for longer than its session. The "
    "members that own the partitions now read the records again"
)


_LAST_WITH_NAMES: Final = 9


@dataclass(slots=True, eq=False)
class Pending:
    """One commit until its result is told."""

    call: Commit
    tenure: dict[TopicPartition, PartitionState | None]
    """What proves that a partition was the member's since the commit was given."""
    topic_ids: dict[str, bytes]
    """Of the topics that were read when the commit was given: one made anew since is another topic (KIP-516)."""
    sent: bool = False
    done: bool = False
    told: bool = False
    error: KafkaError | None = None
    failure: KafkaError | None = None
    """Why the last attempt is repeated."""
    lost: set[TopicPartition] = field(default_factory=set)
    """Partitions left out, because they were not the member's all the time."""

    @property
    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is to be committed still."""
        return {p: offset for p, offset in self.call.offsets.items() if p not in self.lost}

    def succeed(self) -> None:
        self.done = True
        if self.lost:
            self.error = not_ours(self.lost, others=bool(self.offsets))


@dataclass(slots=True, eq=False)
class Attempt:
    """What is under way: whose commits, under which identity."""

    request: Request
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
    """One request for all of them; of two offsets of a partition the later one wins.

    Args:
        group: whose commit it is. managed: whether that is a member, or somebody outside the group.
        metadata: for the versions that name topics by their ids.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for pending in batch:
        pending.sent = True
        offsets.update(pending.offsets)
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
    return Attempt(request, batch, group, managed, {topic_id: name for name, topic_id in ids.items()})


def _partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def codes_of(attempt: Attempt, completed: Completed) -> Mapping[TopicPartition, int]:
    """What the broker said of each partition."""
    answer: Any = completed.response
    by_name = completed.version <= _LAST_WITH_NAMES
    return {
        TopicPartition(
            topic.name if by_name else attempt.names.get(topic.topic_id, ""), partition.partition_index
        ): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }
