"""The measurements of a consumer, for `Consumer.metrics`. Every part has one writer; any thread may read.

The application side pays for no record and next to nothing for a poll: it adds to `Tally` objects and cuts their
samples once per window (`PollMeasures.mark`). The network side records requests of all managers as they end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from kadence.clock import FOREVER
from kadence.connection.request import Completed
from kadence.consumer.events import CallbackNeeded, LosePartitions, Rebalance, RevokePartitions
from kadence.lag import lag
from kadence.layered import Layered
from kadence.metrics.sensors import WINDOW_MS, Meter, NetworkMeters, Tally

if TYPE_CHECKING:
    from kadence.consumer.shared_partition import SharedPartition

__all__ = [
    "Books",
    "ClientMeasures",
    "Fetches",
    "Group",
    "Measures",
    "PollMeasures",
    "Pulse",
    "Queue",
    "RequestMeasures",
    "TopicFetches",
    "TopicPollMeasures",
]

_FETCH, _COMMIT, _JOIN, _HEARTBEAT, _SYNC, _GROUP_HEARTBEAT = 1, 8, 11, 12, 14, 68

_MAX_CAUSES: Final = 32
"""How many causes of rebalances are counted separately; the rest are counted as one."""


class TopicPollMeasures:
    """Records of one topic returned by poll(), and its fetches: each is counted when its last byte is released."""

    __slots__ = ("bytes", "records")

    def __init__(self, now: int, polls: Tally) -> None:
        self.records = Tally(now, polls)
        self.bytes = Tally(now, polls)


class PollMeasures:
    """Measurements of polls and their records. Application thread.

    Attributes:
        polls: count of polls; high: the longest time (ms) between the beginnings of two.
        gap: how long (ms) after the one before it the latest poll began.
        idle: for each poll, the share of the time since the previous one that was spent inside poll.
        ends_at: when the current samples are complete.
        commit_sync_ms, committed_ms: time spent waiting in those calls.
        assigned, revoked, lost: ms that each callback of the listener took.
        unpackings: how many batches were decompressed. unpacked_bytes: their decompressed size.
        most_held, exceeded: of buffer.memory, when a batch was decompressed; see `Books`.
    """

    def __init__(self) -> None:
        self.polls = Tally(0)
        self.idle = Tally(0, self.polls)
        self.gap = 0
        self.ends_at = 0
        self.topics: Layered[str, TopicPollMeasures] = Layered()
        self.commit_sync_ms = 0
        self.committed_ms = 0
        self.assigned = Meter()
        self.revoked = Meter()
        self.lost = Meter()
        self.unpackings = self.unpacked_bytes = 0
        self.most_held = self.exceeded = 0

    @property
    def last_at(self) -> int:
        """When the latest poll began; -1 before the first."""
        return self.polls.last if self.polls.count else -1

    def topic(self, name: str) -> TopicPollMeasures:
        found = self.topics.get(name)
        if found is None:
            found = TopicPollMeasures(self.polls.last, self.polls)
            self.topics = self.topics.changed({name: found})
        return found

    def polled(self, now: int) -> None:
        """A poll begins."""
        if now >= self.ends_at:
            self._mark(now)
        polls = self.polls
        self.gap = gap = now - polls.last
        if gap > polls.high:  # noqa: PLR1730 - a call would double what a poll pays here
            polls.high = gap
        polls.count += 1
        polls.total += gap
        polls.last = now

    def waited(self, now: int) -> None:
        """A poll that could wait is over. One that cannot wait has no idle time."""
        inside = now - self.polls.last
        if inside:
            self.idle.total += inside / (inside + self.gap)

    def unpacked(self, count: int, size: int) -> None:
        """Count decompressed batches, and their decompressed bytes."""
        self.unpackings += count
        self.unpacked_bytes += size

    def called(self, step: CallbackNeeded, now: int, took_ms: int) -> None:
        """A callback of the rebalance listener returned."""
        if isinstance(step, RevokePartitions):
            self.revoked.record(now, took_ms)
        elif isinstance(step, LosePartitions):
            self.lost.record(now, took_ms)
        else:
            self.assigned.record(now, took_ms)

    def _mark(self, now: int) -> None:
        """A window is over: all that was added belongs to polls up to the last one."""
        self.idle.mark(now)
        for topic in self.topics.values():
            topic.records.mark(now)
            topic.bytes.mark(now)
        if not self.polls.count:
            # The first poll is not late.
            self.polls.last = now
        self.polls.mark(now)
        self.ends_at = now + WINDOW_MS


class TopicFetches:
    """One topic's share of each fetch response: bytes as received, records as announced by the batches."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.bytes = Meter()
        self.records = Meter()


