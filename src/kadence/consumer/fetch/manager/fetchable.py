"""Where each assigned partition stands: with a broker to be asked, or waiting for something. Network thread, sans-IO.

A partition is looked at again only when something of it changed (`PartitionState.mark`), when the application says that
it drained, paused or resumed it (`SharedState.changed`), when its time has come, or when metadata changed. So a turn of
the network thread costs what changed, not what is assigned.
"""

from __future__ import annotations

import heapq

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.consumer.fetch.manager.prefetch import Prefetch
from kadence.consumer.fetch.manager.reasons import Reasons
from kadence.consumer.fetch.manager.session import Broker, PartitionBucket
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import PartitionState, Subscription

__all__ = ["FetchablePartitions"]


class FetchablePartitions:
    """Keeps which assigned partitions can be fetched from which broker, and which must wait.

    Attributes:
        brokers: all that have, or had, partitions of ours.
        unready: partitions that cannot be fetched as they stand (paused, no position, …).
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: Subscription,
        metadata: MetadataManager,
        shared_state: SharedState,
        prefetch: Prefetch,
        reasons: Reasons,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._shared_state = shared_state
        self._prefetch = prefetch
        self._reasons = reasons
        self._version = metadata.version
        self._snapshot: object = None
        self._leaderless = PartitionBucket()
        self._waiting = PartitionBucket()
        self._timers: list[tuple[int, int, PartitionState]] = []
        self._timed: dict[PartitionState, int] = {}
        self._timer_count = 0
        self.unready = PartitionBucket()
        self.brokers: dict[int, Broker] = {}

    def broker(self, node_id: int) -> Broker:
        found = self.brokers.get(node_id)
        if found is None:
            found = self.brokers[node_id] = Broker(node_id)
        return found

    def look(self, now: int) -> int:
        """Put everything that changed into its place. Returns when to look again."""
        subscription = self._subscription
        if self._version != self._metadata.version or self._snapshot is not subscription.snapshot:
            self._look_at_all()
        shared_partitions = self._shared_state.changed
        while shared_partitions:
            shared_partition = shared_partitions.popleft()
            state = subscription.partitions.get(shared_partition.partition)
            if state is not None and state.shared_partition is shared_partition:
                state.mark()
        while self._timers and self._timers[0][0] <= now:
            state = heapq.heappop(self._timers)[2]
            self._timed.pop(state, None)
            state.mark()
        if subscription.changed:
            changed = list(subscription.changed)
            subscription.changed.clear()
            for state in changed:
                self._sort(now, state)
        wake_at = self._timers[0][0] if self._timers else FOREVER
        if self._leaderless.states:
            # Metadata had its turn already, and of what a pattern matched it does not look for leaders by itself.
            self._metadata.request_update(now)
            wake_at = min(wake_at, now + self._config.retry_backoff_ms)
        return wake_at

    def _look_at_all(self) -> None:
        """The cluster or the assignment changed."""
        subscription, metadata = self._subscription, self._metadata
        if self._version != metadata.version or self._prefetch.depends_on_count:
            for state in subscription.partitions.values():
                state.mark()
        self._version, self._snapshot = metadata.version, subscription.snapshot
        self._prefetch.assigned(len(subscription.partitions))

    def _sort(self, now: int, state: PartitionState) -> None:
        before = state.place
        if before is not None:
            assert isinstance(before, PartitionBucket)
            before.states.pop(state, None)
            if (broker := before.broker) is not None:
                broker.late.pop(state, None)
                broker.noted.pop(state, None)
                broker.changed[state] = None
        if self._subscription.partitions.get(state.partition) is not state:
            state.place = None
            self._reasons.forget(state)
            return
        place = self._place_for(now, state)
        state.place = place
        place.states[state] = None
        if (broker := place.broker) is not None:
            broker.changed[state] = None
            broker.stirred = True
            if place is broker.wanted and broker.parked is not None and not state.awaits_fetch:
                broker.add_late(state, drained=before is broker.full)

    def _place_for(self, now: int, state: PartitionState) -> PartitionBucket:
        reasons = self._reasons
        if not state.fetchable:
            reasons.not_ready(now, state)
            return self.unready
        if (end := state.shared_partition.end) is not None and state.offset >= end:
            reasons.note(now, state, NotFetchedReason.RANGE_FETCHED)
            return self.unready
        node_id = self._node_for(now, state)
        if node_id is None:
            reasons.leaderless(now, state)
            return self._leaderless
        broker = self.broker(node_id)
        if state.awaits_fetch:
            return broker.wanted
        if state.retry_at > now:
            reasons.waits(now, state)
            self._look_at(state, state.retry_at)
            return self._waiting
        if self._prefetch.has_enough(state):
            reasons.note(now, state, NotFetchedReason.BUFFERED)
            return broker.full
        return broker.wanted

    def _node_for(self, now: int, state: PartitionState) -> int | None:
        """The preferred replica while it was told by the present leader, not long ago (KIP-392), else the leader."""
        leader = self._metadata.leader(state.partition)
        preferred = state.preferred_replica
        if preferred is not None:
            if (
                now < state.preferred_until
                and state.preferred_by == leader
                and self._metadata.has_node(preferred)
            ):
                self._look_at(state, state.preferred_until)
                return preferred
            state.preferred_replica = None
        return leader

    def _look_at(self, state: PartitionState, at: int) -> None:
        if self._timed.get(state, FOREVER) > at:
            self._timed[state] = at
            self._timer_count += 1
            heapq.heappush(self._timers, (at, self._timer_count, state))
