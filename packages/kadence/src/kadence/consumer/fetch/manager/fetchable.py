"""The place of each assigned partition: with a broker to fetch from, or waiting. Network thread, sans-IO.

A partition is looked at again only when it has changed (`PartitionState.mark`), when the application has drained,
paused or resumed it (`SharedState.changed`), when its time has come, or when metadata has changed. So the cost of a
turn of the network thread depends on the changes, not on the number of assigned partitions.

`Reasons` keeps each partition's `NotFetchedReason`, and logs a warning when an unexpected one lasts. After a failed
fetch the reason stays until a fetch is answered, not until the next one is sent. So while a broker is down, the reason
and its age remain the same during each retry.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping
from typing import Final

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.consumer.fetch.manager.memory import Prefetch
from kadence.consumer.fetch.manager.session import Broker, PartitionBucket
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.shared_partition import NotFetchedReason, Unfetched, Unstable
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import PartitionState, Status, Subscription
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.types import TopicPartition

__all__ = ["TELL_AFTER_MS", "FetchablePartitions", "Reasons", "missing_topics", "trouble_of"]

log = logger("kadence.consumer.fetch")

TELL_AFTER_MS: Final = 30_000
"""How long (ms) a partition is not fetched for an unexpected reason before that is logged."""

_OPEN_MS: Final = 60_000
"""How long (ms) a transaction is open before that is logged: by default transaction.timeout.ms has ended it by then."""

_NAMED: Final = 3
"""How many partitions a log line names."""

_UNKNOWN: Final = frozenset({ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID, ec.INCONSISTENT_TOPIC_ID})
_STATUS: Final = {
    Status.INITIALIZING: NotFetchedReason.AWAITING_COMMITTED_OFFSET,
    Status.AWAIT_RESET: NotFetchedReason.AWAITING_RESET,
    Status.AWAIT_VALIDATION: NotFetchedReason.AWAITING_VALIDATION,
}


def trouble_of(code: int) -> tuple[NotFetchedReason, str]:
    """The reason behind a broker's error code, and the code's name."""
    if code in _UNKNOWN:
        return NotFetchedReason.UNKNOWN_TOPIC, ec.name(code)
    if code == ec.TOPIC_AUTHORIZATION_FAILED:
        return NotFetchedReason.TOPIC_AUTHORIZATION_FAILED, ec.name(code)
    if code == ec.LEADER_NOT_AVAILABLE:
        return NotFetchedReason.NO_LEADER, ec.name(code)
    return NotFetchedReason.BACKOFF, ec.name(code)


def missing_topics(missing: Mapping[str, tuple[int, int]]) -> dict[str, Unfetched]:
    """The result of `MetadataManager.missing`, in the application's terms."""
    found = {}
    for name, (since, code) in missing.items():
        reason, detail = trouble_of(code)
        found[name] = Unfetched(reason, since, f"topic {name!r}: {detail}")
    return found


