"""What to fetch, from whom, and when not to (A3). Network thread, sans-IO.

One long-polling fetch per broker, in a fetch session (KIP-227). The next one leaves as soon as there is room
for its answer: a partition is left out while more than one fetch of it lies in the buffer, a broker while its
partitions hold more than that on average (`prefetch` has other measures), everything while `buffer.memory` would
be passed (KIP-81; `fetch_memory`). Room is
reserved before a fetch leaves and the broker is told the size, so the cap holds whatever comes back; only a
single batch that is larger than the whole cap is let in alone.

A broker serves one request at a time on a connection, so a partition that becomes fetchable behind a parked
fetch (resumed, moved, just drained) is asked for on a second connection, outside the session.
"""

from __future__ import annotations

from typing import Final

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.connection.request import Completed, Lane, Request
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.messages import Failed
from kadence.consumer.border.reasons import NotFetchedReason
from kadence.consumer.managers.base import NOTHING, Outbox, Poll
from kadence.consumer.managers.fetch_answers import READ_COMMITTED, FetchAnswers
from kadence.consumer.managers.fetch_memory import Arenas, Memory
from kadence.consumer.managers.fetch_reasons import Reasons
from kadence.consumer.managers.fetch_requests import Asked, Sent, forgotten_topics, topics
from kadence.consumer.managers.fetch_session import FINAL_EPOCH, FetchSession, SessionPlan, Wanted
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.managers.prefetch import prefetch
from kadence.consumer.state.subscription import PartitionState, Subscription
from kadence.errors import AuthenticationError
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.wire import ZERO_UUID

__all__ = ["FetchManager"]

_LAST_VERSION_WITH_NAMES: Final = 12
_SIDE_MIN_MS: Final = 10
"""A fetch behind a parked one is not worth a request when the parked one ends sooner than this."""
_OF_THE_BUFFER: Final = frozenset({NotFetchedReason.BUFFERED, NotFetchedReason.MEMORY})


