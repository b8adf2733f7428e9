"""Looks up committed offsets (OffsetFetch), for committed() and for first positions; and keeps them from expiring.

Equal look-ups that are not yet sent are one request. Ones already sent are not shared: a commit may have been sent
since, and a look-up after it must see it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from kadence import errors
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.events import Commit
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import ClusterView, GroupConfig, Membership
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import KafkaError, KafkaTimeoutError
from kadence.lazy_dataclasses import dataclass, field
from kadence.protocol import error_codes, offset_fetch
from kadence.protocol.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID, Writer

__all__ = ["CommittedOffsets", "Done", "OffsetKeeper", "by_topic", "topic_ids"]

Done = Callable[[int, "dict[TopicPartition, OffsetAndMetadata | None] | Exception"], None]
"""Takes ``now`` and the committed offsets (None where there is none), or the error."""

_LAST_WITH_NAMES: Final = 9
_GROUP_LIST: Final = 8
_REQUIRE_STABLE: Final = 7


class OffsetFetchRequest(offset_fetch.OffsetFetchRequest):
    """Holds one entry of ``groups`` (v8+, KIP-709); writes ``group_id`` and ``topics`` below.

    ``require_stable`` (v7+, KIP-447) is left out where it is not known: such brokers cannot wait for a
    transaction, and every offset that they have is readable.
    """

    def write(self, w: Writer, version: int) -> None:
        if version >= _GROUP_LIST:
            super().write(w, version)
            return
        (group,) = self.groups
        topics = [
            offset_fetch.OffsetFetchRequestTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in group.topics or ()
        ]
        offset_fetch.OffsetFetchRequest(
            group_id=group.group_id,
            topics=topics,
            require_stable=self.require_stable and version >= _REQUIRE_STABLE,
        ).write(w, version)


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Partition numbers by topic, both in order: the form that most requests need."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


@dataclass(slots=True)
class _Waiter:
    deadline: int
    done: Done


@dataclass(slots=True, eq=False)
class _Lookup:
    partitions: frozenset[TopicPartition]
    backoff: Backoff
    waiters: list[_Waiter] = field(default_factory=list)
    sent: Request | None = None
    names: dict[bytes, str] = field(default_factory=dict)
    failure: KafkaError | int | None = None
    """Why the last attempt has to be repeated."""


class CommittedOffsets:
    """All look-ups under way; each is repeated until it is answered or no longer needed.

    Attributes:
        lookups: those.
    """

    def __init__(
        self, coordinator: CoordinatorRequestManager, metadata: ClusterView, config: GroupConfig
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._config = config
        self.lookups: list[_Lookup] = []
        # A caller that asks again after a permanent refusal must not do so in a tight loop.
        self._after_refusal = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def find(self, partitions: frozenset[TopicPartition], deadline: int, done: Done) -> None:
        """Look them up; ``done`` is called once, at ``deadline`` with a `KafkaTimeoutError`."""
        for lookup in self.lookups:
            if lookup.partitions == partitions and lookup.sent is None:
                break
        else:
            backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
            backoff.until = self._after_refusal.until
            lookup = _Lookup(partitions, backoff)
            self.lookups.append(lookup)
        lookup.waiters.append(_Waiter(deadline, done))

    def fail_all(self, now: int, make: Callable[[], KafkaError]) -> None:
        """Fail all look-ups: no coordinator can be found."""
        lookups, self.lookups = self.lookups, []
        for lookup in lookups:
            for waiter in lookup.waiters:
                waiter.done(now, make())

    def poll(self, now: int, *, hold: bool) -> Poll:
        """``hold``: a commit goes first, and the results must not be older than it."""
        wake_at = self._expire(now)
        requests: list[Request] = []
        for lookup in self.lookups:
            if lookup.sent is not None:
                continue
            node_id = self._coordinator.node_id
            if node_id is None:
                wake_at = min(wake_at, self._coordinator.require(now))
            elif not lookup.backoff.ready(now):
                wake_at = min(wake_at, lookup.backoff.until)
            elif not hold:
                lookup.sent = self._request(now, node_id, lookup)
                requests.append(lookup.sent)
        return Poll(requests, wake_at)

    def _expire(self, now: int) -> int:
        wake_at = FOREVER
        for lookup in list(self.lookups):
            overdue = [waiter for waiter in lookup.waiters if waiter.deadline <= now]
            lookup.waiters = [waiter for waiter in lookup.waiters if waiter.deadline > now]
            for waiter in overdue:
                waiter.done(now, _too_late(lookup.failure))
            if not lookup.waiters:
                self.lookups.remove(lookup)
            else:
                wake_at = min(wake_at, *(waiter.deadline for waiter in lookup.waiters))
        return wake_at

    def _request(self, now: int, node_id: int, lookup: _Lookup) -> Request:
        topics = by_topic(lookup.partitions)
        ids = topic_ids(self._metadata, topics)
        lookup.names = {topic_id: name for name, topic_id in ids.items()}
        group = OffsetFetchRequestGroup(
            group_id=self._config.group_id or "",
            topics=[
                OffsetFetchRequestTopics(topic_id=ids[name], name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
        )
        return Request(
            OffsetFetchRequest(groups=[group], require_stable=True),
            node_id,
            add_ms(now, self._config.request_timeout_ms),
            max_version=_LAST_WITH_NAMES if ZERO_UUID in lookup.names else None,
        )

    def on_response(self, now: int, completed: Completed) -> None:
        lookup = next((one for one in self.lookups if one.sent is completed.request), None)
        if lookup is None:
            return
        lookup.sent = None
        if completed.error is not None:
            self._coordinator.check_elsewhere(now, completed.request.node_id, completed.error)
            if completed.error.retriable:
                self._repeat(now, lookup, completed.error)
            else:
                self._end(now, lookup, completed.error)
            return
        self._answered(now, completed, lookup)

    def _answered(self, now: int, completed: Completed, lookup: _Lookup) -> None:
        answer: Any = completed.response
        if completed.version >= _GROUP_LIST:
            answer = answer.groups[0] if answer.groups else None
        if answer is None:
            self._end(now, lookup, errors.MalformedMessageError("OffsetFetch was answered without the group"))
            return
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(lookup.partitions)
        codes: dict[TopicPartition | None, int] = {None: answer.error_code}
        for topic in answer.topics:
            name = (
                topic.name if completed.version <= _LAST_WITH_NAMES else lookup.names.get(topic.topic_id, "")
            )
            for part in topic.partitions:
                partition = TopicPartition(name, part.partition_index)
                codes[partition] = part.error_code
                if part.committed_offset >= 0:
                    epoch = part.committed_leader_epoch
                    found[partition] = OffsetAndMetadata(
                        part.committed_offset, epoch if epoch >= 0 else None, part.metadata or ""
                    )
        failed = {partition: code for partition, code in codes.items() if code != error_codes.NONE}
        if failed:
            self._refused(now, completed, lookup, failed)
        else:
            self._end(now, lookup, found)

    def _refused(
        self, now: int, completed: Completed, lookup: _Lookup, failed: dict[TopicPartition | None, int]
    ) -> None:
        for partition, code in failed.items():
            self._coordinator.check(now, completed.request.node_id, code)
            if code == error_codes.UNKNOWN_TOPIC_ID:
                self._metadata.request_update(now)
            unknown = code == error_codes.UNKNOWN_TOPIC_OR_PARTITION
            if code not in error_codes.RETRIABLE or unknown:
                self._end(now, lookup, self._error(partition, code, failed))
                return
        self._repeat(now, lookup, next(iter(failed.values())))

    def _error(
        self, partition: TopicPartition | None, code: int, failed: dict[TopicPartition | None, int]
    ) -> KafkaError:
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            topics = sorted({p.topic for p, other in failed.items() if p is not None and other == code})
            return errors.for_code(code, f"not allowed for {', '.join(topics)}")
        what = f"group {self._config.group_id!r}" if partition is None else str(partition)
        return errors.for_code(
            code, f"committed offsets of {what}: {error_codes.MESSAGES.get(code, 'refused')}"
        )

    def _repeat(self, now: int, lookup: _Lookup, failure: KafkaError | int) -> None:
        lookup.failure = failure
        lookup.backoff.failed(now)

    def _end(self, now: int, lookup: _Lookup, result: dict[TopicPartition, Any] | KafkaError) -> None:
        self.lookups.remove(lookup)
        if isinstance(result, dict):
            self._after_refusal.succeeded()
        else:
            self._after_refusal.failed(now)
        for waiter in lookup.waiters:
            waiter.done(now, dict(result) if isinstance(result, dict) else result)


def topic_ids(metadata: ClusterView, topics: Any) -> dict[str, bytes]:
    """Ids of topics by name; `ZERO_UUID` if unknown, which requires names (versions up to 9)."""
    known = metadata.cluster.topics
    return {name: known[name].topic_id if name in known else ZERO_UUID for name in topics}


def _too_late(failure: KafkaError | int | None) -> KafkaTimeoutError:
    why = error_codes.name(failure) if isinstance(failure, int) else failure
    return KafkaTimeoutError(
        "the broker did not send the committed offsets in time" + (f"; last failure: {why}" if why else "")
    )


_EVERY_MS: Final = 12 * 3_600_000
"""How often it checks. An offset that has not moved between two checks is committed again, so at least once a day."""

_FRESH_MS: Final = 60_000
"""An offset that this member has committed this recently needs no repetition."""


class Commits(Protocol):
    """The part of the commit manager that the keeper needs."""

    @property
    def is_stranded(self) -> bool: ...

    def was_given(self, partition: TopicPartition, since: int) -> bool: ...

    def lookup(
        self, now: int, partitions: frozenset[TopicPartition], done: Done, deadline: int = FOREVER
    ) -> None: ...

    def commit(self, now: int, call: Commit) -> None: ...

    def after(
        self,
        now: int,
        partitions: Collection[TopicPartition],
        then: Callable[[int], None],
        *,
        patient: bool = True,
    ) -> None: ...


class OffsetKeeper:
    """Keeps the committed offsets of quiet partitions from expiring: it commits them again, unchanged.

    A coordinator deletes offsets that were not committed for `offsets.retention.minutes` (a week by default) once the
    group is empty. The classic protocol counts from when the group became empty, KIP-848 from the commit itself. So
    under KIP-848 the offset of a partition that was quiet for a week is gone a second after the last member's `close`,
    and its next reader starts by ``auto.offset.reset``.

    So a member commits the group's offsets of its partitions again: before it leaves, and, in case it is killed, at
    least once a day for partitions that have not moved. It looks the offsets up first, because earlier members and
    transactions commit, too.

    A transaction that commits between the look-up and the commit would be taken back, and nothing here knows of it. So
    in a program with transactions an offset is committed again only if nothing beyond it was returned by a poll, and no
    poll returns any before this has ended.

    Args:
        timeout_ms: timeout of a commit that no call waits for.
        is_transactional: returns whether the program commits in transactions, or may.
    """

    def __init__(
        self,
        commits: Commits,
        membership: Membership,
        subscription: Subscription,
        timeout_ms: int,
        is_transactional: Callable[[], bool],
    ) -> None:
        self._commits = commits
        self._membership = membership
        self._subscription = subscription
        self._timeout_ms = timeout_ms
        self._is_transactional = is_transactional
        self._look_at = FOREVER
        self._stood: dict[TopicPartition, tuple[PartitionState, int]] = {}
        """The position of each partition at the last check."""
        self._leaving: list[Callable[[int], None]] = []
        """The call to make at its end."""

    def poll(self, now: int) -> Poll:
        if self._leaving and self._commits.is_stranded:
            self._ended(now, *self._leaving)
        if self._look_at == FOREVER:
            self._look_at = add_ms(now, _EVERY_MS)
        elif now >= self._look_at:
            self._look_at = add_ms(now, _EVERY_MS)
            stands = {p: (state, state.offset) for p, state in self._subscription.partitions.items()}
            quiet = [p for p, place in stands.items() if self._stood.get(p) == place]
            self._stood = stands
            self._keep(now, quiet, add_ms(now, self._timeout_ms), lambda now: None)
        # No time of its own: heartbeats wake the thread often enough.
        return NOTHING

    def on_response(self, now: int, completed: Completed) -> None:
        """It sends nothing itself."""

    def keep(self, now: int, deadline: int, done: Callable[[int], None]) -> None:
        """Commit all of them again; ``done`` is called at the end, successful or not."""
        self._leaving.append(done)
        self._keep(now, self._subscription.partitions, deadline, lambda now: self._ended(now, done))

    def _ended(self, now: int, *those: Callable[[int], None]) -> None:
        """Call these, unless they were called before because no coordinator answers."""
        for done in those:
            if done in self._leaving:
                self._leaving.remove(done)
                done(now)

    def _keep(
        self, now: int, partitions: Iterable[TopicPartition], deadline: int, done: Callable[[int], None]
    ) -> None:
        commits, subscription = self._commits, self._subscription
        since = now - _FRESH_MS
        asked = {
            p: state
            for p in partitions
            if not commits.was_given(p, since)
            and (state := subscription.partitions[p]) is self._membership.tenure(p)
        }
        # With the classic protocol it is known when a membership without heartbeats ends.
        is_in_danger = self._membership.managed and self._membership.known_session_ms is None
        if not (asked and is_in_danger) or commits.is_stranded:
            done(now)
            return
        held, why = tuple(asked.values()) if self._is_transactional() else (), object()
        subscription.hold(held, why)

        def found(when: int, result: dict[TopicPartition, OffsetAndMetadata | None] | Exception) -> None:
            offsets = {
                p: at
                for p, at in ({} if isinstance(result, Exception) else result).items()
                # Offsets committed meanwhile are newer.
                if at is not None
                and not commits.was_given(p, now)
                and self._membership.tenure(p) is asked[p]
                and not (self._is_transactional() and _is_passed(asked[p], at))
            }
            if not offsets:
                subscription.let_go(held, why)
                done(when)
                return
            commits.commit(when, Commit(0, deadline, offsets, retry=False, parting=True))
            commits.after(when, offsets, lambda _: subscription.let_go(held, why))
            commits.after(when, offsets, done, patient=False)

        commits.lookup(now, frozenset(asked), found, deadline)


def _is_passed(state: PartitionState, committed: OffsetAndMetadata) -> bool:
    """Whether polls may have returned records that are not committed."""
    shared_partition = state.shared_partition
    if shared_partition.position is None:
        return False
    at = shared_partition.current()
    return at is None or at.offset != committed.offset
