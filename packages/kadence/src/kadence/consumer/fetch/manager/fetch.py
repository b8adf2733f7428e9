"""Which partitions to fetch, from which broker, and when not to (A3). Network thread, sans-IO.

One long-polling fetch per broker, in a fetch session (KIP-227). The next one leaves as soon as there is room
for its answer: a partition is left out while more than one fetch of it is buffered, a broker while its partitions hold
more than that on average, everything while `buffer.memory` would be exceeded (KIP-81; `memory`). Memory is reserved
before a fetch is sent, and the request names its size, so the cap always holds; only a single batch that is larger than
the whole cap is let in alone.

A broker serves one request at a time on a connection, so a partition that becomes fetchable during a parked fetch
(resumed, moved, just drained) is asked for on a second connection, outside the session. Such a side fetch does not wait
at first, and waits longer each time it returns nothing: it must not hold up the next partition either.

`places` knows which partitions are to be fetched, and looks only at what changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.connection.request import Arrival, Completed, ConnectionPurpose, Repeat, Request
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.fetch.manager.answers import READ_COMMITTED, FetchAnswers
from kadence.consumer.fetch.manager.fetchable import FetchablePartitions, Reasons
from kadence.consumer.fetch.manager.memory import Arenas, FetchChoice, Memory, Prefetch, Sizes
from kadence.consumer.fetch.manager.session import (
    FINAL_EPOCH,
    MOST_FOLLOWED,
    Broker,
    Sent,
    SessionPlan,
    forgotten_topics,
    table_of,
    topics,
)
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.consumer.shared_state import SessionFollow, SharedState, Wanted
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import AuthenticationError
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.types import TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["FetchRequestManager"]

_LAST_VERSION_WITH_NAMES: Final = 12
_LEAST_REPEATED_MS: Final = 100
"""A fetch that the broker holds for less (ms) is not repeated by the poller: there would be many of them at a time."""
_MOST_PASSED_ON: Final = 65_536
"""Bytes that may go to the application before they are counted. More at once would bring no gain."""
_SIDE_MIN_MS: Final = 10
"""A side fetch is not worth a request when the parked fetch ends sooner than this (ms)."""


class FetchRequestManager:
    """Decides which partitions to fetch, from which broker and when, and makes the Fetch requests.

    Attributes:
        requests: how many fetches were sent.
        memory: the accounts of buffer.memory.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        shared_state: SharedState,
        arenas: Arenas,
        add_event: AddBackgroundEvent,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._shared_state = shared_state
        self.memory = Memory(config, arenas, shared_state)
        self._sizes = Sizes()
        self._reasons = Reasons(config, metadata)
        self._answers = FetchAnswers(
            config, subscription, metadata, shared_state, self.memory, self._sizes, self._reasons, add_event
        )
        self._prefetch = Prefetch(config)
        self._places = FetchablePartitions(
            config, subscription, metadata, shared_state, self._prefetch, self._reasons
        )
        self._add_event = add_event
        self._per_partition = config.max_partition_fetch_bytes
        self._isolation = READ_COMMITTED if config.isolation_level == "read_committed" else 0
        self._can_follow = shared_state.arrivals is not None
        self.requests = 0

    # ------------------------------------------------------------ sending

    def poll(self, now: int) -> Poll:
        if not (self._subscription.partitions or self._subscription.changed):
            return NOTHING
        self.memory.look()
        wake_at = self._places.look(now)
        requests: list[Request] = []
        # The broker that was served longest ago comes first: otherwise, with scarce memory, the same ones would always
        # be served.
        for broker in self._due(now):
            request = self._ask(now, broker)
            if request is not None:
                requests.append(request)
        waiting: list[Broker] = []
        for broker in self._places.brokers.values():
            wake_at = min(wake_at, broker.again_at)
            if broker.blocked is NotFetchedReason.MEMORY:
                waiting.append(broker)
        if not waiting:
            self._shared_state.wake_held, self._shared_state.pressing = -1, False
        elif self._wait_for_memory(waiting):
            wake_at = now
        self._reasons.tell(now)
        wake_at = min(wake_at, self._reasons.due)
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _due(self, now: int) -> list[Broker]:
        """Brokers to look at: something has changed since the last look."""
        found = [
            broker
            for broker in self._places.brokers.values()
            if broker.stirred
            or broker.again_at <= now
            or (broker.blocked is NotFetchedReason.MEMORY and self.memory.admit(broker.least, broker.least))
        ]
        if len(found) > 1:
            found.sort(key=lambda broker: broker.served_at)
        return found

    def _wait_for_memory(self, waiting: list[Broker]) -> bool:
        """Have the application wake us when there is room for a waiting fetch. True if there is room by now."""
        shared_state = self._shared_state
        shared_state.wake_held = max(self.memory.level(broker.least) for broker in waiting)
        if any(state.buffered_bytes > 0 for state in self._places.unready.states):
            shared_state.press()
        else:
            shared_state.pressing = False
        # Check again: memory released before the level was set has woken no thread.
        return any(self.memory.admit(broker.least, broker.least) for broker in waiting)

    def _ask(self, now: int, broker: Broker) -> Request | None:
        """The next request to one broker, if one is due."""
        broker.stirred, broker.again_at, broker.blocked = False, FOREVER, None
        if not broker.candidates:
            return None
        retry_at = self._answers.node_retry_at.get(broker.node_id, 0)
        if retry_at > now:
            self._hold(now, broker, NotFetchedReason.BACKOFF, retry_at)
            return None
        parked = broker.parked
        if parked is not None:
            if broker.side is not None or parked.ends_at - now < _SIDE_MIN_MS:
                self._hold(now, broker, NotFetchedReason.AWAITING_TURN)
                return None
            if not broker.urgent and (parked_at := broker.parked_at(parked)) > now:
                self._hold(now, broker, NotFetchedReason.AWAITING_TURN, parked_at)
                return None
        verdict = self._prefetch.weigh(broker)
        if verdict is FetchChoice.NONE:
            self._hold(now, broker, NotFetchedReason.BUFFERED)
            return None
        if parked is None:
            self._compose(broker, verdict)
            return self._session_fetch(now, broker)
        return self._side_fetch(now, broker, verdict)

    def _hold(self, now: int, broker: Broker, reason: NotFetchedReason, again_at: int = FOREVER) -> None:
        """Do not fetch now, for this reason, which also applies to partitions that no fetch asks for."""
        broker.blocked, broker.again_at = reason, again_at
        noted = broker.noted
        for state in broker.candidates:
            if noted.get(state) is reason or state.awaits_fetch:
                continue
            noted[state] = reason
            if reason is NotFetchedReason.BACKOFF:
                self._reasons.waits(now, state)
            else:
                self._reasons.note(now, state, reason)

    def _session_fetch(self, now: int, broker: Broker) -> Request | None:
        session = broker.session
        if not session.wanted:
            # Other fetches ask for all of them. The broker would close an empty session.
            self._hold(now, broker, NotFetchedReason.AWAITING_TURN)
            return None
        max_bytes = self._room(broker, session.wanted)
        if not max_bytes:
            self._hold(now, broker, NotFetchedReason.MEMORY)
            return None
        plan = session.plan()
        sent = Sent(
            broker.node_id,
            session.asked,
            session.names,
            session,
            now,
            now + self._config.fetch_max_wait_ms,
        )
        session.under_way = True
        broker.parked = sent
        broker.late.clear()
        broker.urgent, broker.side_wait_ms = False, 0
        for state in broker.changed:
            if state.place is broker.wanted and not state.awaits_fetch:
                broker.add_late(state, drained=True)
        self._note_sent(now, broker)
        request = self._request(now, broker, sent, plan, max_bytes, ConnectionPurpose.FETCH, session.has_ids)
        if plan.is_repeatable and self._config.fetch_max_wait_ms >= _LEAST_REPEATED_MS:
            request.repeat = repeat = Repeat(
                lambda: self._may_repeat(broker, sent),
                lambda *told: self._repeated(broker, request, *told),
            )
            repeat.follow = self._follow(broker, sent)
        return request

    def _follow(self, broker: Broker, sent: Sent) -> SessionFollow | None:
        """Permission for the poller to pass on responses while these are small; None: this thread handles them."""
        shared_state, partitions = self._shared_state, self._subscription.partitions
        if (
            not self._can_follow
            # An event loop that cannot watch descriptors is woken by Python.
            or shared_state.signal.on_set is not None
            or self._subscription.has_ranges
            or len(sent.asked) > MOST_FOLLOWED
            or broker.answer_bytes > _MOST_PASSED_ON
        ):
            return None
        table = table_of(sent.asked)
        if table is None or any(partition not in partitions for partition in sent.asked):
            return None
        broker.has_enough = False
        shared = {partition: partitions[partition].shared_partition for partition in sent.asked}
        return SessionFollow(
            table,
            dict(sent.asked),
            dict(sent.names),
            shared,
            shared_state.copies,
            lambda: self._room_to_pass_on(broker),
        )

    def _room_to_pass_on(self, broker: Broker) -> int:
        """How many bytes may be passed on to the application before this thread counts them."""
        return 0 if broker.has_enough or not self.memory.has(_MOST_PASSED_ON) else _MOST_PASSED_ON

    def _may_repeat(self, broker: Broker, sent: Sent) -> bool:
        """Whether the next fetch would be identical if this one returns nothing."""
        return (
            broker.parked is sent
            and broker.side is None
            and not (
                broker.changed or broker.late or self._subscription.changed or self._shared_state.changed
            )
        )

    def _repeated(
        self,
        broker: Broker,
        request: Request,
        now: int,
        count: int,
        sent_at: int,
        arrivals: Sequence[Arrival],
    ) -> bool:
        """The poller has repeated a fetch this often, the last time at ``sent_at`` (`Repeat.told`)."""
        sent: Sent = request.tag
        if arrivals and not self._passed_on(now, broker, sent, arrivals):
            return False
        assert sent.session is not None
        sent.session.repeated(count)
        measures = self._shared_state.measures
        took_ms = (sent_at - sent.sent_at) // count
        measures.fetch_ms.record_alike(sent_at, took_ms * count, count)
        measures.fetches.throttle_ms.record_alike(sent_at, 0, count)
        self.requests += count
        broker.served_at = sent.sent_at = sent_at
        sent.ends_at = sent_at + self._config.fetch_max_wait_ms
        return True

    def _passed_on(self, now: int, broker: Broker, sent: Sent, arrivals: Sequence[Arrival]) -> bool:
        """These responses had records, and the next fetch followed each. False: one does not match its request."""
        session = sent.session
        assert session is not None
        # Each is read once, by the thread that comes first.
        self._shared_state.take_arrivals()
        brought, fits = self._answers.passed_on(now, sent, arrivals)
        for of in brought:
            if of.batches:
                state = of.state
                session.goes_on(state.partition, self._wanted(state))
                state.named_at = session.answers + of.answer
                if self._prefetch.has_enough(state):
                    broker.has_enough = True
        self._shared_state.alert()
        return fits

    def _side_fetch(self, now: int, broker: Broker, verdict: FetchChoice) -> Request | None:
        hungry = verdict is FetchChoice.HUNGRY
        states = [state for state in broker.late if not (hungry and state.buffered_bytes > 0)]
        if not states:
            self._hold(now, broker, NotFetchedReason.BUFFERED)
            return None
        asked = {state.partition: self._wanted(state) for state in states}
        max_bytes = self._room(broker, asked)
        if not max_bytes:
            self._hold(now, broker, NotFetchedReason.MEMORY)
            return None
        assert broker.parked is not None
        wait_ms = min(broker.side_wait_ms, broker.parked.ends_at - now)
        names = {wanted.topic_id: partition.topic for partition, wanted in asked.items()}
        sent = Sent(broker.node_id, asked, names, None, now, now + wait_ms)
        broker.side = sent
        broker.urgent = False
        for state in states:
            state.flight, state.in_flight, state.named_at = sent, state.shared_partition.fetch_epoch, 0
            broker.unsettled[state] = None
            del broker.late[state]
            self._reasons.sent(now, state)
        self._note_sent(now, broker)
        plan = SessionPlan(0, FINAL_EPOCH, asked, {})
        return self._request(
            now, broker, sent, plan, max_bytes, ConnectionPurpose.SIDE, ZERO_UUID not in names
        )

    def _compose(self, broker: Broker, verdict: FetchChoice) -> None:
        """Update the session to the partitions that are to be fetched from the broker now."""
        session, wanted = broker.session, broker.wanted
        hungry = verdict is FetchChoice.HUNGRY
        changed, broker.changed = broker.changed, {}
        if hungry:
            changed.update(
                (state, None)
                for state in broker.unsettled
                if state.place is wanted and state.buffered_bytes > 0
            )
        for state in changed:
            is_ours = state.flight is session
            is_elsewhere = not is_ours and state.awaits_fetch
            if state.place in (wanted, broker.full):
                broker.unsettled[state] = None
            if state.place is wanted and not is_elsewhere and not (hungry and state.buffered_bytes > 0):
                if session.want(state.partition, self._wanted(state)) or not is_ours:
                    state.named_at = session.answers
                state.flight, state.in_flight = session, state.shared_partition.fetch_epoch
                broker.noted.setdefault(state, NotFetchedReason.AWAITING_TURN)
                continue
            if state.place is wanted:
                # Another fetch asks for it, or it is not fetched now: look again at the next fetch.
                broker.changed[state] = None
            if is_ours:
                state.flight = None
            session.drop(state.partition)

    def _note_sent(self, now: int, broker: Broker) -> None:
        """Partitions that waited for the broker are being fetched."""
        for state in tuple(broker.noted):
            if state.awaits_fetch:
                del broker.noted[state]
                self._reasons.sent(now, state)
        if broker.late:
            # Left out of the fetch: they have enough buffered, and the others nothing.
            self._hold(now, broker, NotFetchedReason.BUFFERED)

    def _room(self, broker: Broker, asked: Mapping[TopicPartition, Wanted]) -> int:
        """How many bytes a fetch of these partitions may request; 0 when it has to wait."""
        per_partition = self._per_partition
        wanted = per_partition * len(asked)
        if self._subscription.has_ranges:
            wanted = sum(each.max_bytes for each in asked.values())
        if wanted > per_partition:
            share = max(self.memory.share(self._serving()), per_partition)
            wanted = min(wanted, share)
        wanted = min(wanted, self._config.fetch_max_bytes)
        broker.least = min(wanted, per_partition)
        return self.memory.admit(wanted, broker.least)

    def _serving(self) -> int:
        """Brokers that serve partitions of ours."""
        return sum(bool(b.wanted.states or b.full.states) for b in self._places.brokers.values())

    def _wanted(self, state: PartitionState) -> Wanted:
        partition = state.partition
        epoch = self._metadata.leader_epoch(partition)
        return Wanted(
            state.shared_partition.fetch_epoch,
            state.offset,
            -1 if epoch is None else epoch,
            self._metadata.topic_id(partition.topic),
            self._most_of(state),
            -1 if state.epoch is None else state.epoch,
        )

    def _most_of(self, state: PartitionState) -> int:
        """The most bytes of a partition: the rest of its range, or the configured limit.

        Never the room left: the session would have to name every partition again.
        """
        end, most = state.shared_partition.end, self._per_partition
        if end is None:
            return most
        return min(most, self._sizes.room_for(state.partition.topic, end - state.offset))

    def _request(
        self,
        now: int,
        broker: Broker,
        sent: Sent,
        plan: SessionPlan,
        max_bytes: int,
        purpose: ConnectionPurpose,
        with_ids: bool,
    ) -> Request:
        self.requests += 1
        broker.served_at = now
        message = FetchRequest(
            max_wait_ms=sent.ends_at - now,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._isolation,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=topics(plan.send),
            forgotten_topics_data=forgotten_topics(plan.forget),
            rack_id=self._config.client_rack,
        )
        deadline = sent.ends_at + self._config.request_timeout_ms
        cap = None if with_ids else _LAST_VERSION_WITH_NAMES
        request = Request(message, sent.node_id, deadline, purpose, tag=sent, max_version=cap)
        self.memory.reserve(request, max_bytes)
        return request

    # ------------------------------------------------------------ responses

    def on_response(self, now: int, completed: Completed) -> None:
        sent: Sent = completed.request.tag
        broker = self._places.broker(sent.node_id)
        self.memory.ended(completed.request, 0 if completed.loan is None else completed.loan.size)
        sent.under_way = False
        if sent.session is None:
            broker.side = None
        else:
            broker.parked = None
            sent.session.under_way = False
        try:
            size = 0
            if isinstance(completed.response, FetchResponse):
                size = self._answers.answered(now, sent, completed.response, completed.loan)
            else:
                self._answers.failed(now, sent, completed.error)
                if isinstance(completed.error, AuthenticationError):
                    self._add_event(Failed(completed.error))
            broker.answered(now, sent, size, self._config.fetch_min_bytes)
            broker.answer_bytes = size
        finally:
            if completed.loan is not None:
                completed.loan.release()
        self._is_over(broker, sent)

    def _is_over(self, broker: Broker, sent: Sent) -> None:
        """A fetch no longer prevents another one of its partitions."""
        broker.stirred = True
        partitions = self._subscription.partitions
        if sent.session is None:
            for partition in sent.asked:
                if (state := partitions.get(partition)) is not None:
                    state.mark()
        else:
            for state in broker.changed:
                state.mark()
