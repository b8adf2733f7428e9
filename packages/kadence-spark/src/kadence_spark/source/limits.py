"""Limits the next micro-batch, and estimates the bytes of offset ranges.

Spark passes one built-in limit at a time to a source, and has neither a limit of bytes nor one with a delay, so all
limits are implemented here.

Brokers do not report the bytes between two offsets: the size of a log is that of all its compressed batches, and
requesting it needs another permission. So some records are read and measured as Spark gets them: uncompressed keys,
values, and headers if they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kadence.clock import Clock
from kadence.types import TopicPartition
from kadence_spark.source.planning import OffsetRange
from kadence_spark.source.ports import OffsetClient, RecordClient

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "SAMPLE",
    "Backlog",
    "ByteEstimate",
    "Gate",
    "measured",
    "offsets_for_bytes",
    "read_samples",
    "spread",
]

Backlog = Mapping[TopicPartition, tuple[int, int]]
"""For each partition the next offset to read and the end of its log."""

SAMPLE: Final = 1_000
"""The offsets of a sample, and its most records. A fetch of 64 KiB may have fewer."""

MEASURED: Final = 64
"""The most partitions of a batch that are measured, the longest ones. Others get the estimate of their topic."""

NOTHING_KNOWN: Final[Mapping[TopicPartition, float]] = MappingProxyType({})


def spread(backlog: Backlog, limit: int | None) -> dict[TopicPartition, int]:
    """The ends of a batch of about ``limit`` offsets: to each partition in proportion to its backlog.

    As in the JVM connector, a partition with a share below one still gets one, so that none starves; the batch may
    exceed the limit by so many.
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

    The first batch of a process never waits, because the age of its records is unknown.
    """

    minimum: int | None
    max_delay_ms: int
    last_batch: int | None = None

    def lets_pass(self, offsets: int, now: int) -> bool:
        """Whether a batch of all ``offsets`` may start."""
        if self.minimum is None or offsets >= self.minimum or self.last_batch is None:
            return True
        return now - self.last_batch >= self.max_delay_ms

    def passed(self, now: int) -> None:
        """A batch was started."""
        self.last_batch = now


class ByteEstimate:
    """Bytes per offset, by topic: a moving average over samples.

    A sample is a fetch of some records at the front of a batch. Bytes are those of keys, values and headers as Spark
    gets them, uncompressed; offsets without a record count 0.
    """

    _WEIGHT = 0.5

    def __init__(self) -> None:
        self._by_topic: dict[str, float] = {}

    def learn(self, topic: str, size: float, offsets: int) -> None:
        """A sample of ``offsets`` offsets had ``size`` bytes."""
        if offsets <= 0:
            return
        known = self._by_topic.get(topic)
        new = size / offsets
        self._by_topic[topic] = new if known is None else known + self._WEIGHT * (new - known)

    def per_offset(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, float] = NOTHING_KNOWN
    ) -> dict[TopicPartition, float]:
        """Bytes of an offset in each partition; empty if no topic was sampled.

        Args:
            known: of partitions with a better estimate. Others get that of their topic, and topics without a sample
                the mean of the others.
        """
        if not self._by_topic:
            return {}
        mean = sum(self._by_topic.values()) / len(self._by_topic)
        return {p: known[p] if p in known else self._by_topic.get(p.topic, mean) for p in partitions}

    def bytes_of(self, backlog: Backlog) -> float:
        """The estimated bytes of the whole backlog."""
        per_offset = self.per_offset(backlog)
        return sum((end - start) * per_offset.get(p, 0.0) for p, (start, end) in backlog.items())


def offsets_for_bytes(backlog: Backlog, estimate: ByteEstimate, max_bytes: int) -> int | None:
    """The limit in offsets for a batch of about ``max_bytes``; None: the backlog fits, or there is no estimate yet."""
    total = estimate.bytes_of(backlog)
    if total <= max_bytes:
        return None
    offsets = sum(end - start for start, end in backlog.values())
    return max(1, int(offsets * (max_bytes / total)))


def measured(
    ranges: Collection[OffsetRange], brokers: OffsetClient, estimate: ByteEstimate
) -> dict[TopicPartition, float]:
    """Bytes of an offset in each range, by records at its start and at its end: sizes may change on the way.

    Args:
        estimate: is updated by it, and used for ranges that were not measured.
    """
    longest = sorted(ranges, key=lambda piece: (-piece.size, piece))[:MEASURED]
    wholes = {piece.topic_partition: (piece.start, piece.end) for piece in longest if piece.size > 0}
    tails = {p: (end - SAMPLE, end) for p, (start, end) in wholes.items() if end - start > SAMPLE}
    found: dict[TopicPartition, float] = {}
    samples = [brokers.sample(wholes), brokers.sample(tails) if tails else {}]
    for partition in wholes:
        rates = [size / span for size, span in (each.get(partition, (0, 0)) for each in samples) if span]
        if rates:
            found[partition] = sum(rates) / len(rates)
            estimate.learn(partition.topic, found[partition], 1)
    return estimate.per_offset((piece.topic_partition for piece in ranges), found)


def read_samples(
    client: RecordClient, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_ms: int, clock: Clock
) -> dict[TopicPartition, tuple[int, int]]:
    """(bytes, offsets) of some records at the start of each range; without those of which none came in time.

    Args:
        client: with the columns topic, partition, and those that count.
    """
    windows = {p: (start, min(end, start + SAMPLE)) for p, (start, end) in ranges.items()}
    sizes = dict.fromkeys(windows, 0)
    deadline = clock.now_ms() + timeout_ms
    client.start(windows)
    try:
        while not client.is_done() and (left := deadline - clock.now_ms()) > 0:
            _add(sizes, client.poll(SAMPLE, left / 1000))
            if all(client.position(p) > start for p, (start, _) in windows.items()):
                break
        spans = {p: client.position(p) - start for p, (start, _) in windows.items()}
        return {p: (sizes[p], span) for p, span in spans.items() if span > 0}
    finally:
        client.park()


def _add(sizes: dict[TopicPartition, int], table: pa.Table) -> None:
    import pyarrow.compute as pc

    wanted = [name for name in table.column_names if name not in ("topic", "partition")]
    for topic in pc.unique(table["topic"]):
        of_topic = table.filter(pc.equal(table["topic"], topic))
        for number in pc.unique(of_topic["partition"]):
            rows = of_topic.filter(pc.equal(of_topic["partition"], number))
            sizes[TopicPartition(topic.as_py(), number.as_py())] += rows.select(wanted).nbytes
