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
(`Border.made_room`). Where the three are measured: docs/benchmarks.md. The counts are those of batch headers: records
of aborted transactions are in them until they are stepped over.
"""

from __future__ import annotations

import enum
from typing import Protocol

from kadence.config import ConsumerConfig
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.consumer.managers.fetching.brokers import Broker
from kadence.consumer.state.subscription import PartitionState, Subscription

__all__ = ["Prefetch", "Verdict", "prefetch"]


class Verdict(enum.Enum):
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

    def weigh(self, broker: Broker) -> Verdict:
        """What to ask a broker for. Whatever changes the verdict wakes the network thread."""
        ...

    def released(self) -> bool:
        """Whether a verdict of `weigh` may be another one by now though nothing of the broker itself changed."""
        ...


def prefetch(config: ConsumerConfig, subscription: Subscription, border: Border) -> Prefetch:
    """The heuristic that the configuration names."""
    if config.prefetch_heuristic == "total":
        return _Total(config, subscription, border)
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
        cell, mark = state.cell, state.fetched_bytes - self._per_partition
        if cell.drained_bytes >= mark:
            return False
        cell.wake_bytes = mark
        # Looked at again: what was drained before the mark was set has woken nobody.
        return cell.drained_bytes < mark

    def weigh(self, broker: Broker) -> Verdict:
        """Partitions with data are fetched together: while they hold more than one fetch each on average, none is.

        Those that have nothing to give, as far as the broker was asked, do not count: they would make all others look
        hungry, and have them fetched one by one. They are asked for all the same.
        """
        total = holding = 0
        has_idle = False
        for place in (broker.wanted, broker.full):
            for state in place.states:
                held = state.fetched_bytes - state.cell.drained_bytes
                if held > 0:
                    total += held
                    holding += 1
                elif (flight := state.flight) is not None and (
                    0 <= state.named_at < flight.answers
                    or (flight.under_way and state.in_flight == state.cell.lease)
                ):
                    # `is_idle` or `awaits_fetch`, without a call for each partition.
                    has_idle = True
                else:
                    return Verdict.ALL
        if total <= self._per_partition * holding:
            return Verdict.ALL
        for state in broker.candidates:
            held = state.buffered_bytes
            if held > 0:
                # Looked at again when half of it is drained, and again, until nothing is left.
                cell, mark = state.cell, state.fetched_bytes - held // 2
                cell.wake_bytes = mark
                if cell.drained_bytes >= mark:
                    # Drained before the mark was set, which has woken nobody.
                    return Verdict.ALL
        return Verdict.HUNGRY if has_idle else Verdict.NONE

    def released(self) -> bool:
        return False


class _Total:
    depends_on_count = False

    def __init__(self, config: ConsumerConfig, subscription: Subscription, border: Border) -> None:
        self._max_poll_records = config.max_poll_records
        self._subscription = subscription
        self._border = border
        self._counted: list[Cell] = []
        """Those that have what is enough."""

    def assigned(self, count: int) -> None:
        pass

    def has_enough(self, state: PartitionState) -> bool:
        return False

    def weigh(self, broker: Broker) -> Verdict:
        border = self._border
        # Read this first: what is drained while we count then wakes us too early at worst, and never too late.
        drained = border.drained_records
        # What is not handed out now fills no poll, and would keep all others from being fetched for as long.
        states = [s for s in self._subscription.partitions.values() if not _is_kept_back(s.cell)]
        buffered = sum(state.fetched_records - state.cell.drained_records for state in states)
        if buffered < self._max_poll_records:
            return Verdict.ALL
        self._counted = [s.cell for s in states if s.fetched_records > s.cell.drained_records]
        border.wake_records = drained + buffered - self._max_poll_records + 1
        return Verdict.ALL if self.released() else Verdict.NONE

    def released(self) -> bool:
        border = self._border
        return border.drained_records >= border.wake_records or any(map(_is_kept_back, self._counted))


def _is_kept_back(cell: Cell) -> bool:
    return cell.paused or cell.revoking or cell.held


class _Partition:
    depends_on_count = True

    def __init__(self, config: ConsumerConfig) -> None:
        self._max_poll_records = config.max_poll_records
        self._limit = 1

    def assigned(self, count: int) -> None:
        self._limit = max(self._max_poll_records // max(count, 1), 1)

    def has_enough(self, state: PartitionState) -> bool:
        cell, mark = state.cell, state.fetched_records - self._limit + 1
        if cell.drained_records >= mark:
            return False
        cell.wake_records = mark
        return cell.drained_records < mark

    def weigh(self, broker: Broker) -> Verdict:
        return Verdict.ALL

    def released(self) -> bool:
        return False
