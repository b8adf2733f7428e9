"""Checks that positions still belong to the log that they were read from (KIP-320, KIP-516). Network thread, sans-IO.

Each position carries the leader epoch of the last record before it. When a newer leader takes over, or a seek or a
committed offset brings an epoch of its own, the leader is asked where that epoch ended (AWAIT_VALIDATION); an end below
the position means that an unclean election has lost records that were read. Fetches carry the epoch, too, so brokers
also detect this by themselves. So nothing here may stop a partition permanently: if a leader cannot be asked, because
it is too old or its responses are not understood, it is fetched from nevertheless.

A topic that was deleted and recreated has another id: a position of the old one has no meaning in the new one.

The effect of a truncated log on a position (KIP-320). Network thread, sans-IO.

An unclean leader election loses records that a replica had not copied. A reader that is past that point learns it from
the end offset of its epoch, in the response to OffsetForLeaderEpoch or to a fetch. Returned records and records that
are only buffered are treated differently: records that the application never saw are not lost to it, they are read
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.errors import (
    AuthenticationError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
    for_code,
)
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.records import first_epoch, leader_epochs
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Truncation", "ValidationManager", "note_epochs"]

log = logger("kadence.consumer.offsets")


class Truncation:
    """Finds which positions a truncated log has made invalid, and resets them or reports them to the application."""

    def __init__(
        self, config: ConsumerConfig, subscription: Subscription, add_event: AddBackgroundEvent
    ) -> None:
        self._has_policy = config.auto_offset_reset != "none"
        self._subscription = subscription
        self._add_event = add_event

    def judge(self, state: PartitionState, epoch: int, end_offset: int) -> bool:
        """Whether the position is valid, given the largest epoch up to its own on the leader, and that epoch's end.

        If it is not, the position has been moved, or waits for a seek. Both −1: the leader has no such epoch.
        """
        if epoch < 0 or end_offset < 0:
            self._truncated(state, None, None)
            return False
        diverging = end_offset if end_offset < state.offset else None
        if state.epoch is not None and epoch < state.epoch:
            # The leader does not have our epoch: all records read in it, or in any after the leader's, are gone.
            ours = next((start for read, start in state.epoch_starts if read > epoch), None)
            diverging = min((each for each in (diverging, ours) if each is not None), default=None)
        if diverging is None or diverging >= state.offset:
            return True
        self._truncated(state, diverging, epoch)
        return False

    def _truncated(self, state: PartitionState, diverging: int | None, epoch: int | None) -> None:
        partition = state.partition
        given = state.shared_partition.current()
        position, given_epoch = (
            (state.offset, state.epoch) if given is None else (given.offset, given.leader_epoch)
        )
        if diverging is not None and position <= diverging:
            log.warning(
                "%s: the log was truncated to offset %d; records fetched beyond it are dropped, "
                "and reading continues from offset %d",
                partition,
                diverging,
                position,
            )
            # What the application was given is still in the log, so it counts.
            self._move(state, position, given_epoch, rereads=True)
            return
        log.warning("%s", _lost(state, position, diverging))
        if not (self._has_policy or state.is_from_start):
            # Keep its epoch: a consumer that starts from this offset, once committed, learns of the truncation again.
            self._move(state, position, given_epoch)
            self._raise(state, _error(state, position, diverging, epoch))
        elif diverging is not None:
            self._move(state, diverging, epoch)
        else:
            self._subscription.lose(partition, _error(state, position, diverging, epoch))

    def _move(self, state: PartitionState, offset: int, epoch: int | None, *, rereads: bool = False) -> None:
        """Start a new fetch epoch during reading.

        The application did not ask for it, so no more records count as processed.

        Epochs read before the offset stay known, and the position gets the epoch at *that* offset: if the leader has
        another one there, the logs diverged even earlier, which the next request reveals (as for followers, KIP-279).
        """
        topic_id, processed = state.topic_id, state.shared_partition.processed_position()
        kept = (
            None
            if processed is None or processed.offset >= offset
            else (processed.offset, processed.leader_epoch)
        )
        starts = [entry for entry in state.epoch_starts if entry[1] < offset]
        if offset < state.floor:
            # Nothing is left of the range to read. The epochs read belong to the old log.
            offset, epoch, starts = state.floor, None, []
        self._subscription.position(
            state.partition,
            offset,
            starts[-1][0] if starts else epoch,
            kept,
            goes_on=True,
            rereads=rereads,
        )
        state.topic_id, state.epoch_starts = topic_id, starts

    def _raise(self, state: PartitionState, error: LogTruncationError) -> None:
        """Wait for a seek; earlier fetched data is not returned."""
        state.status = Status.AWAIT_RESET
        self._add_event(
            Failed(error, partition=state.partition, fetch_epoch=state.shared_partition.fetch_epoch)
        )


def note_epochs(state: PartitionState, data: memoryview | bytes, newest: int | None) -> None:
    """Keep the epoch of the last record in ``data``, and the start of each epoch before it.

    Args:
        data: whole batches, at the position. newest: the leader's epoch, as far as known.
    """
    if first_epoch(data) == state.epoch == newest:
        return
    for epoch, start in leader_epochs(data):
        if state.epoch is None or epoch > state.epoch or not state.epoch_starts:
            state.epoch_starts.append((epoch, start))
        state.epoch = epoch


def _lost(state: PartitionState, position: int, diverging: int | None) -> str:
    origin = state.shared_partition.origin
    if origin is not None and origin.committed is not None and origin.offset == position:
        # Nothing was read yet, and the committed offset may belong to another topic of this name.
        ends = (
            "does not know its epoch"
            if diverging is None
            else f"diverges from the records read at offset {diverging}"
        )
        return (
            f"{state.partition}: the log {ends}, and {position} is committed: the topic was deleted and created again "
            "since, or an unclean leader election has truncated it"
        )
    if diverging is None:
        return (
            f"{state.partition} was truncated by an unclean leader election: its leader does not know epoch "
            f"{state.epoch}, in which records up to offset {position} were read"
        )
    return (
        f"{state.partition} was truncated by an unclean leader election: records {diverging} to {position - 1}, which "
        "were read, are no longer in the log"
    )


def _error(
    state: PartitionState, position: int, diverging: int | None, epoch: int | None
) -> LogTruncationError:
    return LogTruncationError(
        f"{_lost(state, position, diverging)}; auto.offset.reset is none: seek() to where you want to go on",
        partition=state.partition,
        position=position,
        diverging_offset=diverging,
        leader_epoch=epoch,
    )


log = logger("kadence.consumer.offsets")

_FIRST_FOR_CONSUMERS: Final = 3
"""Before this version the API needed the rights of a broker."""
_BEHIND_PATIENCE_MS: Final = 5_000
"""How long (ms) metadata may be older than the epoch of a position before that epoch is considered wrong."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The state that a response refers to; the response counts only while all of it is unchanged."""

    state: PartitionState
    fetch_epoch: int
    leader_epoch: int