class Fetches:
    """Measurements of fetch responses. Network thread.

    Attributes:
        lags, leads: the greatest lag and the least lead of any partition, of each response.
    """

    def __init__(self) -> None:
        self.bytes = Meter()
        self.records = Meter()
        self.throttle_ms = Meter()
        self.lags = Meter()
        self.leads = Meter()
        self.topics: Layered[str, TopicFetches] = Layered()
        # For the responses counted next; -1: nothing yet.
        self._lag = self._lead = -1

    def count(self, now: int, responses: Sequence[Mapping[str, tuple[int, int]]]) -> None:
        """Count responses together: bytes and records by topic of each response with data.

        The values passed to `heard` are of all of them.
        """
        if self._lag >= 0:
            self.lags.record(now, self._lag)
            self._lag = -1
        if self._lead >= 0:
            self.leads.record(now, self._lead)
            self._lead = -1
        if not responses:
            return
        by_topic: dict[str, list[tuple[int, int]]] = {}
        sums: list[tuple[int, int]] = []
        for parts in responses:
            all_bytes = all_records = 0
            for topic, part in parts.items():
                by_topic.setdefault(topic, []).append(part)
                all_bytes, all_records = all_bytes + part[0], all_records + part[1]
            sums.append((all_bytes, all_records))
        for topic, each in by_topic.items():
            found = self.topics.get(topic)
            if found is None:
                found = TopicFetches()
                self.topics = self.topics.changed({topic: found})
            _record(now, each, found.bytes, found.records)
        _record(now, sums, self.bytes, self.records)

    def heard(self, now: int, shared_partition: SharedPartition, end: int, start: int) -> None:
        """A response reported the end of a partition's log (as far as it may be read) and its start."""
        at = shared_partition.current()
        if at is None:
            return
        behind = lag(end, at.offset)
        shared_partition.lags.record(now, behind)
        self._lag = max(self._lag, behind)
        if start >= 0:
            lead = max(at.offset - start, 0)
            shared_partition.leads.record(now, lead)
            self._lead = lead if self._lead < 0 else min(self._lead, lead)


def _record(now: int, sizes: Iterable[tuple[int, int]], of_bytes: Meter, of_records: Meter) -> None:
    in_bytes, in_records = zip(*sizes, strict=True)
    of_bytes.record_each(now, in_bytes)
    of_records.record_each(now, in_records)


class Pulse(Protocol):
    """The heartbeats of the present membership, by the network thread (`HeartbeatRequestManager`).

    Attributes:
        sent_at: when (ms) the last one was sent; -1: none was. alive_until: when (ms) the group removes this member
            unless a heartbeat is answered before; `FOREVER` when none are sent.
    """

    sent_at: int
    alive_until: int


class _NoPulse:
    """There is no membership."""

    sent_at = -1
    alive_until = FOREVER


