"""Where to start: committed offsets, resets, and offsets by time (ListOffsets). Network thread, sans-IO.

A partition that is INITIALIZING gets its committed offset; without one it is reset by policy, and only those
that were asked about are, never one that joined meanwhile. So is a position that was lost (`Subscription.lose`):
this is the one place that knows ``auto.offset.reset``. AWAIT_RESET is answered by ListOffsets of its leader. Each
answer is applied only if the partition still waits for it: a seek in between wins.

Calls by time are asked of each leader by itself: one that fails or hangs keeps no other from being asked, and what
it owes is asked again until the call's deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kadence.clock import FOREVER, add_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.border.messages import Answer, Failed, ListOffsets
from kadence.consumer.managers.base import NOTHING, Outbox, Poll
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.state.subscription import PartitionState, Status, Subscription
from kadence.errors import KafkaError, NoOffsetForPartitionError, UnknownTopicOrPartitionError, for_code
from kadence.protocol import error_codes as ec
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = ["Committed", "OffsetsManager"]

log = logging.getLogger("kadence.consumer.offsets")

_EARLIEST: Final = -2
_LATEST: Final = -1
_NAMES: Final = {_EARLIEST: "the beginning", _LATEST: "the end"}
_UNKNOWN_PATIENCE_MS: Final = 5_000
"""How long a partition given by assign() may be unknown before it is an error: a new topic takes a moment to spread."""


class Committed(Protocol):
    """The commit manager, as far as this one needs it."""

    def lookup(
        self,
        now: int,
        partitions: frozenset[TopicPartition],
        done: Callable[[int, dict[TopicPartition, OffsetAndMetadata | None] | Exception], None],
    ) -> None: ...


@dataclass(slots=True, eq=False)
class _Lookup:
    """A call for offsets by time: what is still to be asked, what was found."""

    id: int
    deadline: int
    todo: dict[TopicPartition, int]
    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    asked: set[TopicPartition] = field(default_factory=set)
    """Of ``todo``: what is on its way."""
    retry_at: dict[TopicPartition, int] = field(default_factory=dict)


class OffsetsManager:
    """See the head of this file.

    Args:
        wall: ms since 1970, which only ``auto.offset.reset=by_duration`` looks at.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        committed: Committed | None,
        outbox: Outbox,
        wall: Callable[[], int] = lambda: 0,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._committed = committed
        self._outbox = outbox
        self._wall = wall
        self._policy = config.auto_offset_reset
        self._isolation = 1 if config.isolation_level == "read_committed" else 0
        self._looking_up: set[PartitionState] = set()
        self._resetting: dict[Request, dict[TopicPartition, tuple[int, int]]] = {}
        self._lookups: list[_Lookup] = []
        self._of_request: dict[Request, tuple[_Lookup, dict[TopicPartition, int]]] = {}
        self._unknown_since: dict[TopicPartition, int] = {}
        self._told_unknown: set[TopicPartition] = set()

    def list_offsets(self, call: ListOffsets) -> None:
        """A call of the application, answered when every partition was."""
        self._lookups.append(_Lookup(call.id, call.deadline, dict(call.timestamps)))
        self._need_topics()

    def poll(self, now: int) -> Poll:
        requests: list[Request] = []
        wake_at = FOREVER
        if self._subscription.partitions:
            wake_at = self._initialise(now)
            wake_at = min(wake_at, self._reset(now, requests))
        if self._lookups:
            for lookup in [each for each in self._lookups if each.deadline <= now]:
                self._end(lookup)
            for lookup in list(self._lookups):
                wake_at = min(wake_at, self._ask(now, lookup, requests))
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def on_response(self, now: int, completed: Completed) -> None:
        request = completed.request
        resetting = self._resetting.pop(request, None)
        if resetting is not None:
            self._on_reset(now, completed, resetting)
            return
        lookup, asked = self._of_request.pop(request)
        self._on_lookup(now, completed, lookup, asked)

    # ------------------------------------------------------------ committed offsets

    def _initialise(self, now: int) -> int:
        """Have committed offsets looked up. Returns when to poll again: who sends the look-up had its turn already."""
        waiting = [
            state
            for state in self._subscription.partitions.values()
            if state.status is Status.INITIALIZING and state not in self._looking_up
        ]
        if not waiting:
            return FOREVER
        if self._committed is None:
            for state in waiting:
                self._reset_by_policy(state)
            return FOREVER
        self._looking_up.update(waiting)
        partitions = frozenset(state.partition for state in waiting)
        self._committed.lookup(
            now,
            partitions,
            lambda when, result: self._on_committed(when, waiting, result),
        )
        return now

    def _on_committed(
        self,
        now: int,
        waiting: Iterable[PartitionState],
        result: dict[TopicPartition, OffsetAndMetadata | None] | Exception,
    ) -> None:
        del now
        for state in waiting:
            self._looking_up.discard(state)
            current = self._subscription.partitions.get(state.partition)
            if current is not state or state.status is not Status.INITIALIZING:
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
                self._subscription.position(state.partition, committed.offset, committed.leader_epoch)
        if isinstance(result, Exception):
            self._outbox(Failed(result))

    def _reset_by_policy(self, state: PartitionState) -> None:
        self._subscription.lose(
            state.partition,
            NoOffsetForPartitionError(
                f"{state.partition} has no committed offset for group {self._config.group_id!r} and "
                "auto.offset.reset is none: seek() to where you want to start"
            ),
        )

    def _apply_policy(self, state: PartitionState, error: KafkaError) -> None:
        """The position is lost: look up where the policy says to go on, or raise and wait for a seek."""
        if self._policy == "none":
            state.lost = None
            self._outbox(Failed(error, partition=state.partition, lease=state.cell.lease))
            return
        if not isinstance(error, NoOffsetForPartitionError):
            log.info(
                "%s: the position is lost, auto.offset.reset=%s is applied", state.partition, self._policy
            )
        duration_ms = self._config.reset_duration_ms
        if duration_ms is not None:
            timestamp = max(self._wall() - duration_ms, 0)
        else:
            timestamp = _EARLIEST if self._policy == "earliest" else _LATEST
        self._subscription.await_reset(state.partition, timestamp)

    # ------------------------------------------------------------ resets

    def _reset(self, now: int, requests: list[Request]) -> int:
        wake_at = FOREVER
        by_group = self._subscription.by_group
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        asked = {
            p
            for group in self._resetting.values()
            for p, (lease, _) in group.items()
            if self._lease(p) == lease
        }
        for partition, state in self._subscription.partitions.items():
            if state.status is Status.FETCHING and not by_group:
                if self._metadata.leader(partition) is None:
                    self._no_leader(now, state)
                elif partition in self._unknown_since:
                    self._is_known(partition)
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
                # No backoff of our own: the answer of the metadata, which has one, is what is waited for.
                self._no_leader(now, state)
                wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
                continue
            self._is_known(partition)
            by_leader.setdefault(leader, {})[partition] = (
                state.cell.lease,
                state.reset_timestamp,
            )
        for leader, group in by_leader.items():
            request = self._request(now, leader, {p: timestamp for p, (_, timestamp) in group.items()})
            self._resetting[request] = group
            requests.append(request)
        return wake_at

    def _no_leader(self, now: int, state: PartitionState) -> None:
        """Nothing is known, or nobody leads it: ask for metadata; tell when it turns out not to exist."""
        partition = state.partition
        self._metadata.request_update(now)
        if self._subscription.by_group or self._metadata.error_of(partition) != ec.UNKNOWN_TOPIC_OR_PARTITION:
            return
        since = self._unknown_since.setdefault(partition, now)
        if now - since >= _UNKNOWN_PATIENCE_MS and partition not in self._told_unknown:
            self._told_unknown.add(partition)
            self._outbox(Failed(_unknown(partition, self._config)))

    def _is_known(self, partition: TopicPartition) -> None:
        """Should it be unknown again some day, that counts from then."""
        self._unknown_since.pop(partition, None)
        self._told_unknown.discard(partition)

    def _lease(self, partition: TopicPartition) -> int:
        state = self._subscription.partitions.get(partition)
        return -1 if state is None else state.cell.lease

    def _on_reset(
        self,
        now: int,
        completed: Completed,
        group: Mapping[TopicPartition, tuple[int, int]],
    ) -> None:
        found, failed = self._read(completed, group)
        for partition, (lease, _) in group.items():
            state = self._subscription.partitions.get(partition)
            if state is None or state.cell.lease != lease or state.status is not Status.AWAIT_RESET:
                continue
            at = found.get(partition)
            if at is not None:
                log.info(
                    "%s starts at offset %d (%s)",
                    partition,
                    at.offset,
                    _NAMES.get(state.reset_timestamp or 0, self._policy),
                )
                self._subscription.position(partition, at.offset, None)
                continue
            if partition in found and state.reset_timestamp not in (_EARLIEST, _LATEST):
                # No record is that young: all that come from now on are.
                state.reset_timestamp = _LATEST
                continue
            code = failed.get(partition, ec.NONE)
            if code == ec.TOPIC_AUTHORIZATION_FAILED:
                self._outbox(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
                state.retry_at = add_ms(now, self._config.retry_backoff_max_ms)
            else:
                self._metadata.request_update(now)
                state.retry_at = add_ms(now, self._config.retry_backoff_ms)

    # ------------------------------------------------------------ calls

    def _ask(self, now: int, lookup: _Lookup, requests: list[Request]) -> int:
        wake_at = lookup.deadline
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
            if self._unknown_for_good(now, partition):
                self._end(lookup, Answer(lookup.id, None, _unknown(partition, self._config)))
                return FOREVER
            self._metadata.request_update(now)
            wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
        for leader, group in by_leader.items():
            request = self._request(now, leader, group)
            self._of_request[request] = (lookup, group)
            lookup.asked |= group.keys()
            requests.append(request)
        return wake_at

    def _end(self, lookup: _Lookup, answer: Answer | None = None) -> None:
        """Nobody waits for it any more; None: its deadline has answered it."""
        self._lookups.remove(lookup)
        for partition in lookup.todo:
            if partition not in self._subscription.partitions:
                # Nobody asks for its metadata any more: the next call is to wait for news of it.
                self._unknown_since.pop(partition, None)
        self._need_topics()
        if answer is not None:
            self._outbox(answer)

    def _need_topics(self) -> None:
        self._metadata.need("offsets", frozenset(p.topic for each in self._lookups for p in each.todo))

    def _unknown_for_good(self, now: int, partition: TopicPartition) -> bool:
        if self._metadata.error_of(partition) != ec.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        since = self._unknown_since.setdefault(partition, now)
        return now - since >= _UNKNOWN_PATIENCE_MS

    def _on_lookup(
        self,
        now: int,
        completed: Completed,
        lookup: _Lookup,
        asked: Mapping[TopicPartition, int],
    ) -> None:
        found, failed = self._read(completed, asked)
        lookup.asked -= asked.keys()
        if lookup not in self._lookups:
            return
        for partition in asked:
            if partition in found:
                lookup.found[partition] = found[partition]
                del lookup.todo[partition]
                self._unknown_since.pop(partition, None)
                continue
            code = failed.get(partition, ec.NONE)
            if code and code not in ec.RETRIABLE:
                error = for_code(code, f"{partition}: {ec.MESSAGES.get(code, '')}")
                self._end(lookup, Answer(lookup.id, None, error))
                return
            lookup.retry_at[partition] = add_ms(now, self._config.retry_backoff_ms)
            self._metadata.request_update(now)
        if not lookup.todo:
            self._end(lookup, Answer(lookup.id, lookup.found))

    # ------------------------------------------------------------ the request

    def _request(self, now: int, leader: int, timestamps: Mapping[TopicPartition, int]) -> Request:
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

    def _read(
        self, completed: Completed, asked: Mapping[TopicPartition, object]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, int]]:
        """Answers and error codes of the partitions asked; a lost request answers none of them."""
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


def _unknown(partition: TopicPartition, config: ConsumerConfig) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"{partition} does not exist on the cluster at {','.join(config.bootstrap_servers)}; "
        f"create it (kadence topics create {partition.topic}) or correct its name"
    )
