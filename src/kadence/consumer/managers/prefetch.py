"""When enough is buffered (A3): ``prefetch.heuristic``. Network thread, sans-IO.

KIP-41 has two heuristics for a consumer that returns a bounded number of records, and this has a third:

- ``total``: fetch while fewer than ``max.poll.records`` are buffered in all, so that the next poll can be full. One
  partition with a mountain of data then keeps all others from being fetched until it is nearly drained, and polls
  go back and forth between it and them.
- ``share``: fetch a partition while fewer than its share of ``max.poll.records`` are buffered of it. No partition
  stands in another's way; with many partitions a share is a record or two, and each is fetched for itself.
- ``bytes`` (default): fetch a partition while no more than one full fetch of it is buffered. It knows nothing of
  records, so it costs nothing per poll, and what it keeps ahead does not shrink with small records.

Where they are measured: docs/benchmarks.md. The counts are those of batch headers: records of aborted transactions are
in them until they are stepped over.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kadence.config import ConsumerConfig
from kadence.consumer.border.buffer import Border
from kadence.consumer.state.subscription import PartitionState

__all__ = ["Prefetch", "prefetch"]


class Prefetch(Protocol):
    """One heuristic."""

    def begin(self, states: Collection[PartitionState]) -> None:
        """A pass over all assigned partitions starts."""
        ...

    def has_enough(self, state: PartitionState) -> bool:
        """Whether a partition is to be left out. Whatever drains it below that wakes the network thread."""
        ...

    def broker_has_enough(self, held: list[int]) -> bool:
        """Whether a broker is to be left alone, given the bytes that each of its partitions has buffered."""
        ...


def prefetch(config: ConsumerConfig, border: Border) -> Prefetch:
    """The heuristic that the configuration names."""
    if config.prefetch_heuristic == "total":
        return _Total(config, border)
    if config.prefetch_heuristic == "share":
        return _Share(config)
    return _Bytes(config)


class _Bytes:
    def __init__(self, config: ConsumerConfig) -> None:
        self._per_partition = config.max_partition_fetch_bytes

    def begin(self, states: Collection[PartitionState]) -> None:
        pass

    def has_enough(self, state: PartitionState) -> bool:
        return state.buffered_bytes > self._per_partition

    def broker_has_enough(self, held: list[int]) -> bool:
        return all(held) and sum(held) > self._per_partition * len(held)


class _Total:
    def __init__(self, config: ConsumerConfig, border: Border) -> None:
        self._max_poll_records = config.max_poll_records
        self._border = border

    def begin(self, states: Collection[PartitionState]) -> None:
        border = self._border
        # Read first: what is drained while we count then makes us wake early rather than never.
        drained = border.drained_records
        buffered = sum(state.fetched_records - state.cell.drained_records for state in states)
        border.wake_records = drained + buffered - self._max_poll_records + 1

    def has_enough(self, state: PartitionState) -> bool:
        return self._border.drained_records < self._border.wake_records

    def broker_has_enough(self, held: list[int]) -> bool:
        return False


class _Share:
    def __init__(self, config: ConsumerConfig) -> None:
        self._max_poll_records = config.max_poll_records
        self._share = 1

    def begin(self, states: Collection[PartitionState]) -> None:
        self._share = max(self._max_poll_records // max(len(states), 1), 1)

    def has_enough(self, state: PartitionState) -> bool:
        cell = state.cell
        cell.wake_records = state.fetched_records - self._share + 1
        return cell.drained_records < cell.wake_records

    def broker_has_enough(self, held: list[int]) -> bool:
        return False
