"""The default choice of a record's partition: Kafka's rules, so that all clients put a key in the same partition.

With a key: murmur2 of its bytes, modulo the number of partitions (Java's default, librdkafka's
``murmur2_random``). Without: the uniform sticky partitioner of KIP-794, which stays with one partition for a
number of bytes; spreading single records would make many small batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from kadence._native.append import Sticky, murmur2

__all__ = ["MOST_STICKY_BYTES", "Shares", "StickyPartitioner", "murmur2", "partition_for_key", "shares_of"]

MOST_STICKY_BYTES: Final = 16_384
"""Kafka's own default `batch.size`, and so the bytes that its producer gives to one partition before the next. A
larger `batch.size` fills its batches with several such runs; a partition that got a whole batch each time would
leave the others without records for minutes if few are sent."""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``, as Kafka's Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Shares(NamedTuple):
    """The probability with which each partition is chosen next.

    Attributes:
        partitions: those that may be chosen. sums: their weights, each added to those before it.
    """

    partitions: list[int]
    sums: list[int]


def shares_of(waiting: dict[int, int]) -> Shares:
    """The shares of partitions by the number of batches that wait for each: the more, the smaller (KIP-794)."""
    most = max(waiting.values()) + 1
    return Shares(list(waiting), list(accumulate(most - count for count in waiting.values())))


class StickyPartitioner(Sticky):
    """Partitions of records without a key, for one topic.

    If threads use it at once, a partition may get a run's bytes more or less.

    Attributes:
        shares: the probability of each partition, if some are behind; None if all are equal. Under the lock.
        near: partitions that are preferred to all others, because of their leader's rack (KIP-1123).
    """

    def __init__(self, switch_bytes: int, rng: random.Random | None = None) -> None:
        super().__init__(switch_bytes)
        # Seeded from the process's generator, which a test or a simulation can seed.
        self._rng = rng or random.Random(random.getrandbits(64))
        self.shares: Shares | None = None
        self.near: tuple[int, ...] = ()

    def choose(self, size: int, partition_count: int, available: Sequence[int]) -> int:
        """The partition for a record of ``size`` bytes; ``available`` are the partitions that have a leader.

        Without any leader all partitions are candidates: the record then waits for one.
        """
        if 0 <= self.current < partition_count and self.used < self.switch_bytes:
            self.used += size
            return self.current
        self.current = self._next(partition_count, available)
        self.used = size
        return self.current

    def leave_unless(self, available: Sequence[int]) -> None:
        """Choose another partition for the next record if the present one is not among the ``available``, or near."""
        wanted = self.near or available
        if wanted and self.current not in wanted:
            self.used = self.switch_bytes

    def _next(self, partition_count: int, available: Sequence[int]) -> int:
        if self.shares is not None:
            chosen = self._rng.choices(self.shares.partitions, cum_weights=self.shares.sums)[0]
            if chosen < partition_count:
                return chosen
        candidates = self.near or available or range(partition_count)
        chosen = candidates[int(self._rng.random() * len(candidates))]
        if chosen == self.current and len(candidates) > 1:
            others = [partition for partition in candidates if partition != chosen]
            chosen = others[int(self._rng.random() * len(others))]
        return chosen