class Reasons:
    """Keeps the reason why each partition is not fetched, and logs a reason that lasts.

    Attributes:
        due: when (ms) the next log line is due.
    """

    def __init__(self, config: ConsumerConfig, metadata: MetadataManager) -> None:
        self._has_policy = config.auto_offset_reset != "none"
        self._metadata = metadata
        self._bad: dict[PartitionState, int] = {}
        """Partitions that are not fetched for an unexpected reason, each with the time to log it."""
        self._back: list[tuple[int, TopicPartition]] = []
        self._unstable: dict[PartitionState, int] = {}
        """Partitions with an open transaction, each with the time to log it."""
        self.due = FOREVER

    def tell(self, now: int) -> None:
        """Log what is due: one line for all partitions with the same reason, such as an unreachable broker."""
        if self.due <= now:
            self._tell_lasting(now)
            self._tell_unstable(now)
            self.due = min((*self._bad.values(), *self._unstable.values()), default=FOREVER)
        if self._back:
            log.info(
                "%s fetched again, after %d s", _named(self._back, "is", "are"), max(self._back)[0] // 1000
            )
            self._back.clear()

    def _tell_lasting(self, now: int) -> None:
        lasting: dict[tuple[NotFetchedReason, str], list[tuple[int, TopicPartition]]] = {}
        for state in [state for state, due in self._bad.items() if due <= now]:
            del self._bad[state]
            state.is_told = True
            if (unfetched := state.shared_partition.unfetched) is not None:
                found = lasting.setdefault((unfetched.reason, unfetched.detail), [])
                found.append((now - unfetched.since, state.partition))
        for (reason, detail), found in lasting.items():
            log.log(
                logging.INFO if reason.is_up_to_the_application else logging.WARNING,
                "%s not been fetched for %d s: %s%s",
                _named(found, "has", "have"),
                max(found)[0] // 1000,
                reason.value,
                f" ({detail})" if detail else "",
            )

    def _tell_unstable(self, now: int) -> None:
        for state in [state for state, due in self._unstable.items() if due <= now]:
            del self._unstable[state]
            if (unstable := state.shared_partition.unstable) is not None and state.offset >= unstable.offset:
                log.warning(
                    "%s: a transaction has been open for %d s; isolation.level=read_committed returns nothing from "
                    "offset %d on before it ends (high watermark %s). "
                    "`kadence groups why GROUP` names its producer",
                    state.partition,
                    (now - unstable.since) // 1000,
                    unstable.offset,
                    state.shared_partition.high_watermark,
                )

    def stable(self, now: int, state: PartitionState, offset: int, end: int) -> None:
        """A broker reported a partition's last stable offset and high watermark."""
        shared_partition = state.shared_partition
        if offset < 0 or offset >= end:
            # Below 0: the broker did not report it.
            shared_partition.unstable = None
            self._unstable.pop(state, None)
        elif shared_partition.unstable is None or shared_partition.unstable.offset != offset:
            shared_partition.unstable = Unstable(offset, now)
            self._unstable[state] = now + _OPEN_MS
            self.due = min(self.due, now + _OPEN_MS)

    def not_ready(self, now: int, state: PartitionState) -> None:
        """The reason not to fetch a partition that does not depend on its broker."""
        shared_partition = state.shared_partition
        if shared_partition.held or (state.status is Status.INITIALIZING and state.is_untold):
            self.note(now, state, NotFetchedReason.AWAITING_ASSIGNED_CALLBACK)
        elif shared_partition.revoking:
            self.note(now, state, NotFetchedReason.REVOKING)
        elif shared_partition.is_paused:
            self.note(now, state, NotFetchedReason.PAUSED)
        elif (
            state.status is Status.AWAIT_RESET
            and state.reset_timestamp is None
            and not (self._has_policy or state.is_from_start)
        ):
            self.note(now, state, NotFetchedReason.NO_POSITION)
        elif state.status is not Status.INITIALIZING and (code := self._metadata.error_of(state.partition)):
            self.note(now, state, *trouble_of(code))  # no broker can be asked for an offset
        else:
            self.note(now, state, _STATUS[state.status])

    def leaderless(self, now: int, state: PartitionState) -> None:
        """Metadata names no leader."""
        code = self._metadata.error_of(state.partition)
        if code == ec.NONE:
            self.note(now, state, NotFetchedReason.NO_LEADER)
        else:
            self.note(now, state, *trouble_of(code))

    def sent(self, now: int, state: PartitionState) -> None:
        """A fetch of it is on its way."""
        if state.trouble is not None:
            self.note(now, state, *state.trouble)
        elif (unfetched := state.shared_partition.unfetched) is not None:
            if state.is_told:
                state.is_told = False
                self._back.append((now - unfetched.since, state.partition))
            state.shared_partition.unfetched = None
            self._bad.pop(state, None)

    def forget(self, state: PartitionState) -> None:
        """It is no longer assigned."""
        self._bad.pop(state, None)
        self._unstable.pop(state, None)

    def waits(self, now: int, state: PartitionState) -> None:
        """It is not fetched again before its backoff, or its broker's, is over."""
        self.note(now, state, *(state.trouble or (NotFetchedReason.BACKOFF,)))

    def note(self, now: int, state: PartitionState, reason: NotFetchedReason, detail: str = "") -> None:
        """It is not fetched, for this reason."""
        unfetched = state.shared_partition.unfetched
        if unfetched is None or unfetched.reason is not reason or unfetched.since < 0:
            state.shared_partition.unfetched = Unfetched(reason, now, detail)
            state.is_told = False
            if reason.is_expected:
                self._bad.pop(state, None)
            else:
                self._bad[state] = now + TELL_AFTER_MS
                self.due = min(self.due, now + TELL_AFTER_MS)
        elif unfetched.detail != detail:
            state.shared_partition.unfetched = unfetched._replace(detail=detail)


def _named(found: list[tuple[int, TopicPartition]], one: str, many: str) -> str:
    """Either ``t-0 has`` or ``9 partitions (t-0, t-1, t-2, …) have``."""
    names = [str(partition) for _, partition in found[:_NAMED]]
    if len(found) == 1:
        return f"{names[0]} {one}"
    more = ", …" if len(found) > _NAMED else ""
    return f"{len(found)} partitions ({', '.join(names)}{more}) {many}"


class FetchablePartitions:
    """Keeps which assigned partitions can be fetched from which broker, and which must wait.

    Attributes:
        brokers: all that have, or had, partitions of ours.
        unready: partitions that cannot be fetched now (paused, no position, …).
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
        """Move every changed partition to its place. Returns when to look again."""
        subscription = self._subscription
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            for assigned in subscription.partitions.values():
                assigned.mark()
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
            # Metadata had its turn already, and does not look for leaders of a pattern's topics by itself.
            self._metadata.request_update(now)
            wake_at = min(wake_at, now + self._config.retry_backoff_ms)
        return wake_at

    def _sort(self, now: int, state: PartitionState) -> None:
        before = state.place
        if before is not None:
            assert isinstance(before, PartitionBucket)
            before.states.pop(state, None)
            if (broker := before.broker) is not None:
                broker.late.pop(state, None)
                broker.noted.pop(state, None)
                broker.unsettled.pop(state, None)
                broker.changed[state] = None
        if self._subscription.partitions.get(state.partition) is not state:
            state.place = None
            self._reasons.forget(state)
            return
        place = self._place_for(now, state)
        state.place = place
        place.states[state] = None
        if (broker := place.broker) is not None:
            broker.changed[state] = broker.unsettled[state] = None
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
        """The preferred replica if the current leader named it recently (KIP-392), else the leader."""
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
