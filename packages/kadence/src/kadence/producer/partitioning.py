"""The choice of a record's partition if ``partitioner`` is not the default: librdkafka's ways, or a user's function.

Records without a chosen partition stay with one partition for a number of bytes, as with the default
(`partitioner.StickyPartitioner`).
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from kadence._native.append import TopicInfo, murmur2
from kadence.config import ProducerConfig

__all__ = ["Chooser", "chooser"]

Chooser = Callable[[str, bytes | None, TopicInfo], int | None]
"""Chooses by topic and key; None leaves the choice to the sticky partitioner."""

Hash = Callable[[bytes], int]


def chooser(config: ProducerConfig) -> Chooser | None:
    """The function that chooses; None for Kafka's default, which the accumulator applies itself."""
    if config.partitioner_ignore_keys or config.partitioner == "random":
        return lambda topic, key, place: None
    if callable(config.partitioner):
        return _Own(config.partitioner)
    if config.partitioner == "round_robin":
        return _RoundRobin()
    return {
        "murmur2_random": None,
        "murmur2": _hashed(_positive_murmur2, is_random_without=()),
        "consistent_random": _hashed(zlib.crc32, is_random_without=(None, b"")),
        "consistent": _hashed(zlib.crc32, is_random_without=()),
        "fnv1a_random": _hashed(_fnv1a, is_random_without=(None,)),
        "fnv1a": _hashed(_fnv1a, is_random_without=()),
    }[config.partitioner]


def _hashed(hash_of: Hash, *, is_random_without: tuple[bytes | None, ...]) -> Chooser:
    """A hash of the key's bytes, modulo the number of partitions. A key that is None counts as empty."""

    def choose(topic: str, key: bytes | None, place: TopicInfo) -> int | None:
        return None if key in is_random_without else hash_of(key or b"") % place.count

    return choose


def _positive_murmur2(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def _fnv1a(key: bytes) -> int:
    """FNV-1a of 32 bits as Sarama and librdkafka use it: the absolute value of the signed number."""
    number = 0x811C9DC5
    for byte in key:
        number = ((number ^ byte) * 0x01000193) & 0xFFFFFFFF
    return 0x100000000 - number if number & 0x80000000 else number


class _RoundRobin:
    """One partition with a leader after the other for each topic, as Java's RoundRobinPartitioner."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, place: TopicInfo) -> int:
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        among: Sequence[int] = place.available or range(place.count)
        return among[number % len(among)]


class _Own:
    """A user's function, called as by kafka-python and aiokafka: with key, all partitions, and those with a leader."""

    def __init__(self, function: Callable[[bytes | None, Sequence[int], Sequence[int]], Any]) -> None:
        self._function = function

    def __call__(self, topic: str, key: bytes | None, place: TopicInfo) -> int | None:
        chosen = self._function(key, range(place.count), place.available)
        if chosen is None:
            return None
        number = operator.index(chosen)
        if not 0 <= number < place.count:
            raise ValueError(
                f"the partitioner chose partition {number} of topic {topic!r}, which has {place.count}"
            )
        return number
