"""Offsets of the group: commits in the order in which they were given, and look-ups of what is committed.

One OffsetCommit is under way at a time. Commits that come meanwhile go out together as the next one, the later
offset of a partition winning, so any rate of commits costs one round trip at a time and no repetition can
overtake a newer commit. Results are told in order (`Answer` for commits with ``retry``, `CommitCompleted` for
the others); a commit of no offsets is done when all before it are.

A rebalance in the background can end a generation between a commit's sending and its arrival. Such a commit
is not failed: it is sent again under the new generation, if every partition in it was this member's all the
time. A partition that was not (lost, revoked, given to somebody else meanwhile) is left out, and the commit ends
with a `CommitFailedError` that names it: the group has read it from somewhere else by now. The others are committed.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kadence import errors
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Completed, Request
from kadence.consumer.border.messages import Answer, Commit, CommitCompleted, FetchCommitted
from kadence.consumer.managers.base import Backoff, Outbox, Poll
from kadence.consumer.managers.committed import CommittedOffsets, Done, topic_ids
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.forms import by_topic
from kadence.consumer.managers.membership import ClusterView, GroupConfig, Membership
from kadence.consumer.state.subscription import PartitionState
from kadence.errors import CommitFailedError, KafkaError, KafkaTimeoutError
from kadence.protocol import error_codes
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["CommitManager"]

log = logging.getLogger("kadence.consumer")

_LAST_WITH_NAMES = 9

_IDENTITY = frozenset(
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


@dataclass(slots=True, eq=False)
class _Pending:
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
            self.error = _not_ours(self.lost, others=len(self.call.offsets) > len(self.lost))


@dataclass(slots=True, eq=False)
class _Attempt:
    """What is under way: whose commits, under which identity."""

    request: Request
    commits: list[_Pending]
    group: GroupMetadata
    managed: bool
    names: dict[bytes, str] = field(default_factory=dict)


class CommitManager:
    """See the head of this file. Deadlines of commits and look-ups are kept here, in `poll`.

    Args:
        coordinator, membership: where commits go, and as whom.
        metadata: topic ids, for the versions that name topics by them.
        config: request and backoff times.
        outbox: takes the results.
    """

    def __init__(
        self,
        coordinator: CoordinatorManager,
        membership: Membership,
        metadata: ClusterView,
        config: GroupConfig,
        outbox: Outbox,
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._metadata = metadata
        self._config = config
        self._outbox = outbox
        self._queue: deque[_Pending] = deque()
        self._attempt: _Attempt | None = None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._refused_as: GroupMetadata | None = None
        self._committed = CommittedOffsets(coordinator, metadata, config)
        coordinator.on_failed.append(self._coordinator_failed)

    @property
    def pending(self) -> int:
        """Commits whose result is not told yet."""
        return len(self._queue)

    def trouble(self) -> str | None:
        """Why a commit that waits has not succeeded yet; None when nothing is known."""
        failure = next((pending.failure for pending in self._queue if pending.failure is not None), None)
        return None if failure is None else str(failure)

    def commit(self, now: int, call: Commit) -> None:
        """Commit. With ``retry`` the answer is an `Answer`, repeated until the deadline; else a `CommitCompleted`."""
        del now
        tenure = {partition: self._membership.tenure(partition) for partition in call.offsets}
        read = {p.topic: held.topic_id for p, held in tenure.items() if held is not None}
        topic_ids = {topic: topic_id for topic, topic_id in read.items() if topic_id != ZERO_UUID}
        self._queue.append(_Pending(call, tenure, topic_ids))

    def fetch_committed(self, now: int, call: FetchCommitted) -> None:
        """Answer with dict[TopicPartition, OffsetAndMetadata | None]."""
        del now

        def done(now: int, result: dict[TopicPartition, OffsetAndMetadata | None] | Exception) -> None:
            del now
            if isinstance(result, Exception):
                self._outbox(Answer(call.id, None, result))
            else:
                self._outbox(Answer(call.id, result))

        self._committed.find(call.partitions, call.deadline, done)

    def lookup(self, now: int, partitions: frozenset[TopicPartition], done: Done) -> None:
        """The same for the network side; repeated until it is answered or refused for good."""
        del now
        self._committed.find(partitions, FOREVER, done)

    # ------------------------------------------------------------ the turn

    def poll(self, now: int) -> Poll:
        wake_at = self._expire(now)
        requests: list[Request] = []
        if self._attempt is None:
            wake_at = min(wake_at, self._send(now, requests))
        unsent = any(not (pending.sent or pending.done) for pending in self._queue)
        lookups = self._committed.poll(now, hold=unsent)
        return Poll(requests + lookups.requests, min(wake_at, lookups.wake_at))

    def _expire(self, now: int) -> int:
        wake_at = FOREVER
        for pending in self._queue:
            if pending.done:
                continue
            if pending.call.deadline <= now:
                why = f"; last failure: {pending.failure}" if pending.failure is not None else ""
                pending.done = True
                pending.error = KafkaTimeoutError(f"the commit was not acknowledged in time{why}")
                if pending.call.retry:
                    # Whoever waits for it must not wait for the commits before it too.
                    pending.told = True
                    self._outbox(Answer(pending.call.id, None, pending.error))
            else:
                wake_at = min(wake_at, pending.call.deadline)
        self._tell()
        return wake_at

    def _send(self, now: int, requests: list[Request]) -> int:
        managed = self._membership.managed
        if managed:
            self._refuse_what_was_lost()
        batch = [pending for pending in self._queue if not pending.done]
        if not any(pending.call.offsets for pending in batch):
            for pending in batch:
                pending.done = True
            self._tell()
            return FOREVER
        self._tell()
        if managed and not self._membership.settled:
            return FOREVER
        if self._refused_as is not None and self._refused_as != self._membership.group:
            self._refused_as = None
            self._backoff.succeeded()
        if not self._backoff.ready(now):
            return self._backoff.until
        node_id = self._coordinator.node_id
        if node_id is None:
            return self._coordinator.require(now)
        self._attempt = self._request(now, node_id, batch, managed=managed)
        requests.append(self._attempt.request)
        return FOREVER

    def _refuse_what_was_lost(self) -> None:
        for pending in self._queue:
            if pending.done:
                continue
            pending.lost.update(
                p
                for p, held in pending.tenure.items()
                if held is None or self._membership.tenure(p) is not held
            )
            if pending.lost and len(pending.lost) == len(pending.call.offsets):
                pending.succeed()

    def _request(self, now: int, node_id: int, batch: list[_Pending], *, managed: bool) -> _Attempt:
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for pending in batch:
            pending.sent = True
            offsets.update(pending.offsets)
        topics = by_topic(offsets)
        ids = topic_ids(self._metadata, topics)
        for pending in batch:
            ids.update({name: known for name, known in pending.topic_ids.items() if name in ids})
        group = self._membership.group if managed else GroupMetadata(self._config.group_id or "")
        message = OffsetCommitRequest(
            group_id=group.group_id,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=ids[name],
                    name=name,
                    partitions=[
                        _partition(number, offsets[TopicPartition(name, number)]) for number in numbers
                    ],
                )
                for name, numbers in topics.items()
            ],
        )
        request = Request(
            message,
            node_id,
            add_ms(now, self._config.request_timeout_ms),
            max_version=_LAST_WITH_NAMES if ZERO_UUID in ids.values() else None,
        )
        names = {topic_id: name for name, topic_id in ids.items()}
        return _Attempt(request, batch, group, managed, names)

    # ------------------------------------------------------------ answers

    def on_response(self, now: int, completed: Completed) -> None:
        attempt = self._attempt
        if attempt is None or completed.request is not attempt.request:
            self._committed.on_response(now, completed)
            return
        self._attempt = None
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            self._unanswered(now, attempt, completed.error)
        else:
            self._judge(now, attempt, _codes(attempt, completed))
        self._tell()

    def _unanswered(self, now: int, attempt: _Attempt, error: KafkaError) -> None:
        if error.retriable:
            self._backoff.failed(now)
        for pending in attempt.commits:
            self._repeat_or_fail(pending, error)

    def _repeat_or_fail(self, pending: _Pending, error: KafkaError) -> None:
        if pending.done:
            return
        if pending.call.retry and error.retriable:
            pending.failure = error
        else:
            pending.done, pending.error = True, copy.copy(error)

    def _judge(self, now: int, attempt: _Attempt, codes: Mapping[TopicPartition, int]) -> None:
        node_id = attempt.request.node_id
        failed = {code for code in codes.values() if code != error_codes.NONE}
        for code in failed:
            self._coordinator.check(now, node_id, code)
        if error_codes.REQUEST_TIMED_OUT in failed and node_id == self._coordinator.node_id:
            self._coordinator.mark_unknown(now, "REQUEST_TIMED_OUT")
        if error_codes.UNKNOWN_TOPIC_ID in failed:
            self._metadata.request_update(now)
        if (identity := next(iter(failed & _IDENTITY), None)) is not None:
            self._identity_refused(now, attempt, identity)
            return
        if any(code in error_codes.RETRIABLE for code in failed):
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        for pending in attempt.commits:
            own = {p: codes.get(p, error_codes.UNKNOWN_SERVER_ERROR) for p in pending.offsets}
            error = _error_of(own)
            if error is None:
                pending.succeed()
            elif all(code == error_codes.NONE or self._gone(pending, p, code) for p, code in own.items()):
                pending.done, pending.error = True, error
            else:
                self._repeat_or_fail(pending, error)

    def _gone(self, pending: _Pending, partition: TopicPartition, code: int) -> bool:
        """Whether the topic was deleted, and not just unknown to one broker: waiting for it would hold up a rebalance.

        Metadata says so, or knows it no more although this member was assigned it (KAFKA-16224).
        """
        if code not in (error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.UNKNOWN_TOPIC_ID):
            return False
        topic = self._metadata.cluster.topics.get(partition.topic)
        if topic is None:
            return pending.tenure.get(partition) is not None
        if pending.topic_ids.get(partition.topic, topic.topic_id) != topic.topic_id:
            return True
        return topic.error_code == error_codes.UNKNOWN_TOPIC_OR_PARTITION

    def _identity_refused(self, now: int, attempt: _Attempt, code: int) -> None:
        """The coordinator refused the member. If its rebalance is why, the commit goes out again as its new self."""
        if not attempt.managed:
            error: KafkaError = CommitFailedError(
                f"{error_codes.name(code)}: group {self._config.group_id!r} has members that subscribe, so offsets "
                "of partitions chosen with assign() are refused; use a group id of its own"
            )
        elif self._membership.commit_refused(now, attempt.group, code):
            self._refused_as = attempt.group
            self._backoff.failed(now)
            for pending in attempt.commits:
                pending.failure = errors.for_code(code)
            return
        elif code == error_codes.FENCED_INSTANCE_ID:
            error = errors.for_code(code)
        else:
            error = _expelled(code)
        for pending in attempt.commits:
            if not pending.done:
                pending.done, pending.error = True, copy.copy(error)

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        waiting = [pending for pending in self._queue if not pending.done]
        for pending in waiting:
            pending.done, pending.error = True, copy.copy(error)
        self._committed.fail_all(now, lambda: copy.copy(error))
        self._tell()
        return bool(waiting)

    def _tell(self) -> None:
        """Results in the order of the commits."""
        while self._queue and self._queue[0].done:
            pending = self._queue.popleft()
            call = pending.call
            if not call.retry:
                self._outbox(CommitCompleted(call.id, call.offsets, pending.error))
            elif not pending.told:
                self._outbox(Answer(call.id, None, pending.error))


def _partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _codes(attempt: _Attempt, completed: Completed) -> dict[TopicPartition, int]:
    answer: Any = completed.response
    by_name = completed.version <= _LAST_WITH_NAMES
    return {
        TopicPartition(
            topic.name if by_name else attempt.names.get(topic.topic_id, ""), partition.partition_index
        ): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def _error_of(codes: Mapping[TopicPartition, int]) -> KafkaError | None:
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


def _expelled(code: int) -> CommitFailedError:
    return CommitFailedError(
        f"{error_codes.name(code)}: the group goes on without this member, its partitions may be read by others by "
        f"now. {_ADVICE}"
    )


def _not_ours(partitions: set[TopicPartition], *, others: bool) -> CommitFailedError:
    names = ", ".join(str(partition) for partition in sorted(partitions)[:5])
    more = f" and {len(partitions) - 5} more" if len(partitions) > 5 else ""
    rest = " The other partitions of the commit are committed." if others else ""
    return CommitFailedError(
        f"{names}{more} not assigned to this member (any more).{rest} {_ADVICE}",
        partitions=frozenset(partitions) if others else frozenset(),
    )


_ADVICE = (
    "This happens when the time between two polls passes max.poll.interval.ms: poll more often, process less "
    "per poll (max.poll.records), or raise max.poll.interval.ms. The records come again to whoever owns the "
    "partitions now"
)