class FetchManager:
    """See the head of this file.

    Attributes:
        requests, session_requests: fetches sent, and how many of them belonged to a session.
        memory: the books of buffer.memory.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        border: Border,
        arenas: Arenas,
        outbox: Outbox,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._border = border
        self.memory = Memory(config, arenas, border)
        self._answers = FetchAnswers(config, subscription, metadata, border, self.memory, outbox)
        self._prefetch = prefetch(config, border)
        self._reasons = Reasons(config, metadata)
        self._outbox = outbox
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[tuple[int, Lane], Sent] = {}
        self._served_at: dict[int, int] = {}
        self._per_partition = config.max_partition_fetch_bytes
        self._isolation = READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self.requests = 0
        self.session_requests = 0

    # ------------------------------------------------------------ what to send

    def poll(self, now: int) -> Poll:
        if not self._subscription.partitions:
            return NOTHING
        # Raised before the buffer is looked at: what the application drains after that look wakes us again.
        self._border.starved = True
        wake_at = FOREVER
        starved = is_pressed = holds_idle = False
        self.memory.look()
        reasons = self._reasons
        reasons.begin()
        self._prefetch.begin(self._subscription.partitions.values())
        ready: dict[int, list[PartitionState]] = {}
        buffered: dict[int, list[int]] = {}
        for state in self._subscription.partitions.values():
            if not state.fetchable:
                holds_idle = holds_idle or state.buffered_bytes > 0
                reasons.not_ready(now, state)
                continue
            node_id = self._node_for(state, now)
            if node_id is None:
                reasons.leaderless(now, state)
                # Metadata had its turn already, and of what a pattern matched it does not look for leaders by itself.
                wake_at = min(wake_at, now + self._config.retry_backoff_ms)
                continue
            buffered.setdefault(node_id, []).append(state.buffered_bytes)
            if state.awaits_fetch:
                reasons.sent(now, state)
                continue
            retry_at = max(state.retry_at, self._answers.node_retry_at.get(node_id, 0))
            if retry_at > now:
                wake_at = min(wake_at, retry_at)
                reasons.waits(now, state)
            elif self._prefetch.has_enough(state):
                starved = True
                reasons.note(now, state, NotFetchedReason.BUFFERED)
            else:
                ready.setdefault(node_id, []).append(state)
        requests: list[Request] = []
        share = self.memory.share(len(buffered))
        # Whose turn is longest ago first: where memory is scarce, the same brokers would always be served.
        for node_id in sorted(ready, key=lambda each: self._served_at.get(each, -1)):
            states = ready[node_id]
            request, reason = self._fetch_from(now, node_id, states, buffered[node_id], share)
            starved = starved or reason in _OF_THE_BUFFER
            is_pressed = is_pressed or reason is NotFetchedReason.MEMORY
            if request is not None:
                requests.append(request)
            for state in states:
                if state.awaits_fetch:
                    reasons.sent(now, state)
                else:
                    reasons.note(now, state, reason)
        if not starved:
            self._border.starved = False
        if is_pressed and holds_idle:
            self._border.press()
        reasons.end()
        wake_at = min(wake_at, reasons.due)
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _fetch_from(
        self, now: int, node_id: int, states: list[PartitionState], buffered: list[int], share: int
    ) -> tuple[Request | None, NotFetchedReason]:
        """The next request to one broker, if it is time for one; and what stands against it for those it leaves out."""
        parked = self._in_flight.get((node_id, Lane.FETCH))
        if parked is not None:
            if parked.ends_at - now < _SIDE_MIN_MS or (node_id, Lane.SIDE) in self._in_flight:
                return None, NotFetchedReason.AWAITING_TURN
        elif self._prefetch.broker_has_enough(buffered):
            return None, NotFetchedReason.BUFFERED
        wanted_bytes = min(
            self._config.fetch_max_bytes, self._per_partition * len(states), max(share, self._per_partition)
        )
        max_bytes = self.memory.admit(wanted_bytes, min(wanted_bytes, self._per_partition))
        if not max_bytes:
            return None, NotFetchedReason.MEMORY
        lane, wait_ms = Lane.FETCH, self._config.fetch_max_wait_ms
        if parked is not None:
            lane, wait_ms = Lane.SIDE, parked.ends_at - now
        return self._request(now, node_id, states, max_bytes, lane, wait_ms), NotFetchedReason.AWAITING_TURN

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
                # Not what there is room for: the session would have to name every partition again.
                self._per_partition,
                -1 if state.epoch is None else state.epoch,
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
            topics=topics(plan.send),
            forgotten_topics_data=forgotten_topics(plan.forget),
            rack_id=self._config.client_rack,
        )
        asked = {s.partition: Asked(s.cell.lease, s.offset, wanted[s.partition].leader_epoch) for s in states}
        sent = Sent(node_id, asked, names, self.memory.reserve(max_bytes), session, now + wait_ms)
        self._in_flight[node_id, lane] = sent
        self._served_at[node_id] = now
        deadline = now + wait_ms + self._config.request_timeout_ms
        cap = None if with_ids else _LAST_VERSION_WITH_NAMES
        return Request(message, node_id, deadline, lane, tag=sent, max_version=cap)

    def _node_for(self, state: PartitionState, now: int) -> int | None:
        """The preferred replica while it was told by the present leader, not long ago (KIP-392), else the leader."""
        leader = self._metadata.leader(state.partition)
        preferred = state.preferred_replica
        if preferred is not None:
            if (
                now < state.preferred_until
                and state.preferred_by == leader
                and self._metadata.has_node(preferred)
            ):
                return preferred
            state.preferred_replica = None
        if leader is None:
            self._metadata.request_update(now)
        return leader

    # ------------------------------------------------------------ what came back

    def on_response(self, now: int, completed: Completed) -> None:
        sent: Sent = completed.request.tag
        self._in_flight.pop((sent.node_id, completed.request.lane), None)
        self.memory.settle(sent.reserved, 0 if completed.lease is None else completed.lease.size)
        for partition, (lease, _, _) in sent.asked.items():
            state = self._subscription.partitions.get(partition)
            if state is not None and state.in_flight == lease:
                state.in_flight = 0
        try:
            if isinstance(completed.response, FetchResponse):
                self._answers.answered(now, sent, completed.response, completed.lease)
            else:
                self._answers.failed(now, sent, completed.error)
                if isinstance(completed.error, AuthenticationError):
                    self._outbox(Failed(completed.error))
        finally:
            if completed.lease is not None:
                completed.lease.release()
