"""Starting offsets: committed offsets, resets, and offsets by time (ListOffsets). Network thread, sans-IO.

A partition that is INITIALIZING gets its committed offset; without one it is reset by policy, but only if the look-up
included it, never if it joined meanwhile. A lost position is also reset (`Subscription.lose`): ``auto.offset.reset`` is
applied only here. AWAIT_RESET is answered by ListOffsets of its leader. Each response is applied only if the partition
still waits for it: a seek in between wins. A partition that the group took away and returned is not looked up before
the application knows (`Subscription.losses`).

`OffsetCalls` are calls of the application for offsets by time: offsets_for_times(), beginning_offsets(), end_offsets().
Each leader gets its own request: one that fails or hangs does not delay the others, and its request is repeated until
the call's deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import INFO, WARNING
from typing import Final, Protocol

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Answer, Failed, ListOffsets
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.errors import (
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kadence.lazy_dataclasses import dataclass, field
from kadence.logs import logger
from kadence.printable import plural
from kadence.protocol import error_codes as ec
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Committed", "OffsetsRequestManager"]

log = logger("kadence.consumer.offsets")

_PATIENCE_MS: Final = 5_000
"""A new topic takes a moment (ms) to become known to all brokers."""


class Unknown:
    """Since when requested partitions have been missing from metadata."""

    def __init__(self, config: ConsumerConfig, metadata: MetadataManager) -> None:
        self._config = config
        self._metadata = metadata
        self._since: dict[TopicPartition, int] = {}

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._since)

    def is_long(self, now: int, partition: TopicPartition) -> bool:
        """Whether the partition has been unknown for long enough to report an error."""
        return now - self._since.setdefault(partition, now) >= _PATIENCE_MS

    def forget(self, partition: TopicPartition) -> None:
        """It is known, or no longer requested: if it is unknown again, the time starts anew."""
        self._since.pop(partition, None)

    def error(self, partition: TopicPartition) -> UnknownTopicOrPartitionError:
        where = f"on the cluster at {','.join(self._config.bootstrap_servers)}"
        if count := len(self._metadata.cluster.partitions_for(partition.topic)):
            return UnknownTopicOrPartitionError(
                f"{partition} does not exist: topic {partition.topic!r} has {plural(count, 'partition')} {where}, "
                "numbered from 0"
            )
        return UnknownTopicOrPartitionError(
            f"{partition} does not exist {where}; "
            f"create it (kadence topics create {partition.topic}) or correct its name"
        )

    def in_words(self, partition: TopicPartition) -> str:
        """The same, for a list of partitions with their problems."""
        count = len(self._metadata.cluster.partitions_for(partition.topic))
        return f"does not exist (of {plural(count, 'partition')})" if count else "does not exist"


class Asking:
    """ListOffsets requests of one consumer, and their responses."""

    def __init__(self, config: ConsumerConfig, metadata: MetadataManager) -> None:
        self._config = config
        self._metadata = metadata
        self._isolation = 1 if config.isolation_level == "read_committed" else 0

    def request(self, now: int, leader: int, timestamps: Mapping[TopicPartition, int]) -> Request:
        """The request to the leader of these partitions."""
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in timestamps.items():
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
            epoch = self._metadata.leader_epoch(partition)
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=-1 if epoch is None else epoch,
                    timestamp=timestamp,
                )
            )
        message = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation,
            topics=list(topics.values()),
            timeout_ms=self._config.request_timeout_ms,
        )
        return Request(message, leader, add_ms(now, self._config.request_timeout_ms))

    def read(
        self, completed: Completed, asked: Mapping[TopicPartition, object]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, int]]:
        """Results and error codes of the requested partitions; a lost request has none."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failed: dict[TopicPartition, int] = {}
        response = completed.response
        if isinstance(response, ListOffsetsResponse):
            for topic in response.topics:
                for part in topic.partitions:
                    partition = TopicPartition(topic.name, part.partition_index)
                    if partition not in asked:
                        continue
                    if part.error_code:
                        failed[partition] = part.error_code
                    elif part.offset < 0:
                        found[partition] = None
                    else:
                        epoch = part.leader_epoch if part.leader_epoch >= 0 else None
                        found[partition] = OffsetAndTimestamp(part.offset, part.timestamp, epoch)
        return found, failed


