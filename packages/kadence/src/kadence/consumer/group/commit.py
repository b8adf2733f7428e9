"""Offsets of the group: commits in the order of the calls, and look-ups of committed offsets.

One OffsetCommit is under way at a time. Commits that come meanwhile go out together as the next one, the later
offset of a partition winning, so any rate of commits costs one round trip at a time and no repetition can
overtake a newer commit. Results are reported in order (`Answer` for commits with ``retry``, `CommitCompleted` for the
others); a commit of no offsets is complete when all before it are.

A rebalance in the background can end a generation between a commit's sending and its arrival. Such a commit does not
fail: it is sent again under the new generation, if this member owned every partition in it all the time. A partition
that it did not (lost, revoked, assigned to another member meanwhile) is left out, and the commit ends with a
`CommitFailedError` that names it: another member may have read it by now. The others are committed.

All offsets of one request are one batch of the coordinator's log, which takes a megabyte by default. So larger commits
are sent in parts; each has its result when all of its parts have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from kadence import errors
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Answer, Commit, CommitCompleted, FetchCommitted
from kadence.consumer.group.attempt import Attempt, Pending, codes_of, combined
from kadence.consumer.group.committed import CommittedOffsets, Done
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.leaving import IDENTITY, error_of, expelled, outsider
from kadence.consumer.group.membership import ClusterView, CommitIdentity, GroupConfig
from kadence.consumer.subscription import PartitionState
from kadence.errors import ConnectError, KafkaError, KafkaTimeoutError
from kadence.errors.copies import own_copy
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["CommitRequestManager"]

log = logger("kadence.consumer")

_MOST_WAITING: Final = 1_000
"""The most asynchronous commits that wait while no coordinator is known.

