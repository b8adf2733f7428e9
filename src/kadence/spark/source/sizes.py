"""Estimates how many bytes a range of offsets has, by reading some records.

Brokers do not tell it: the size of a log is that of its compressed batches for all offsets, and to request it a
client needs a permission of its own. So what is measured is what Spark will get: uncompressed keys, values, and
headers where they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kadence.clock import Clock
from kadence.spark.source.limits import ByteEstimate
from kadence.spark.source.planning import OffsetRange
from kadence.spark.source.ports import OffsetClient, RecordClient
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SAMPLE", "measured", "read_samples"]

SAMPLE: Final = 1_000
"""Offsets of a sample, and most of its records. A fetch of 64 KiB may bring fewer."""

MEASURED: Final = 64
"""Most partitions of a batch that are measured: the longest. Others count as the rest of their topic does."""


def measured(
    ranges: Collection[OffsetRange], brokers: OffsetClient, estimate: ByteEstimate
) -> dict[TopicPartition, float]:
    """Bytes of an offset in each range, by records at its start and at its end: sizes may change on the way.

    Args:
        estimate: learns from it, and is taken for what was not measured.
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