class ValidationManager:
    """Checks positions against the leader epochs of the log, and the ids of topics.

    It is polled before the fetch manager, so that no fetch is sent for a position that must be checked first.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._add_event = add_event
        self._truncation = Truncation(config, subscription, add_event)
        self._seen: tuple[int, int] | None = None
        self._snapshot: object = None
        # In their order of arrival, so that the same history leads to the same requests.
        self._awaiting: dict[PartitionState, None] = {}
        self._asked: dict[Request, dict[TopicPartition, _Asked]] = {}
        self._latest: dict[PartitionState, _Asked] = {}
        self._behind_since: dict[PartitionState, int] = {}

    def poll(self, now: int) -> Poll:
        subscription = self._subscription
        seen = (self._metadata.version, subscription.moves)
        if seen != self._seen or subscription.snapshot is not self._snapshot:
            self._seen, self._snapshot = seen, subscription.snapshot
            for state in list(subscription.partitions.values()):
                self._look(state)
                # After the check for recreated topics, which have begun a new fetch epoch by now.
                state.shared_partition.is_gone = not self._metadata.has_topic(state.partition.topic)
        if not self._awaiting:
            return NOTHING
        requests: list[Request] = []
        wake_at = self._ask(now, requests)
        return Poll(requests, wake_at)

    # ------------------------------------------------------------ positions to check

    def _look(self, state: PartitionState) -> None:
        if state.status not in (Status.FETCHING, Status.AWAIT_VALIDATION):
            return
        if self._is_of_another_topic(state):
            return
        info = self._metadata.cluster.partition(state.partition)
        epoch = None if info is None else info.leader_epoch
        if epoch is None and info is not None and info.leader is not None:
            # Fetches carry no epoch from now on, so their records are not compared with the previous one.
            state.checked = None
        if epoch is None or state.status is Status.AWAIT_VALIDATION or epoch == state.checked:
            return
        # Do not wait for a fetch from the old leader, which may be gone. If a response comes, it is dropped.
        state.flight, state.preferred_replica = None, None
        state.mark()
        if state.epoch is None or (state.epoch == epoch and not state.doubted):
            # Without an epoch there is nothing to compare; and a leader never truncates records that it has appended
            # itself.
            state.checked = epoch
            return
        self._forget(state)
        state.status, state.retry_at = Status.AWAIT_VALIDATION, 0
        self._awaiting[state] = None

    def _is_of_another_topic(self, state: PartitionState) -> bool:
        topic_id = self._metadata.topic_id(state.partition.topic)
        if topic_id in (ZERO_UUID, state.topic_id) or topic_id in state.former_topic_ids:
            return False
        if state.topic_id == ZERO_UUID:
            self._subscription.identify(state, topic_id)
            return False
        partition = state.partition
        state.former_topic_ids |= {state.topic_id}
        log.warning(
            "topic %r was deleted and created again: offset %d of %s belongs to the deleted topic",
            partition.topic,
            state.offset,
            partition,
        )
        self._subscription.lose(
            partition,
            OffsetOutOfRangeError(
                f"topic {partition.topic!r} was deleted and created again, and offset {state.offset} of {partition} "
                "belongs to the deleted topic; auto.offset.reset is none: seek() to where you want to go on",
                partition=partition,
                position=state.offset,
            ),
        )
        return True

    # ------------------------------------------------------------ asking

    def _ask(self, now: int, requests: list[Request]) -> int:
        wake_at = FOREVER
        by_leader: dict[int, dict[TopicPartition, _Asked]] = {}
        for state in list(self._awaiting):
            partition = state.partition
            if state.status is not Status.AWAIT_VALIDATION or not self._is_assigned(state):
                self._forget(state)
                continue
            info = self._metadata.cluster.partition(partition)
            if info is None or info.leader is None:
                self._metadata.request_update(now)
                wake_at = min(wake_at, add_ms(now, self._config.retry_backoff_ms))
                continue
            newest, epoch = info.leader_epoch, state.epoch
            if newest is None or epoch is None or (epoch == newest and not state.doubted):
                self._confirm(state, newest)
                continue
            asked = _Asked(state, state.shared_partition.fetch_epoch, newest)
            if self._latest.get(state) == asked:
                continue
            if state.retry_at > now:
                wake_at = min(wake_at, state.retry_at)
                continue
            if epoch > newest and (until := self._wait_for_metadata(now, state)) > now:
                wake_at = min(wake_at, until)
                continue
            by_leader.setdefault(info.leader, {})[partition] = asked
        for leader, group in by_leader.items():
            requests.append(self._request(now, leader, group))
        return wake_at

    def _wait_for_metadata(self, now: int, state: PartitionState) -> int:
        """A position of a newer leader than the known one: ask for metadata, but not for ever."""
        since = self._behind_since.setdefault(state, now)
        if now - since >= _BEHIND_PATIENCE_MS:
            return now
        self._metadata.request_update(now)
        return min(since + _BEHIND_PATIENCE_MS, add_ms(now, self._config.retry_backoff_ms))

    def _request(self, now: int, leader: int, group: dict[TopicPartition, _Asked]) -> Request:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, asked in group.items():
            topic = topics.setdefault(
                partition.topic, OffsetForLeaderTopic(topic=partition.topic, partitions=[])
            )
            assert asked.state.epoch is not None, "a request is sent only in this case"
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=asked.leader_epoch,
                    leader_epoch=asked.state.epoch,
                )
            )
            self._latest[asked.state] = asked
        request = Request(
            OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values())),
            leader,
            add_ms(now, self._config.request_timeout_ms),
            min_version=_FIRST_FOR_CONSUMERS,
        )
        self._asked[request] = group
        return request

    # ------------------------------------------------------------ answers

    def on_response(self, now: int, completed: Completed) -> None:
        group = self._asked.pop(completed.request)
        told = _by_partition(completed)
        if isinstance(completed.error, AuthenticationError):
            self._add_event(Failed(completed.error))
        for partition, asked in group.items():
            state = asked.state
            if self._latest.get(state) != asked:
                continue
            if not self._stands(asked):
                # It does not count as under way either: the same request may have to be repeated (KIP-1102).
                del self._latest[state]
                continue
            if isinstance(completed.error, UnsupportedVersionError):
                # A broker before Kafka 2.3, or another server: it cannot be asked, so the position counts as valid.
                self._confirm(state, asked.leader_epoch)
                continue
            answer = told.get(partition)
            if answer is None:
                self._metadata.request_update(now)
                self._repeat(state, add_ms(now, self._config.retry_backoff_ms))
            elif answer.error_code:
                self._refused(now, asked, answer.error_code)
            else:
                self._judge(asked, answer)

    def _stands(self, asked: _Asked) -> bool:
        """Whether the response is still valid: the partition, its position and its leader are the same."""
        state = asked.state
        return (
            self._is_assigned(state)
            and state.status is Status.AWAIT_VALIDATION
            and state.shared_partition.fetch_epoch == asked.fetch_epoch
            and self._metadata.leader_epoch(state.partition) == asked.leader_epoch
        )

    def _refused(self, now: int, asked: _Asked, code: int) -> None:
        state = asked.state
        if code == ec.TOPIC_AUTHORIZATION_FAILED:
            self._add_event(Failed(for_code(code, f"not allowed to read topic {state.partition.topic!r}")))
            self._repeat(state, add_ms(now, self._config.retry_backoff_max_ms))
        elif code in ec.RETRIABLE:
            self._metadata.request_update(now)
            self._repeat(state, add_ms(now, self._config.retry_backoff_ms))
        else:
            log.warning(
                "%s: the leader did not report the end offset of epoch %s (%s); reading continues at offset %d",
                state.partition,
                state.epoch,
                ec.name(code),
                state.offset,
            )
            self._confirm(state, asked.leader_epoch)

    def _judge(self, asked: _Asked, answer: EpochEndOffset) -> None:
        state = asked.state
        if self._truncation.judge(state, answer.leader_epoch, answer.end_offset):
            self._confirm(state, asked.leader_epoch)
        else:
            self._forget(state)
            # Unless the position has the epoch named by the leader, the leader must be asked again.
            state.checked = asked.leader_epoch if state.epoch == answer.leader_epoch else None

    def _confirm(self, state: PartitionState, leader_epoch: int | None) -> None:
        """The position counts as valid: the leader confirms it, or cannot be asked."""
        self._forget(state)
        if state.doubted:
            # A broker reports with each fetch that the log has diverged, but the leader denies it: fetch without an
            # epoch.
            state.doubted, state.epoch = False, None
        state.status, state.checked = Status.FETCHING, leader_epoch

    def _repeat(self, state: PartitionState, at: int) -> None:
        state.retry_at = at
        self._latest.pop(state, None)

    def _forget(self, state: PartitionState) -> None:
        self._awaiting.pop(state, None)
        self._latest.pop(state, None)
        self._behind_since.pop(state, None)

    def _is_assigned(self, state: PartitionState) -> bool:
        return self._subscription.partitions.get(state.partition) is state


def _by_partition(completed: Completed) -> Mapping[TopicPartition, EpochEndOffset]:
    response = completed.response
    if not isinstance(response, OffsetForLeaderEpochResponse):
        return {}
    return {
        TopicPartition(topic.topic, each.partition): each
        for topic in response.topics
        for each in topic.partitions
    }
