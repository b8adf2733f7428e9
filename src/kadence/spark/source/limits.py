"""How far the next micro-batch goes. Pure.

The engine hands a source one built-in limit at a time and knows no limit of bytes and none with a delay, so
all of them are kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kadence.types import TopicPartition

__all__ = ["Backlog", "ByteEstimate", "Gate", "offsets_for_bytes", "spread"]

Backlog = Mapping[TopicPartition, tuple[int, int]]
"""For each partition the next offset to read and the end of its log."""

NOTHING_KNOWN: Final[Mapping[TopicPartition, float]] = MappingProxyType({})


def spread(backlog: Backlog, limit: int | None) -> dict[TopicPartition, int]:
    """The ends of a batch of about ``limit`` offsets: to each partition in proportion to its backlog.

    As the JVM connector does, a partition whose share is below one still gets one, so that none starves; the
    batch may pass the limit by so many.
    """
    total = sum(end - start for start, end in backlog.values())
    if limit is None or total <= limit:
        return {partition: end for partition, (_, end) in backlog.items()}
    return {
        partition: start + min(end - start, max(1, limit * (end - start) // total))
        for partition, (start, end) in backlog.items()
    }


@dataclass(slots=True)
class Gate:
    """minOffsetsPerTrigger with maxTriggerDelay: whether a small backlog must wait.

    The first batch of a process never waits: how long the records wait already is not known then.
    """

    minimum: int | None
    max_delay_ms: int
    last_batch: int | None = None

    def lets_pass(self, offsets: int, now: int) -> bool:
        """Whether a batch of all ``offsets`` that are there may start."""
        if self.minimum is None or offsets >= self.minimum or self.last_batch is None:
            return True
        return now - self.last_batch >= self.max_delay_ms

    def passed(self, now: int) -> None:
        """A batch was started."""
        self.last_batch = now


class ByteEstimate:
    """Bytes per offset, by topic: a moving average over samples.

    A sample is a fetch of some records at the front of a batch. Bytes count keys, values and headers as Spark gets
    them, uncompressed; offsets without a record count as nothing, which is what they cost.
    """

    _WEIGHT = 0.5

    def __init__(self) -> None:
        self._by_topic: dict[str, float] = {}

    def learn(self, topic: str, size: float, offsets: int) -> None:
        """A sample spanned ``offsets`` offsets and held ``size`` bytes."""
        if offsets <= 0:
            return
        known = self._by_topic.get(topic)
        new = size / offsets
        self._by_topic[topic] = new if known is None else known + self._WEIGHT * (new - known)

    def per_offset(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, float] = NOTHING_KNOWN
    ) -> dict[TopicPartition, float]:
        """Bytes of an offset in each partition; none where no topic was sampled.

        Args:
            known: of partitions, where that is known better. Others count as their topic does, and topics without a
                sample as the mean of the others.
        """
        if not self._by_topic:
            return {}
        mean = sum(self._by_topic.values()) / len(self._by_topic)
        return {p: known[p] if p in known else self._by_topic.get(p.topic, mean) for p in partitions}

    def bytes_of(self, backlog: Backlog) -> float:
        """What the whole backlog holds, by estimate."""
        per_offset = self.per_offset(backlog)
        return sum((end - start) * per_offset.get(p, 0.0) for p, (start, end) in backlog.items())


def offsets_for_bytes(backlog: Backlog, estimate: ByteEstimate, max_bytes: int) -> int | None:
    """The limit in offsets that keeps a batch near ``max_bytes``; None: everything fits, or nothing is known yet."""
    total = estimate.bytes_of(backlog)
    if total <= max_bytes:
        return None
    offsets = sum(end - start for start, end in backlog.values())
    return max(1, int(offsets * (max_bytes / total)))
