"""What to fetch, from whom, and when not to (A3). Network thread, sans-IO.

One long-polling fetch per broker, in a fetch session (KIP-227). The next one leaves as soon as there is room
for its answer: a partition is left out while more than one fetch of it lies in the buffer, a broker while its
partitions hold more than that on average, everything while `buffer.memory` would be passed (KIP-81). Room is
reserved before a fetch leaves and the broker is told the size, so the cap holds whatever comes back; only a
single batch that is larger than the whole cap is let in alone.

A broker serves one request at a time on a connection, so a partition that becomes fetchable behind a parked
fetch (resumed, moved, just drained) is asked for on a second connection, outside the session.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Lane, Lease, Request
from kadence.consumer.border.buffer import Border, Fetched
from kadence.consumer.border.messages import Failed
from kadence.consumer.managers.base import NOTHING, Outbox, Poll
from kadence.consumer.managers.fetch_session import (
    FINAL_EPOCH,
    FetchSession,
    SessionPlan,
    Wanted,
)
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.state.subscription import PartitionState, Status, Subscription
from kadence.errors import (
    AuthenticationError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    for_code,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kadence.records import scan
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["FetchManager", "Room"]

log = logging.getLogger("kadence.consumer.fetch")

_RESET_TIMESTAMPS: Final = {"earliest": -2, "latest": -1, "none": None}
_LAST_VERSION_WITH_NAMES: Final = 12
_READ_COMMITTED: Final = 1
_SIDE_MIN_MS: Final = 10
"""A fetch behind a parked one is not worth a request when the parked one ends sooner than this."""

_MOVED = frozenset(
    {
        ec.NOT_LEADER_OR_FOLLOWER,
        ec.REPLICA_NOT_AVAILABLE,
        ec.KAFKA_STORAGE_ERROR,
        ec.FENCED_LEADER_EPOCH,
        ec.OFFSET_NOT_AVAILABLE,
        ec.LEADER_NOT_AVAILABLE,
        ec.UNKNOWN_LEADER_EPOCH,
    }
)
_UNKNOWN = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID, ec.INCONSISTENT_TOPIC_ID})
_SESSION_ERRORS = frozenset(
    {
        ec.FETCH_SESSION_ID_NOT_FOUND,
        ec.INVALID_FETCH_SESSION_EPOCH,
        ec.FETCH_SESSION_TOPIC_ID_ERROR,
        ec.INCONSISTENT_TOPIC_ID,
        ec.UNKNOWN_TOPIC_ID,
    }
)


class Room(Protocol):
    """How many bytes of responses are held now (arenas in use)."""

    def __call__(self) -> int: ...


@dataclass(slots=True, eq=False)
class _Sent:
    """What a fetch in flight asked for. ``asked``: lease and offset of each partition at that moment."""

    node_id: int
    asked: dict[TopicPartition, tuple[int, int]]
    names: dict[bytes, str]
    reserved: int
    session: FetchSession | None
    ends_at: int


class FetchManager:
    """See the head of this file.

    Attributes:
        requests, session_requests: fetches sent, and how many of them belonged to a session.
        stale_bytes: bytes that came for a position that had moved on.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        border: Border,
        room: Room,
        outbox: Outbox,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._border = border
        self._room = room
        self._outbox = outbox
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[tuple[int, Lane], _Sent] = {}
        self._reserved = 0
        self._node_retry_at: dict[int, int] = {}
        self._per_partition = config.max_partition_fetch_bytes
        self._reset_timestamp = _RESET_TIMESTAMPS[config.auto_offset_reset]
        self._isolation = _READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self.requests = 0
        self.session_requests = 0
        self.stale_bytes = 0

    # ------------------------------------------------------------ what to send

    def poll(self, now: int) -> Poll:
        if not self._subscription.partitions:
            return NOTHING
        # Raised before the buffer is looked at: what the application drains after that look wakes us again.
        self._border.starved = True
        wake_at = FOREVER
        starved = False
        ready: dict[int, list[PartitionState]] = {}
        buffered: dict[int, list[int]] = {}
        for state in self._subscription.partitions.values():
            if not state.fetchable:
                continue
            node_id = self._node_for(state, now)
            if node_id is None:
                continue
            held = state.buffered_bytes
            buffered.setdefault(node_id, []).append(held)
            if state.awaits_fetch:
                continue
            retry_at = max(state.retry_at, self._node_retry_at.get(node_id, 0))
            if retry_at > now:
                wake_at = min(wake_at, retry_at)
            elif held > self._per_partition:
                starved = True
            else:
                ready.setdefault(node_id, []).append(state)
        requests: list[Request] = []
        for node_id, states in ready.items():
            request, full = self._fetch_from(now, node_id, states, buffered[node_id])
            starved = starved or full
            if request is not None:
                requests.append(request)
        if not starved:
            self._border.starved = False
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _fetch_from(
        self, now: int, node_id: int, states: list[PartitionState], buffered: list[int]
    ) -> tuple[Request | None, bool]:
        """The next request to one broker, if it is time for one; and whether only the buffer stands against it."""
        parked = self._in_flight.get((node_id, Lane.FETCH))
        if parked is not None:
            states = [state for state in states if not state.buffered_bytes]
            left = parked.ends_at - now
            if not states or left < _SIDE_MIN_MS or (node_id, Lane.SIDE) in self._in_flight:
                return None, False
        elif all(buffered) and sum(buffered) > self._per_partition * len(buffered):
            return None, True
        wanted_bytes = min(self._config.fetch_max_bytes, self._per_partition * len(states))
        held = self._room() + self._border.decompressed_bytes + self._reserved
        room = self._config.buffer_memory - held
        if room < min(wanted_bytes, self._per_partition) and held:
            return None, True
        max_bytes = max(min(wanted_bytes, room), 1)
        if parked is not None:
            return self._request(now, node_id, states, max_bytes, Lane.SIDE, parked.ends_at - now), False
        return self._request(
            now, node_id, states, max_bytes, Lane.FETCH, self._config.fetch_max_wait_ms
        ), False

    def _request(
        self,
        now: int,
        node_id: int,
        states: list[PartitionState],
        max_bytes: int,
        lane: Lane,
        wait_ms: int,
    ) -> Request:
        wanted, names, with_ids = {}, {}, True
        for state in states:
            topic_id = self._metadata.topic_id(state.partition.topic)
            with_ids = with_ids and topic_id != ZERO_UUID
            names[topic_id] = state.partition.topic
            epoch = self._metadata.leader_epoch(state.partition)
            wanted[state.partition] = Wanted(
                topic_id,
                state.offset,
                -1 if epoch is None else epoch,
                min(self._per_partition, max_bytes),
            )
            state.in_flight = state.cell.lease
        session: FetchSession | None = None
        if lane is Lane.FETCH:
            session = self._sessions.setdefault(node_id, FetchSession())
            plan = session.plan(wanted)
            self.session_requests += 1
        else:
            plan = SessionPlan(0, FINAL_EPOCH, wanted, {})
        self.requests += 1
        message = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=_topics(plan.send),
            forgotten_topics_data=_forgotten(plan.forget),
            rack_id=self._config.client_rack,
        )
        asked = {s.partition: (s.cell.lease, s.offset) for s in states}
        sent = _Sent(node_id, asked, names, max_bytes, session, now + wait_ms)
        self._in_flight[node_id, lane] = sent
        self._reserved += max_bytes
        deadline = now + wait_ms + self._config.request_timeout_ms
        cap = None if with_ids else _LAST_VERSION_WITH_NAMES
        return Request(message, node_id, deadline, lane, tag=sent, max_version=cap)

    def _node_for(self, state: PartitionState, now: int) -> int | None:
        preferred = state.preferred_replica
        if preferred is not None:
            if now < state.preferred_until and self._metadata.has_node(preferred):
                return preferred
            state.preferred_replica = None
        leader = self._metadata.leader(state.partition)
        if leader is None:
            self._metadata.request_update(now)
        return leader

    # ------------------------------------------------------------ what came back

    def on_response(self, now: int, completed: Completed) -> None:
        sent: _Sent = completed.request.tag
        self._in_flight.pop((sent.node_id, completed.request.lane), None)
        self._reserved -= sent.reserved
        for partition, (lease, _) in sent.asked.items():
            state = self._subscription.partitions.get(partition)
            if state is not None and state.in_flight == lease:
                state.in_flight = 0
        try:
            if isinstance(completed.response, FetchResponse):
                self._answered(now, sent, completed.response, completed.lease)
            else:
                self._failed(now, sent)
                if isinstance(completed.error, AuthenticationError):
                    self._outbox(Failed(completed.error))
        finally:
            if completed.lease is not None:
                completed.lease.release()

    def _failed(self, now: int, sent: _Sent) -> None:
        """No answer. The client's own reconnect backoff comes on top of this one."""
        if sent.session is not None:
            sent.session.failed()
        self._node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms
        for partition in sent.asked:
            if (state := self._subscription.partitions.get(partition)) is not None:
                state.preferred_replica = None
        self._metadata.request_update(now)

    def _answered(self, now: int, sent: _Sent, response: FetchResponse, arena: Lease | None) -> None:
        code = response.error_code
        if code:
            if sent.session is not None:
                if code == ec.FETCH_SESSION_ID_NOT_FOUND:
                    sent.session.restart()
                else:
                    sent.session.failed()
            if code not in _SESSION_ERRORS:
                log.warning("fetch from broker %d failed: %s", sent.node_id, ec.name(code))
                self._node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms
            if code in _UNKNOWN or code == ec.FETCH_SESSION_TOPIC_ID_ERROR:
                self._metadata.request_update(now)
                self._node_retry_at[sent.node_id] = now + self._config.retry_backoff_ms
            return
        if sent.session is not None:
            sent.session.answered(response.session_id)
        for topic in response.responses:
            name = topic.topic or sent.names.get(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                self._partition(now, sent, TopicPartition(name, data.partition_index), data, arena)

    def _partition(
        self,
        now: int,
        sent: _Sent,
        partition: TopicPartition,
        data: PartitionData,
        arena: Lease | None,
    ) -> None:
        asked = sent.asked.get(partition)
        state = self._subscription.partitions.get(partition)
        if asked is None or state is None or state.cell.lease != asked[0]:
            self.stale_bytes += len(data.records or b"")
            return
        if data.error_code:
            self._partition_failed(now, sent, state, data.error_code)
            return
        cell = state.cell
        cell.high_watermark = data.high_watermark
        cell.last_stable_offset = data.last_stable_offset
        cell.log_start = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = now + self._config.metadata_max_age_ms
            return
        records = data.records
        if not records or arena is None:
            return
        next_offset, _, complete = scan(records, asked[1])
        if not complete:
            self._outbox(
                Failed(
                    CorruptRecordError(
                        f"{partition} at offset {asked[1]}: {len(records)} bytes came that hold no whole batch; "
                        "the log may be damaged: seek() past this offset to go on"
                    )
                )
            )
            state.retry_at = now + self._config.retry_backoff_max_ms
            return
        arena.retain()
        aborted = None
        if self._isolation == _READ_COMMITTED and data.aborted_transactions:
            aborted = tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions)
        state.offset = next_offset
        state.fetched_bytes += complete
        self._subscription.move_to_end(partition)
        self._border.put(Fetched(cell, asked[0], asked[1], memoryview(records)[:complete], arena, aborted))

    def _partition_failed(self, now: int, sent: _Sent, state: PartitionState, code: int) -> None:
        partition = state.partition
        state.retry_at = now + self._config.retry_backoff_ms
        if code in _MOVED or code in _UNKNOWN:
            state.preferred_replica = None
            self._metadata.request_update(now)
            if code in _UNKNOWN:
                log.warning(
                    "fetch of %s: %s; asking for metadata again",
                    partition,
                    ec.name(code),
                )
        elif code == ec.OFFSET_OUT_OF_RANGE:
            self._out_of_range(sent, state)
        elif code == ec.TOPIC_AUTHORIZATION_FAILED:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._outbox(Failed(for_code(code, f"not allowed to read topic {partition.topic!r}")))
        elif code == ec.CORRUPT_MESSAGE:
            state.retry_at = now + self._config.retry_backoff_max_ms
            self._outbox(
                Failed(
                    for_code(
                        code,
                        f"the broker found {partition} damaged at offset {state.offset}",
                    )
                )
            )
        else:
            log.warning("fetch of %s failed: %s; trying again", partition, ec.name(code))

    def _out_of_range(self, sent: _Sent, state: PartitionState) -> None:
        partition, offset = state.partition, state.offset
        if state.preferred_replica == sent.node_id:
            # A follower may lag behind the leader: ask the leader before believing it.
            state.preferred_replica = None
            return
        if self._reset_timestamp is not None:
            log.info(
                "%s: offset %d is out of range, going to the %s",
                partition,
                offset,
                self._config.auto_offset_reset,
            )
            self._subscription.await_reset(partition, self._reset_timestamp)
            return
        state.status, state.reset_timestamp = Status.AWAIT_RESET, None
        self._outbox(
            Failed(
                OffsetOutOfRangeError(
                    f"{partition} has no offset {offset} (deleted by retention, or never written) and "
                    "auto.offset.reset is none: seek() to where you want to go on"
                ),
                partition=partition,
                lease=state.cell.lease,
            )
        )


def _topics(wanted: dict[TopicPartition, Wanted]) -> list[FetchTopic]:
    """Partitions by topic, keeping the order of turns (trap T16)."""
    topics: dict[str, FetchTopic] = {}
    for partition, want in wanted.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = FetchTopic(
                topic=partition.topic, topic_id=want.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=want.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(forget: dict[TopicPartition, bytes]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, topic_id in forget.items():
        key = (partition.topic, topic_id)
        if key not in topics:
            topics[key] = ForgottenTopic(topic=partition.topic, topic_id=topic_id, partitions=[])
        topics[key].partitions.append(partition.partition)
    return list(topics.values())
