"""Which partition a record goes to: Kafka's rules, so that all clients put a key in the same place.

With a key: murmur2 of its bytes, modulo the number of partitions (Java's default, librdkafka's
``murmur2_random``). Without: the uniform sticky partitioner of KIP-794, which stays with one partition until it
has given it a batch full of bytes; spreading single records would make many small batches.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["StickyPartitioner", "murmur2", "partition_for_key"]

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed; unsigned."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=8192)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``, as Kafka's Java client chooses it."""
    # Keys usually repeat, and the hash of a long one costs microseconds here; very long ones are not kept.
    positive = _positive_hash(key) if len(key) <= 64 else murmur2(key) & 0x7FFFFFFF
    return positive % partition_count


class StickyPartitioner:
    """Partitions of records without a key, for one topic. Not thread-safe: used under the producer's lock."""

    __slots__ = ("_bytes", "_choice", "_current", "_switch_bytes")

    def __init__(self, switch_bytes: int, rng: random.Random | None = None) -> None:
        self._switch_bytes = switch_bytes
        self._choice = rng.choice if rng else random.choice
        self._current = -1
        self._bytes = 0

    def choose(self, size: int, partition_count: int, available: Sequence[int]) -> int:
        """The partition for a record of ``size`` bytes; ``available`` are the partitions that have a leader.

        Without any leader all partitions are candidates: the record then waits for one.
        """
        if self._current >= 0 and self._bytes < self._switch_bytes and self._current < partition_count:
            self._bytes += size
            return self._current
        candidates = available or range(partition_count)
        if len(candidates) > 1:
            candidates = [partition for partition in candidates if partition != self._current]
        self._current = self._choice(candidates)
        self._bytes = size
        return self._current
