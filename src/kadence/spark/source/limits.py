"""How far the next micro-batch goes. Pure.

The engine hands a source one built-in limit at a time and knows no limit of bytes and none with a delay, so
all of them are kept here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kadence.types import TopicPartition

__all__ = ["Backlog", "ByteEstimate", "Gate", "offsets_for_bytes", "spread"]

Backlog = Mapping[TopicPartition, tuple[int, int]]
"""For each partition the next offset to read and the end of its log."""


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

    def learn(self, topic: str, size: int, offsets: int) -> None:
        """A sample spanned ``offsets`` offsets and held ``size`` bytes."""
        if offsets <= 0:
            return
        known = self._by_topic.get(topic)
        new = size / offsets
        self._by_topic[topic] = new if known is None else known + self._WEIGHT * (new - known)

    @property
    def per_offset(self) -> Mapping[str, float]:
        """By topic, of those that were sampled."""
        return self._by_topic

    def bytes_of(self, backlog: Backlog) -> float:
        """What the whole backlog holds, by estimate. Topics without a sample count with the mean of the others."""
        mean = sum(self._by_topic.values()) / len(self._by_topic) if self._by_topic else 0.0
        return sum(
            (end - start) * self._by_topic.get(partition.topic, mean)
            for partition, (start, end) in backlog.items()
        )


def offsets_for_bytes(backlog: Backlog, estimate: ByteEstimate, max_bytes: int) -> int | None:
    """The limit in offsets that keeps a batch near ``max_bytes``; None: everything fits, or nothing is known yet."""
    total = estimate.bytes_of(backlog)
    if total <= max_bytes:
        return None
    offsets = sum(end - start for start, end in backlog.values())
    return max(1, int(offsets * (max_bytes / total)))