_NAMED: Final = 5
"""How many partitions the text of an error names."""


@dataclass(slots=True, eq=False)
class _Lookup:
    """A call for offsets by time: the partitions still to be requested, and the results."""

    call: ListOffsets
    todo: dict[TopicPartition, int]
    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    asked: set[TopicPartition] = field(default_factory=set)
    """Those of ``todo`` that are being requested."""
    retry_at: dict[TopicPartition, int] = field(default_factory=dict)


class OffsetCalls:
    """Answers offsets_for_times(), beginning_offsets() and end_offsets() by ListOffsets requests."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        asking: Asking,
        unknown: Unknown,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._asking = asking
        self._unknown = unknown
        self._add_event = add_event
        self._lookups: list[_Lookup] = []
        self._asked: dict[Request, tuple[_Lookup, dict[TopicPartition, int]]] = {}

    def begin(self, call: ListOffsets) -> None:
        """Take a call; it is answered when every partition was, or at its deadline, here or by the reaper."""
        self._lookups.append(_Lookup(call, dict(call.timestamps)))
        self._need_topics()

    def poll(self, now: int, requests: list[Request]) -> int:
        """Add the requests that are due to ``requests``. Returns when to poll again."""
        wake_at = FOREVER
        if self._lookups:
            for lookup in [each for each in self._lookups if each.call.deadline <= now]:
                text = f"{lookup.call.what} did not finish in time: {self._missing(lookup)}"
                self._end(lookup, Answer(lookup.call.id, None, KafkaTimeoutError(text)))
            for lookup in list(self._lookups):
                wake_at = min(wake_at, self._ask(now, lookup, requests))
        return wake_at

    def missing(self, call_id: int) -> str | None:
        """A text with the partitions that a call still waits for, and why; None if there is no such call."""
        return next((self._missing(each) for each in self._lookups if each.call.id == call_id), None)

    def _missing(self, lookup: _Lookup) -> str:
        todo = list(lookup.todo)
        named = [f"{partition} {self._trouble(partition)}" for partition in todo[:_NAMED]]
        return ", ".join(named) + (f" and {len(todo) - _NAMED} more" if len(todo) > _NAMED else "")

    def _trouble(self, partition: TopicPartition) -> str:
        if self._metadata.leader(partition) is not None:
            return "was not answered by its leader"
        is_unknown = self._metadata.error_of(partition) == ec.UNKNOWN_TOPIC_OR_PARTITION
        return self._unknown.in_words(partition) if is_unknown else "has no known leader"

    def on_response(self, now: int, completed: Completed) -> None:
        lookup, asked = self._asked.pop(completed.request)
        self._answered(now, completed, lookup, asked)

    def _ask(self, now: int, lookup: _Lookup, requests: list[Request]) -> int:
        wake_at = lookup.call.deadline
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in lookup.todo.items():
            if partition in lookup.asked:
                continue
            if (retry_at := lookup.retry_at.get(partition, 0)) > now:
                wake_at = min(wake_at, retry_at)
                continue
            leader = self._metadata.leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, {})[partition] = timestamp
                continue
            if self._is_unknown_for_good(now, partition):
                self._end(lookup, Answer(lookup.call.id, None, self._unknown.error(partition)))
                return FOREVER
            self._metadata.request_update(now)
            wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
        for leader, group in by_leader.items():
            request = self._asking.request(now, leader, group)
            self._asked[request] = (lookup, group)
            lookup.asked |= group.keys()
            requests.append(request)
        return wake_at

    def _end(self, lookup: _Lookup, answer: Answer) -> None:
        self._lookups.remove(lookup)
        for partition in lookup.todo:
            if partition not in self._subscription.partitions:
                # Its metadata is no longer requested, so the next call must wait for a new response.
                self._unknown.forget(partition)
        self._need_topics()
        self._add_event(answer)

    def _need_topics(self) -> None:
        self._metadata.need("offsets", frozenset(p.topic for each in self._lookups for p in each.todo))

    def _is_unknown_for_good(self, now: int, partition: TopicPartition) -> bool:
        is_unknown = self._metadata.error_of(partition) == ec.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and self._unknown.is_long(now, partition)

    def _answered(
        self,
        now: int,
        completed: Completed,
        lookup: _Lookup,
        asked: Mapping[TopicPartition, int],
    ) -> None:
        found, failed = self._asking.read(completed, asked)
        lookup.asked -= asked.keys()
        if lookup not in self._lookups:
            return
        for partition in asked:
            if partition in found:
                lookup.found[partition] = found[partition]
                del lookup.todo[partition]
                self._unknown.forget(partition)
                continue
            code = failed.get(partition, ec.NONE)
            if code and code not in ec.RETRIABLE:
                error = for_code(code, f"{partition}: {ec.MESSAGES.get(code, '')}")
                self._end(lookup, Answer(lookup.call.id, None, error))
                return
            lookup.retry_at[partition] = add_ms(now, self._config.retry_backoff_ms)
            self._metadata.request_update(now)
        if not lookup.todo:
            self._end(lookup, Answer(lookup.call.id, lookup.found))


_EARLIEST: Final = -2
_LATEST: Final = -1
_NAMES: Final = {_EARLIEST: "the beginning", _LATEST: "the end"}


class Committed(Protocol):
    """The part of the commit manager that this manager needs."""

    def lookup(
        self,
        now: int,
        partitions: frozenset[TopicPartition],
        done: Callable[[int, dict[TopicPartition, OffsetAndMetadata | None] | Exception], None],
    ) -> None: ...


class OffsetsRequestManager:
    """Sets each partition's starting offset: the committed one, or that of ``auto.offset.reset``.

    Args:
        wall: ms since 1970, needed only for ``auto.offset.reset=by_duration``.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        committed: Committed | None,
        add_event: AddBackgroundEvent,
        wall: Callable[[], int] = lambda: 0,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._committed = committed
        self._add_event = add_event
        self._wall = wall
        self._policy = config.auto_offset_reset
        self._asking = Asking(config, metadata)
        self._unknown = Unknown(config, metadata)
        self._calls = OffsetCalls(config, subscription, metadata, self._asking, self._unknown, add_event)
        self._looking_up: set[PartitionState] = set()
        self._resetting: dict[Request, dict[TopicPartition, tuple[int, int, bytes]]] = {}
        self._told_unknown: set[TopicPartition] = set()
        self._seen: tuple[int, int] | None = None
        self._snapshot: object = None
        self._leaderless: list[TopicPartition] = []

    def list_offsets(self, call: ListOffsets) -> None:
        """A call of the application, answered when every partition was."""
        self._calls.begin(call)

    def missing(self, call_id: int) -> str | None:
        """The partitions that a call of `list_offsets` still waits for, and why; None if it is another call."""
        return self._calls.missing(call_id)

    def poll(self, now: int) -> Poll:
        requests: list[Request] = []
        wake_at = FOREVER
        subscription = self._subscription
        if not subscription.by_group and subscription.partitions:
            self._look_for_leaders(now)
        if subscription.unplaced:
            wake_at = self._initialise(now)
            wake_at = min(wake_at, self._reset(now, requests))
        wake_at = min(wake_at, self._calls.poll(now, requests))
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def on_response(self, now: int, completed: Completed) -> None:
        request = completed.request
        resetting = self._resetting.pop(request, None)
        if resetting is not None:
            self._on_reset(now, completed, resetting)
        else:
            self._calls.on_response(now, completed)

    # ------------------------------------------------------------ committed offsets

    def _initialise(self, now: int) -> int:
        """Start to look up committed offsets.

        Returns when to poll again: the commit manager, which sends the look-up, had its turn already.
        """
        waiting = [
            state
            for state in self._subscription.unplaced.values()
            if state.status is Status.INITIALIZING and state not in self._looking_up and not state.is_untold
        ]
        if not waiting:
            return FOREVER
        if self._committed is None:
            for state in waiting:
                self._reset_by_policy(state)
            return FOREVER
        self._looking_up.update(waiting)
        asked = {state: self._metadata.topic_id(state.partition.topic) for state in waiting}
        self._committed.lookup(
            now,
            frozenset(state.partition for state in waiting),
            lambda when, result: self._on_committed(when, asked, result),
        )
        return now

    def _is_of_topic(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Whether a result for this topic is still valid: it was not deleted and recreated meanwhile."""
        return topic_id in (ZERO_UUID, self._metadata.topic_id(partition.topic))

    def _on_committed(
        self,
        now: int,
        waiting: Mapping[PartitionState, bytes],
        result: dict[TopicPartition, OffsetAndMetadata | None] | Exception,
    ) -> None:
        del now
        for state, topic_id in waiting.items():
            self._looking_up.discard(state)
            current = self._subscription.partitions.get(state.partition)
            if current is not state or state.status is not Status.INITIALIZING:
                continue
            if not self._is_of_topic(state.partition, topic_id):
                continue
            if isinstance(result, Exception):
                continue
            committed = result.get(state.partition)
            if committed is None:
                self._reset_by_policy(state)
            else:
                log.debug(
                    "%s starts at its committed offset %d",
                    state.partition,
                    committed.offset,
                )
                self._subscription.position(
                    state.partition, committed.offset, committed.leader_epoch, committed=committed
                )
        if isinstance(result, Exception):
            self._add_event(Failed(result))

    def _reset_by_policy(self, state: PartitionState) -> None:
        self._subscription.lose(
            state.partition,
            NoOffsetForPartitionError(
                f"{state.partition} has no committed offset"
                + (
                    f" for group {self._config.group_id!r}"
                    if self._config.group_id
                    else ", for there is no group.id,"
                )
                + " and auto.offset.reset is none: seek() to where you want to start"
            ),
        )

    def _apply_policy(self, state: PartitionState, error: KafkaError) -> None:
        """The position is lost: look up the offset of the policy, or raise and wait for a seek."""
        policy = "earliest" if state.is_from_start else self._policy
        if policy == "none":
            state.lost = None
            self._add_event(
                Failed(error, partition=state.partition, fetch_epoch=state.shared_partition.fetch_epoch)
            )
            return
        if not isinstance(error, NoOffsetForPartitionError):
            # Records deleted by retention before they were read are missed. A truncation has already been logged in
            # more detail.
            log.log(
                WARNING if type(error) is OffsetOutOfRangeError else INFO,
                "%s: offset %d, its position, is not in the log; %s",
                state.partition,
                state.offset,
                "reading continues at the beginning"
                if state.is_from_start
                else f"applying auto.offset.reset={policy}"
                if state.shared_partition.end is None
                else "looking up which records of its range there are",
            )
        duration_ms = self._config.reset_duration_ms
        if policy == "earliest":
            timestamp = _EARLIEST
        elif duration_ms is not None:
            timestamp = max(self._wall() - duration_ms, 0)
        else:
            timestamp = _LATEST
        if (
            state.shared_partition.end is not None
            and type(error) is OffsetOutOfRangeError
            and timestamp != _EARLIEST
        ):
            # Retention may have deleted the offset. A reader of a range then wants the remaining records of it: the
            # policy would skip them.
            self._subscription.await_reset(state.partition, _EARLIEST, beyond=timestamp, is_by_policy=True)
        else:
            self._subscription.await_reset(state.partition, timestamp, is_by_policy=True)

    # ------------------------------------------------------------ resets

    def _look_for_leaders(self, now: int) -> None:
        """Report partitions of assign() that have a position but no leader.

        Checked when metadata or the assignment has changed.
        """
        subscription = self._subscription
        seen = (self._metadata.version, subscription.moves)
        if seen != self._seen or subscription.snapshot is not self._snapshot:
            self._seen, self._snapshot = seen, subscription.snapshot
            leader = self._metadata.leader
            self._leaderless = [p for p in subscription.partitions if leader(p) is None]
            for partition in self._unknown.partitions():
                if partition in subscription.partitions and leader(partition) is not None:
                    self._is_known(partition)
        for partition in self._leaderless:
            state = subscription.partitions[partition]
            if state.status is Status.FETCHING:
                self._no_leader(now, state)

    def _reset(self, now: int, requests: list[Request]) -> int:
        wake_at = FOREVER
        by_leader: dict[int, dict[TopicPartition, tuple[int, int, bytes]]] = {}
        asked = {
            p
            for group in self._resetting.values()
            for p, (fetch_epoch, *_) in group.items()
            if self._fetch_epoch(p) == fetch_epoch
        }
        for partition, state in tuple(self._subscription.unplaced.items()):
            if state.status is not Status.AWAIT_RESET:
                continue
            if state.lost is not None:
                self._apply_policy(state, state.lost)
            if state.reset_timestamp is None or partition in asked:
                continue
            if state.retry_at > now:
                wake_at = min(wake_at, state.retry_at)
                continue
            leader = self._metadata.leader(partition)
            if leader is None:
                # No backoff here: metadata, which we wait for, has one.
                self._no_leader(now, state)
                wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
                continue
            self._is_known(partition)
            # The end first: records that arrive before the time is looked up are later than that, and would be skipped.
            wants_end = state.reset_timestamp >= 0 and state.end_before is None
            by_leader.setdefault(leader, {})[partition] = (
                state.shared_partition.fetch_epoch,
                _LATEST if wants_end else state.reset_timestamp,
                self._metadata.topic_id(partition.topic),
            )
        for leader, group in by_leader.items():
            request = self._asking.request(now, leader, {p: at for p, (_, at, _) in group.items()})
            self._resetting[request] = group
            requests.append(request)
        return wake_at

    def _no_leader(self, now: int, state: PartitionState) -> None:
        """It is unknown, or has no leader: ask for metadata, and report it if it does not exist."""
        partition = state.partition
        self._metadata.request_update(now)
        if self._subscription.by_group or self._metadata.error_of(partition) != ec.UNKNOWN_TOPIC_OR_PARTITION:
            return
        if self._unknown.is_long(now, partition) and partition not in self._told_unknown:
            self._told_unknown.add(partition)
            self._add_event(Failed(self._unknown.error(partition)))

    def _is_known(self, partition: TopicPartition) -> None:
        self._unknown.forget(partition)
        self._told_unknown.discard(partition)

    def _fetch_epoch(self, partition: TopicPartition) -> int:
        state = self._subscription.partitions.get(partition)
        return -1 if state is None else state.shared_partition.fetch_epoch

    def _below_range(self, state: PartitionState) -> None:
        """A reset leads to records before the range, which must not be returned (C11).

        So reading starts at the beginning of the range. If the log does not have that offset, there is nothing to read:
        that is raised, regardless of auto.offset.reset, until a seek or another range.
        """
        if state.offset != state.floor:
            self._subscription.position(state.partition, state.floor, None)
            return
        state.reset_timestamp = None
        error = OffsetOutOfRangeError(
            f"the log of {state.partition} ends before offset {state.floor}, at which the range to read begins "
            f"({state.floor}, {state.shared_partition.end}): assign a range that it has, or seek()",
            partition=state.partition,
            position=state.floor,
        )
        self._add_event(
            Failed(error, partition=state.partition, fetch_epoch=state.shared_partition.fetch_epoch)
        )

    def _on_reset(
        self,
        now: int,
        completed: Completed,
        group: Mapping[TopicPartition, tuple[int, int, bytes]],
    ) -> None:
        found, failed = self._asking.read(completed, group)
        for partition, (fetch_epoch, timestamp, topic_id) in group.items():
            state = self._subscription.partitions.get(partition)
            if (
                state is None
                or state.shared_partition.fetch_epoch != fetch_epoch
                or state.status is not Status.AWAIT_RESET
                or not self._is_of_topic(partition, topic_id)
            ):
                continue
            at = found.get(partition)
            if at is not None and timestamp != state.reset_timestamp:
                state.end_before = at.offset
                continue
            if at is None and partition in found and state.end_before is not None:
                # No record is that late. Later records will be.
                at = OffsetAndTimestamp(state.end_before, -1)
            if at is not None and state.beyond is not None and state.floor < state.offset >= at.offset:
                # Not retention: the log ends before the position.
                state.reset_timestamp, state.beyond = state.beyond, None
                continue
            if at is not None and at.offset < state.floor:
                self._below_range(state)
                continue
            if at is not None:
                log.info(
                    "%s starts at offset %d (%s)",
                    partition,
                    at.offset,
                    _NAMES.get(state.reset_timestamp or 0, "by time"),
                )
                self._subscription.position(partition, at.offset, None)
                continue
            code = failed.get(partition, ec.NONE)
            if code == ec.TOPIC_AUTHORIZATION_FAILED:
                self._add_event(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
                state.retry_at = add_ms(now, self._config.retry_backoff_max_ms)
            else:
                self._metadata.request_update(now)
                state.retry_at = add_ms(now, self._config.retry_backoff_ms)
