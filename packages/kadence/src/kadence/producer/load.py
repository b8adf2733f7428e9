"""Finds partitions that are behind, so that records without a key go to others (KIP-794). Sans-IO, under the lock."""

from __future__ import annotations

from collections.abc import Iterable

from kadence.config import ProducerConfig
from kadence.producer.accumulator import Accumulator
from kadence.producer.partitioner import shares_of
from kadence.producer.topics import Topics
from kadence.types import TopicPartition

__all__ = ["Load"]


class Load:
    """Compares the partitions of a topic by their waiting batches, and brokers by how long they have accepted none.

    A batch that still fills is not behind, so a topic whose brokers keep up has equal partitions. Network thread, with
    the producer's lock held.

    Attributes:
        watches: whether it needs to know which brokers accept nothing.
    """

    def __init__(self, config: ProducerConfig, accumulator: Accumulator, topics: Topics) -> None:
        self._adapts = config.partitioner_adaptive_partitioning_enable
        self._patience_ms = config.partitioner_availability_timeout_ms
        self.watches = self._adapts and self._patience_ms > 0
        self._accumulator = accumulator
        self._topics = topics
        # The time since which a broker has not accepted a batch that was ready for it.
        self._refusing_since: dict[int, int] = {}
        self._ready: set[int] = set()
        # As of the last update: brokers that accept nothing, and topics with a partition that was behind.
        self._last_slow: frozenset[int] = frozenset()
        self._last_behind: set[str] = set()

    def refused(self, node: int | None, now: int) -> None:
        """A batch is ready for a broker, and cannot be sent to it now."""
        if self.watches and node is not None:
            self._ready.add(node)
            self._refusing_since.setdefault(node, now)

    def taken(self, node: int) -> None:
        """Batches are sent to it."""
        self._refusing_since.pop(node, None)

    def update_shares(self, now: int, repeated: Iterable[TopicPartition]) -> None:
        """Set the shares of the sticky partitioners.

        A topic's shares can change only when one of its partitions is behind or was at the turn before, and, while a
        broker accepts nothing, when its partitioner or its partitions are new. Other topics are skipped: there may be
        100,000 of them. All are updated when a broker starts or stops accepting batches.

        Args:
            repeated: partitions with a batch that must be sent again before what waits.
        """
        for node in self._refusing_since.keys() - self._ready:
            del self._refusing_since[node]  # no batch waits for it any more
        self._ready.clear()
        changed = self._topics.changed
        if not self._adapts:
            changed.clear()
            return
        behind: dict[str, dict[int, int]] = {}
        for tp, more in self._accumulator.behind():
            behind.setdefault(tp.topic, {})[tp.partition] = more
        for tp in repeated:
            counts = behind.setdefault(tp.topic, {})
            counts[tp.partition] = counts.get(tp.partition, 0) + 1
        slow = self._slow(now)
        stickies = self._topics.stickies
        look: Iterable[str] = stickies
        if slow == self._last_slow:
            look = self._last_behind.union(behind, changed if slow else ())
        changed.clear()
        self._last_slow, self._last_behind = slow, set(behind)
        for topic in look:
            sticky = stickies.get(topic)
            if sticky is None:
                continue
            sticky.shares = None
            if topic in behind or slow:
                counts = behind.get(topic, {})
                led = [info for info in self._topics.cluster.partitions_for(topic) if info.leader is not None]
                waiting = {i.partition: counts.get(i.partition, 0) for i in led if i.leader not in slow}
                near = self._topics.near(led)
                wanted = set(near) or {info.partition for info in led}
                waiting = {number: waiting[number] for number in near if number in waiting} or waiting
                if waiting and (waiting.keys() != wanted or len(set(waiting.values())) > 1):
                    sticky.shares = shares_of(waiting)

    def _slow(self, now: int) -> frozenset[int]:
        refusing = self._refusing_since.items()
        return frozenset(node for node, since in refusing if now - since > self._patience_ms)