class Group:
    """Measurements of the membership. Network thread. Meters take ms from request to response.

    Attributes:
        pulse: the heartbeats of the present membership.
        rebalances: ms each took. failed: how many ended with the loss of the identity. last_at: when one ended.
        causes: the number of rebalances of each cause.
    """

    def __init__(self) -> None:
        self.heartbeats = Meter()
        self.pulse: Pulse = _NoPulse()
        self.joins = Meter()
        self.syncs = Meter()
        self.commits = Meter()
        self.rebalances = Meter()
        self.failed = Meter()
        self.last_at = -1
        self.causes: Mapping[str, int] = MappingProxyType({})

    def rebalanced(self, rebalance: Rebalance) -> None:
        now = self.last_at = rebalance.ended_monotonic_ms
        self.rebalances.record(now, now - rebalance.started_monotonic_ms)
        # The text after the colon is different each time.
        cause = rebalance.cause.partition(": ")[0] or "unknown"
        if cause not in self.causes and len(self.causes) >= _MAX_CAUSES:
            cause = "other"
        self.causes = MappingProxyType({**self.causes, cause: self.causes.get(cause, 0) + 1})


class RequestMeasures:
    """Measurements of the requests of all managers: ms from request to response, by kind. Network thread."""

    def __init__(self, fetch_ms: Meter, throttle_ms: Meter, group: Group) -> None:
        self._throttle_ms = throttle_ms
        self._group = group
        self._latencies = {
            _FETCH: fetch_ms,
            _COMMIT: group.commits,
            _JOIN: group.joins,
            _SYNC: group.syncs,
            _HEARTBEAT: group.heartbeats,
            _GROUP_HEARTBEAT: group.heartbeats,
        }

    def answered(self, completed: Completed) -> None:
        api_key = completed.request.message.API_KEY
        latency = self._latencies.get(api_key)
        if latency is not None:
            latency.record(completed.received_at, completed.received_at - completed.sent_at)
        if api_key == _FETCH:
            self._throttle_ms.record(completed.received_at, completed.response.throttle_time_ms)

    def committed(self, now: int, count: int, waited_ms: int) -> None:
        """So many commits were answered to the application's thread, after so many ms in all."""
        self._group.commits.record_alike(now, waited_ms, count)


class Queue:
    """One direction of the shared state (KIP-1068). One thread calls `put`, the other one `taken`."""

    def __init__(self) -> None:
        self.waits = Meter()
        self.works = Meter()
        self._put_at: deque[int] = deque()

    def put(self, now: int) -> None:
        self._put_at.append(now)

    def taken(self, now: int, done_at: int) -> None:
        """All queued items were taken at ``now`` and processed by ``done_at``."""
        for _ in range(len(self._put_at)):
            self.waits.record(now, max(0, now - self._put_at.popleft()))
        self.works.record(now, done_at - now)


class Books(Protocol):
    """Measurements of buffer.memory by the network thread. Network thread.

    Attributes:
        most_held: the most bytes that were held at once. exceeded: how often more than the cap, where `PollMeasures`
            did not count it.
        oversized: responses that were larger than their reservation.
    """

    most_held: int
    exceeded: int
    oversized: int


class _NoBooks:
    """Nothing has been fetched."""

    most_held = exceeded = oversized = 0


class ClientMeasures:
    """Measurements of any client: `Measures` adds a consumer's own. A share consumer has others.

    Attributes:
        application_events, background_events: the two directions of the shared state.
        network: connections and what they carry (network).
        turns: ms between the beginnings of two turns of the network thread. turned_at: when the current one began.
            expired: calls that did not finish in time.
    """

    def __init__(self) -> None:
        self.network = NetworkMeters()
        self.application_events = Queue()
        self.background_events = Queue()
        self.turns = Meter()
        self.expired = 0
        self.turned_at = -1

    def turned(self, now: int) -> None:
        """The network thread begins a turn."""
        if self.turned_at >= 0:
            self.turns.record(now, now - self.turned_at)
        self.turned_at = now


class Measures(ClientMeasures):
    """All of one consumer.

    Attributes:
        poll_measures: application thread. fetches, group, fetch_ms, requests: network thread.
        held_bytes: returns the bytes of fetched data, on any thread. books: of buffer.memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.poll_measures = PollMeasures()
        self.fetches = Fetches()
        self.fetch_ms = Meter()
        self.group = Group()
        self.requests = RequestMeasures(self.fetch_ms, self.fetches.throttle_ms, self.group)
        self.held_bytes: Callable[[], int] = lambda: 0
        self.books: Books = _NoBooks()
