"""Which partition a record goes to: Kafka's rules, so that all clients put a key in the same place.

With a key: murmur2 of its bytes, modulo the number of partitions (Java's default, librdkafka's
``murmur2_random``). Without: the uniform sticky partitioner of KIP-794, which stays with one partition until it
has given it a batch full of bytes; spreading single records would make many small batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kadence.producer.intake import Sticky, murmur2

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key"]


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``, as Kafka's Java client chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner(Sticky):
    """Partitions of records without a key, for one topic.

    Threads that use it at once spread their records no worse for it: a partition may get a batch's bytes more or less.
    """

    def __init__(self, switch_bytes: int, rng: random.Random | None = None) -> None:
        super().__init__(switch_bytes)
        self._choice = rng.choice if rng else random.choice

    def choose(self, size: int, partition_count: int, available: Sequence[int]) -> int:
        """The partition for a record of ``size`` bytes; ``available`` are the partitions that have a leader.

        Without any leader all partitions are candidates: the record then waits for one.
        """
        if 0 <= self.current < partition_count and self.used < self.switch_bytes:
            self.used += size
            return self.current
        candidates = available or range(partition_count)
        if len(candidates) > 1:
            candidates = [partition for partition in candidates if partition != self.current]
        self.current = self._choice(candidates)
        self.used = size
        return self.current
