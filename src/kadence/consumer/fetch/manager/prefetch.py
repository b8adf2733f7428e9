"""When enough is buffered (A3): ``prefetch.heuristic``. Network thread, sans-IO.

KIP-41 has two heuristics for a consumer that returns a bounded number of records, and this has a third:

- ``total``: fetch while fewer than ``max.poll.records`` are buffered in all, so that the next poll can be full. One
  partition with a mountain of data then keeps all others from being fetched until it is nearly drained, and polls
  go back and forth between it and them.
- ``partition``: fetch a partition while fewer records of it are buffered than ``max.poll.records`` divided by the
  number of assigned partitions. No partition stands in another's way; with many partitions the limit is a record or
  two, and each is fetched for itself.
- ``bytes`` (default): fetch a partition while no more than one full fetch of it is buffered. It knows nothing of
  records, so it costs nothing per poll, and what it keeps ahead does not shrink with small records.

Whoever says that there is enough also sets the mark at which the application is to say that there no longer is
(`SharedState.made_room`). Where the three are measured: docs/benchmarks.md. The counts are those of batch headers:
records of aborted transactions are in them until they are stepped over.
"""

from __future__ import annotations

import enum
from typing import Protocol

from kadence.config import ConsumerConfig
from kadence.consumer.fetch.manager.session import Broker
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import PartitionState, Subscription

__all__ = ["FetchChoice", "Prefetch", "prefetch"]


class FetchChoice(enum.Enum):
    """Which of a broker's partitions to ask for now."""

    ALL = "all that are to be fetched"
    HUNGRY = "those of which nothing is buffered"
    NONE = "enough is buffered of all"


class Prefetch(Protocol):
    """One heuristic.

    Attributes:
        depends_on_count: whether the number of assigned partitions matters for `has_enough`.
    """

    depends_on_count: bool

    def assigned(self, count: int) -> None:
        """So many partitions are assigned now."""
        ...

    def has_enough(self, state: PartitionState) -> bool:
        """Whether a partition is to be left out. Whatever drains it below that wakes the network thread."""
        ...

    def weigh(self, broker: Broker) -> FetchChoice:
        """What to ask a broker for. Whatever changes the verdict wakes the network thread."""
        ...

    def released(self) -> bool:
        """Whether a verdict of `weigh` may be another one by now though nothing of the broker itself changed."""
        ...


def prefetch(config: ConsumerConfig, subscription: Subscription, shared_state: SharedState) -> Prefetch:
    """The heuristic that the configuration names."""
    if config.prefetch_heuristic == "total":
        return _Total(config, subscription, shared_state)
    if config.prefetch_heuristic == "partition":
        return _Partition(config)
    return _Bytes(config)


class _Bytes:
    depends_on_count = False

    def __init__(self, config: ConsumerConfig) -> None:
        self._per_partition = config.max_partition_fetch_bytes

    def assigned(self, count: int) -> None:
        pass

    def has_enough(self, state: PartitionState) -> bool:
        shared_partition, mark = state.shared_partition, state.fetched_bytes - self._per_partition
        if shared_partition.drained_bytes >= mark:
            return False
        shared_partition.wake_bytes = mark
        # Looked at again: what was drained before the mark was set has woken nobody.
        return shared_partition.drained_bytes < mark

    def weigh(self, broker: Broker) -> FetchChoice:
        """Partitions with data are fetched together: while they hold more than one fetch each on average, none is.

        Those that have nothing to give, as far as the broker was asked, do not count: they would make all others look
        hungry, and have them fetched one by one. They are asked for all the same.
        """
        total = holding = 0
        has_idle = False
        for place in (broker.wanted, broker.full):
            for state in place.states:
                held = state.fetched_bytes - state.shared_partition.drained_bytes
                if held > 0:
                    total += held
                    holding += 1
                elif (flight := state.flight) is not None and (
                    0 <= state.named_at < flight.answers
                    or (flight.under_way and state.in_flight == state.shared_partition.fetch_epoch)
                ):
                    # `is_idle` or `awaits_fetch`, without a call for each partition.
                    has_idle = True
                else:
                    return FetchChoice.ALL
        if total <= self._per_partition * holding:
            return FetchChoice.ALL
        for state in broker.candidates:
            held = state.buffered_bytes
            if held > 0:
                # Looked at again when half of it is drained, and again, until nothing is left.
                shared_partition, mark = state.shared_partition, state.fetched_bytes - held // 2
                shared_partition.wake_bytes = mark
                if shared_partition.drained_bytes >= mark:
                    # Drained before the mark was set, which has woken nobody.
                    return FetchChoice.ALL
        return FetchChoice.HUNGRY if has_idle else FetchChoice.NONE

    def released(self) -> bool:
        return False


class _Total:
    depends_on_count = False

    def __init__(self, config: ConsumerConfig, subscription: Subscription, shared_state: SharedState) -> None:
        self._max_poll_records = config.max_poll_records
        self._subscription = subscription
        self._shared_state = shared_state
        self._counted: list[SharedPartition] = []
        """Those that have what is enough."""

    def assigned(self, count: int) -> None:
        pass

    def has_enough(self, state: PartitionState) -> bool:
        return False

    def weigh(self, broker: Broker) -> FetchChoice:
        shared_state = self._shared_state
        # Read this first: what is drained while we count then wakes us too early at worst, and never too late.
        drained = shared_state.drained_records
        # What is not handed out now fills no poll, and would keep all others from being fetched for as long.
        states = [s for s in self._subscription.partitions.values() if not _is_kept_back(s.shared_partition)]
        buffered = sum(state.fetched_records - state.shared_partition.drained_records for state in states)
        if buffered < self._max_poll_records:
            return FetchChoice.ALL
        self._counted = [
            s.shared_partition for s in states if s.fetched_records > s.shared_partition.drained_records
        ]
        shared_state.wake_records = drained + buffered - self._max_poll_records + 1
        return FetchChoice.ALL if self.released() else FetchChoice.NONE

    def released(self) -> bool:
        shared_state = self._shared_state
        return shared_state.drained_records >= shared_state.wake_records or any(
            map(_is_kept_back, self._counted)
        )


def _is_kept_back(shared_partition: SharedPartition) -> bool:
    return shared_partition.paused or shared_partition.revoking or shared_partition.held


class _Partition:
    depends_on_count = True

    def __init__(self, config: ConsumerConfig) -> None:
        self._max_poll_records = config.max_poll_records
        self._limit = 1

    def assigned(self, count: int) -> None:
        self._limit = max(self._max_poll_records // max(count, 1), 1)

    def has_enough(self, state: PartitionState) -> bool:
        shared_partition, mark = state.shared_partition, state.fetched_records - self._limit + 1
        if shared_partition.drained_records >= mark:
            return False
        shared_partition.wake_records = mark
        return shared_partition.drained_records < mark

    def weigh(self, broker: Broker) -> FetchChoice:
        return FetchChoice.ALL

    def released(self) -> bool:
        return False