Beyond that the oldest fail: later ones replace them.
"""


class _Follower(NamedTuple):
    """A call to make when these commits have ended."""

    commits: list[Pending]
    then: Callable[[int], None]
    patient: bool


class CommitRequestManager:
    """Sends the group's offset commits in order, and looks up committed offsets.

    `poll` ends the commits and look-ups whose deadline has passed.

    Attributes:
        given_at: when (ms) the application has given an offset of each partition last. Its thread writes this, too.

    Args:
        coordinator, membership: the recipient and the sender's identity. metadata: topic ids, for the versions that use
            them.
        config: request and backoff times.
        add_event: takes the results.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        membership: CommitIdentity,
        metadata: ClusterView,
        config: GroupConfig,
        add_event: AddBackgroundEvent,
    ) -> None:
        self.is_cut_off: Callable[[], bool] = lambda: False
        """Returns whether no broker can be reached."""
        self.is_foreign: Callable[[TopicPartition], bool] = lambda partition: False
        """Returns whether a partition is outside the subscription."""
        self.was_ours: Callable[[TopicPartition], bool] = lambda partition: True
        """Returns whether a partition was ever assigned to this member."""
        self._coordinator = coordinator
        self._membership = membership
        self._metadata = metadata
        self._config = config
        self._add_event = add_event
        self._queue: deque[Pending] = deque()
        self._first_deadline = FOREVER
        """The earliest deadline in the queue."""
        self._followers: list[_Follower] = []
        self._attempt: Attempt | None = None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._refused_as: GroupMetadata | None = None
        self._outsider = GroupMetadata(config.group_id or "")
        self.given_at: dict[TopicPartition, int] = {}
        self._committed = CommittedOffsets(coordinator, metadata, config)
        coordinator.on_failed.append(self._coordinator_failed)

    @property
    def pending(self) -> int:
        """Commits whose result is not reported yet."""
        return len(self._queue)

    @property
    def is_stranded(self) -> bool:
        """Whether no coordinator is known to which a commit could be sent now."""
        return self._coordinator.node_id is None or self.is_cut_off()

    def was_given(self, partition: TopicPartition, since: int) -> bool:
        """Whether an offset of it was committed by a call at that time (ms) or later."""
        return (at := self.given_at.get(partition)) is not None and at >= since

    def trouble(self) -> str | None:
        """Why a waiting commit has not succeeded yet; None if unknown."""
        failure = next((pending.failure for pending in self._queue if pending.failure is not None), None)
        return None if failure is None else str(failure)

    def commit(self, now: int, call: Commit) -> None:
        """Commit. With ``retry`` the answer is an `Answer`, repeated until the deadline; else a `CommitCompleted`."""
        if not call.retry and len(self._queue) >= _MOST_WAITING and self._coordinator.node_id is None:
            self._fail_oldest(now)
        self.given(call, now)
        self._queue.append(self.seen(call))
        self._first_deadline = min(self._first_deadline, call.deadline)

    def given(self, call: Commit, now: int) -> None:
        """The application has given these offsets."""
        for partition in call.offsets:
            self.given_at[partition] = now

    def seen(self, call: Commit) -> Pending:
        """The commit of a call, as it is at present. It changes nothing."""
        # Programs commit each record: one pass, and no unnecessary objects.
        known, read_under = call.known, call.read_under
        is_member = known is not None and self._membership.managed
        tenure: dict[TopicPartition, PartitionState | None] = {}
        pending = Pending(call, tenure, {}, lost=set(call.lost))
        outside: list[TopicPartition] = []
        for partition, at in call.offsets.items():
            held = tenure[partition] = self._membership.tenure(partition)
            if held is None:
                outside.append(partition)
                continue
            if held.topic_id != ZERO_UUID:
                pending.topic_ids[partition.topic] = held.topic_id
            shared_partition, fetch_epoch = held.shared_partition, read_under.get(partition)
            if is_member and known is not None and shared_partition is not known.get(partition):
                pending.lost.add(partition)
            if fetch_epoch is not None and not shared_partition.counts(at.offset, fetch_epoch):
                pending.void.add(partition)
        if outside:
            pending.foreign = frozenset(filter(self.is_foreign, outside))
            pending.strangers = frozenset(p for p in outside if not self.was_ours(p))
        return pending

    # ------------------------------------------------------------ sent by the application's thread

    def free_for(self, now: int) -> int | None:
        """The coordinator to which a commit could be sent at once, with none before it; None: it could not."""
        if self._queue or self._attempt is not None or self._refused_as is not None:
            return None
        if self._membership.managed and not self._membership.settled:
            return None
        return self._coordinator.node_id if self._backoff.ready(now) else None

    def took_over(self, now: int, call: Commit, node_id: int) -> Request:
        """The application's thread has sent a commit while `free_for` held, and its end is decided here."""
        self.commit(now, call)
        self._attempt = self.attempt(now, node_id, [*self._queue])
        return self._attempt.request

    def _fail_oldest(self, now: int) -> None:
        oldest = next((p for p in self._queue if not (p.done or p.call.retry)), None)
        if oldest is not None:
            text = f"no coordinator of the group is known, and {_MOST_WAITING} later commits wait for one"
            oldest.done = True
            oldest.error = errors.for_code(error_codes.COORDINATOR_NOT_AVAILABLE, text)
            self._tell(now)

    def after(
        self,
        now: int,
        partitions: Collection[TopicPartition],
        then: Callable[[int], None],
        *,
        patient: bool = True,
    ) -> None:
        """Call ``then`` once all asynchronous commits of these so far have ended.

        The caller of one with ``retry`` has waited for it, or has given it up. Without ``patient`` it does not wait for
        a coordinator to be found.
        """
        waited_for = [
            pending
            for pending in self._queue
            if not (pending.done or pending.call.retry)
            and not pending.call.offsets.keys().isdisjoint(partitions)
        ]
        if waited_for:
            self._followers.append(_Follower(waited_for, then, patient))
            self._release(now)
        else:
            then(now)

    def fetch_committed(self, now: int, call: FetchCommitted) -> None:
        """Answer with dict[TopicPartition, OffsetAndMetadata | None]."""
        del now

        def done(now: int, result: dict[TopicPartition, OffsetAndMetadata | None] | Exception) -> None:
            del now
            if isinstance(result, Exception):
                self._add_event(Answer(call.id, None, result))
            else:
                self._add_event(Answer(call.id, result))

        self._committed.find(call.partitions, call.deadline, done)

    def lookup(
        self, now: int, partitions: frozenset[TopicPartition], done: Done, deadline: int = FOREVER
    ) -> None:
        """The same for the network side; repeated until it is answered or refused permanently."""
        del now
        self._committed.find(partitions, deadline, done)

    # ------------------------------------------------------------ the turn

    def poll(self, now: int) -> Poll:
        wake_at = FOREVER
        requests: list[Request] = []
        if self._queue:
            wake_at = self._expire(now)
            self._give_up_parting(now)
        if self._followers:
            self._release(now)
        if self._queue and self._attempt is None:
            wake_at = min(wake_at, self._send(now, requests))
        if self._committed.lookups:
            # They use another connection than commits, so a look-up that must see a commit waits for its response.
            waits = self._attempt is not None or any(not (p.sent or p.done) for p in self._queue)
            lookups = self._committed.poll(now, hold=waits)
            requests += lookups.requests
            wake_at = min(wake_at, lookups.wake_at)
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _give_up_parting(self, now: int) -> None:
        """Giving partitions up does not wait when no broker can be reached: their records will be redelivered."""
        parting = [pending for pending in self._queue if pending.call.parting and not pending.done]
        if not parting or not self.is_cut_off():
            return
        for pending in parting:
            pending.done, pending.error = True, ConnectError("no broker can be reached")
            self._answer_early(pending)
        self._tell(now)

    def _expire(self, now: int) -> int:
        if now < self._first_deadline:
            return self._first_deadline
        wake_at = FOREVER
        for pending in self._queue:
            if pending.done:
                continue
            if pending.call.deadline <= now:
                why = f"; last failure: {pending.failure}" if pending.failure is not None else ""
                pending.done = True
                pending.error = KafkaTimeoutError(f"the commit was not acknowledged in time{why}")
                self._answer_early(pending)
            else:
                wake_at = min(wake_at, pending.call.deadline)
        self._first_deadline = wake_at
        self._tell(now)
        return wake_at

    def _answer_early(self, pending: Pending) -> None:
        """A call that waits for it must not also wait for the commits before it."""
        if pending.call.retry:
            pending.is_answered = True
            self._add_event(Answer(pending.call.id, None, pending.error))

    def _send(self, now: int, requests: list[Request]) -> int:
        managed = self._membership.managed
        self._leave_out_former_topics()
        if managed:
            self._refuse_what_was_lost()
        batch = [pending for pending in self._queue if not pending.done]
        if not any(pending.offsets for pending in batch):
            for pending in batch:
                pending.done = True
            self._tell(now)
            return FOREVER
        self._tell(now)
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
        self._attempt = self.attempt(now, node_id, batch)
        requests.append(self._attempt.request)
        return FOREVER

    @property
    def identity(self) -> GroupMetadata:
        """The identity that commits are sent with: one object as long as it is the same."""
        return self._membership.group if self._membership.managed else self._outsider

    def attempt(self, now: int, node_id: int, batch: list[Pending]) -> Attempt:
        """One request for these commits, as of now."""
        return combined(
            now,
            node_id,
            batch,
            self.identity,
            self._metadata,
            managed=self._membership.managed,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _leave_out_former_topics(self) -> None:
        """Offsets of a topic that was recreated since: before OffsetCommit 10 brokers know topics by name only."""
        for pending in self._queue:
            if pending.done or not pending.call.read_under:
                continue
            for partition in pending.call.read_under:
                held = pending.tenure.get(partition)
                if held is not None and pending.topic_ids.get(partition.topic) in held.former_topic_ids:
                    pending.void.add(partition)

    def _refuse_what_was_lost(self) -> None:
        for pending in self._queue:
            if pending.done:
                continue
            for p, held in pending.tenure.items():
                if (held is None or self._membership.tenure(p) is not held) and p not in pending.foreign:
                    pending.lost.add(p)
            if pending.lost and not pending.offsets:
                pending.succeed()

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
            self._judge(now, attempt, codes_of(attempt, completed))
        self._tell(now)

    def _unanswered(self, now: int, attempt: Attempt, error: KafkaError) -> None:
        if error.retriable:
            self._backoff.failed(now)
        for pending in attempt.commits:
            self._repeat_or_fail(pending, error)

    def _repeat_or_fail(self, pending: Pending, error: KafkaError) -> None:
        if pending.done:
            return
        if (pending.call.retry or pending.call.parting) and error.retriable:
            pending.failure = error
        else:
            pending.done, pending.error = True, own_copy(error)

    def _judge(self, now: int, attempt: Attempt, codes: Mapping[TopicPartition, int]) -> None:
        node_id = attempt.request.node_id
        failed = {code for code in codes.values() if code != error_codes.NONE}
        for code in failed:
            self._coordinator.check(now, node_id, code)
        if error_codes.REQUEST_TIMED_OUT in failed and node_id == self._coordinator.node_id:
            self._coordinator.mark_unknown(now, "REQUEST_TIMED_OUT")
        if error_codes.UNKNOWN_TOPIC_ID in failed:
            self._metadata.request_update(now)
        if (identity := next(iter(failed & IDENTITY), None)) is not None:
            self._identity_refused(now, attempt, identity)
            return
        if any(code in error_codes.RETRIABLE for code in failed):
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        for pending in attempt.commits:
            left = pending.offsets
            own = {p: codes.get(p, error_codes.UNKNOWN_SERVER_ERROR) for p in left if p in attempt.partitions}
            error = error_of(own)
            if error is None:
                if len(own) == len(left):
                    pending.succeed()
                else:
                    pending.stored.update(own)
                continue
            pending.stored.update([p for p, code in own.items() if code == error_codes.NONE])
            if (
                error_codes.OFFSET_METADATA_TOO_LARGE in own.values()
                and pending.call.parting
                and not pending.is_bare
            ):
                pending.is_bare = True
            elif all(code == error_codes.NONE or self._gone(pending, p, code) for p, code in own.items()):
                pending.done, pending.error = True, error
            else:
                self._repeat_or_fail(pending, error)

    def _gone(self, pending: Pending, partition: TopicPartition, code: int) -> bool:
        """Whether the topic was deleted, and not just unknown to one broker: waiting for it would hold up a rebalance.

        Metadata says so, or lacks it although this member was assigned it (KAFKA-16224).
        """
        if code not in (error_codes.UNKNOWN_TOPIC_OR_PARTITION, error_codes.UNKNOWN_TOPIC_ID):
            return False
        topic = self._metadata.cluster.topics.get(partition.topic)
        if topic is None:
            return pending.tenure.get(partition) is not None
        if pending.topic_ids.get(partition.topic, topic.topic_id) != topic.topic_id:
            return True
        return topic.error_code == error_codes.UNKNOWN_TOPIC_OR_PARTITION

    def _identity_refused(self, now: int, attempt: Attempt, code: int) -> None:
        """The coordinator refused the member.

        If its rebalance is the reason, the commit is sent again with the new identity.
        """
        if not attempt.managed:
            error: KafkaError = outsider(code, self._config.group_id)
        elif self._membership.commit_refused(now, attempt.group, code):
            self._refused_as = attempt.group
            self._backoff.failed(now)
            for pending in attempt.commits:
                pending.failure = errors.for_code(code)
            return
        elif code == error_codes.FENCED_INSTANCE_ID:
            error = errors.for_code(code)
        else:
            error = expelled(code)
        for pending in attempt.commits:
            if not pending.done:
                pending.done, pending.error = True, own_copy(error)

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        waiting = [pending for pending in self._queue if not pending.done]
        for pending in waiting:
            pending.done, pending.error = True, own_copy(error)
        self._committed.fail_all(now, lambda: own_copy(error))
        self._tell(now)
        return bool(waiting)

    def _tell(self, now: int) -> None:
        """Report results in the order of the commits; then make the calls that waited for them."""
        while self._queue and self._queue[0].done:
            pending = self._queue.popleft()
            call = pending.call
            if not (call.retry or call.id):
                # The network side's own: no call is waiting for it.
                continue
            if not call.retry:
                self._add_event(CommitCompleted(call.id, pending.told, pending.error))
            elif not pending.is_answered:
                self._add_event(Answer(call.id, frozenset(pending.void) or None, pending.error))
        if not self._queue:
            self._first_deadline = FOREVER
        self._release(now)

    def _release(self, now: int) -> None:
        stranded = self._coordinator.node_id is None
        for follower in list(self._followers):
            if all(pending.done for pending in follower.commits) or (stranded and not follower.patient):
                self._followers.remove(follower)
                follower.then(now)
