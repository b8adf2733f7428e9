"""Packs offset ranges into tasks. Pure.

A task has a constant cost of about 30 ms in Python, so a task for each Kafka partition, as in the JVM connector, would
be slow: 64 small partitions took two seconds, and two tasks a tenth of that. So ranges are packed into as few tasks as
their size allows. A Kafka partition is *split* only by the options minPartitions, maxRecordsPerPartition and
maxBytesPerPartition, because its records are then not in one task in their order.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from kadence.types import TopicPartition

__all__ = ["OffsetRange", "Task", "TaskSize", "plan"]

WORTH_A_TASK: Final = 20_000
"""Below so many offsets a second task costs more than it saves, even with idle cores."""

WORTH_A_TASK_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes, if known, for large records."""

TARGET_BYTES: Final = 512 * 1024 * 1024
"""The bytes of a task beyond which there are more tasks than run at once."""

NOTHING_SAMPLED: Final[Mapping[TopicPartition, float]] = MappingProxyType({})

CHOICE: Final = 8
"""How many of the emptiest bins are checked for one that reads from a piece's leader already."""


class OffsetRange(NamedTuple):
    """Offsets ``start`` (inclusive) to ``end`` (exclusive) of one partition.

    ``topic_id`` (as `kadence_spark.source.offsets` writes it) is that of the planned topic; "": unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Offsets, not records: compaction and transactions leave offsets without a record."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Task = tuple[OffsetRange, ...]

_Weigh = Callable[[OffsetRange], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSize:
    """The settings that decide the number of tasks.

    Attributes:
        parallelism: tasks that are expected to run at once; None: unknown, so each Kafka partition may have one.
        target: the offsets of a task, if there are more tasks than that.
        min_tasks: the option minPartitions. max_offsets: the option maxRecordsPerPartition. max_bytes: the option
            maxBytesPerPartition, as exact as the estimate of bytes.
    """

    parallelism: int | None
    target: int
    min_tasks: int | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None

    def parts_of(self, offsets: int, size: int) -> int:
        """The number of parts into which a range of so many offsets and bytes is split."""
        by_offsets = 1 if self.max_offsets is None else math.ceil(offsets / self.max_offsets)
        by_bytes = 1 if self.max_bytes is None else math.ceil(size / self.max_bytes)
        return min(max(by_offsets, by_bytes, 1), offsets)


def plan(
    ranges: Iterable[OffsetRange],
    size: TaskSize,
    leaders: Mapping[TopicPartition, int | None],
    bytes_per_offset: Mapping[TopicPartition, float] = NOTHING_SAMPLED,
) -> list[Task]:
    """Split, then pack. Empty ranges are left out; the same input gives the same tasks.

    Args:
        leaders: of each partition.
        bytes_per_offset: of each partition, by estimate; empty: unknown.
    """

    def bytes_of(piece: OffsetRange) -> int:
        return int(piece.size * bytes_per_offset.get(piece.topic_partition, 0.0))

    wholes = [whole for whole in sorted(ranges) if whole.size > 0]
    pieces = [part for whole in wholes for part in _split(whole, size.parts_of(whole.size, bytes_of(whole)))]
    pieces = _split_until(pieces, size.min_tasks or 0)
    total, total_bytes = sum(piece.size for piece in pieces), sum(map(bytes_of, pieces))
    at_once = len(wholes) if size.parallelism is None else size.parallelism
    tasks = max(
        min(at_once, math.ceil(max(total / WORTH_A_TASK, total_bytes / WORTH_A_TASK_BYTES))),
        math.ceil(max(total / size.target, total_bytes / TARGET_BYTES)),
        size.min_tasks or 0,
    )
    weigh, most = _scale(size, bytes_of, is_by_bytes=total_bytes > 0)
    return _pack(pieces, min(tasks, len(pieces)), most, leaders, weigh)


def _scale(size: TaskSize, bytes_of: _Weigh, *, is_by_bytes: bool) -> tuple[_Weigh, int | None]:
    """The weight function of pieces, and the limit of a task. The options' limits take precedence over equal bytes."""
    offsets, most_bytes = size.max_offsets, size.max_bytes
    if offsets is None:
        return (bytes_of if is_by_bytes else _offsets), most_bytes
    if most_bytes is None:
        return _offsets, offsets
    # The larger share of the two limits: tasks within it are within both.
    return lambda piece: max(piece.size * most_bytes, bytes_of(piece) * offsets), offsets * most_bytes


def _offsets(piece: OffsetRange) -> int:
    return piece.size


def _split_until(pieces: list[OffsetRange], wanted: int) -> list[OffsetRange]:
    """At least ``wanted`` pieces: bigger ones are cut in proportion to their size, small ones stay whole."""
    if len(pieces) >= wanted:
        return pieces
    total = sum(piece.size for piece in pieces)
    parts = {piece: max(1, wanted * piece.size // total) for piece in pieces}
    missing = wanted - sum(parts.values())
    # Pieces left over by the rounding go to the piece with the biggest parts.
    while missing > 0 and any(parts[piece] < piece.size for piece in pieces):
        biggest = max((p for p in pieces if parts[p] < p.size), key=lambda p: p.size / parts[p])
        parts[biggest] += 1
        missing -= 1
    return [part for piece in pieces for part in _split(piece, parts[piece])]


def _split(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """``parts`` pieces whose sizes differ by one at most."""
    bounds = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=low, end=high) for low, high in itertools.pairwise(bounds) if low < high]


@dataclass(slots=True)
class _Bin:
    leaders: set[int | None] = field(default_factory=set)
    pieces: list[OffsetRange] = field(default_factory=list)


def _pack(
    pieces: list[OffsetRange],
    tasks: int,
    most: int | None,
    leaders: Mapping[TopicPartition, int | None],
    weigh: _Weigh,
) -> list[Task]:
    """Biggest first into the emptiest bin; of about equally empty ones, one that reads from that leader already.

    A reader connects only to the leaders of its ranges, so fewer leaders in a task need fewer connections.
    """
    if not pieces:
        return []
    if tasks == len(pieces):
        return [(piece,) for piece in pieces]
    bins = [_Bin() for _ in range(tasks)]
    by_load = [(0, number) for number in range(tasks)]
    limit = sys.maxsize if most is None else most
    slack = sum(map(weigh, pieces)) // tasks // 20
    for piece in sorted(pieces, key=lambda p: (-weigh(p), p)):
        leader = leaders.get(piece.topic_partition)
        if by_load[0][0] + weigh(piece) > limit and by_load[0][0]:
            heapq.heappush(by_load, (0, len(bins)))
            bins.append(_Bin())
        near = [heapq.heappop(by_load)]
        highest = min(near[0][0] + slack, limit - weigh(piece))
        while by_load and len(near) < CHOICE and by_load[0][0] <= highest:
            near.append(heapq.heappop(by_load))
        chosen = min(near, key=lambda entry: (leader not in bins[entry[1]].leaders, entry))
        near.remove(chosen)
        load, number = chosen
        bins[number].leaders.add(leader)
        bins[number].pieces.append(piece)
        for entry in (*near, (load + weigh(piece), number)):
            heapq.heappush(by_load, entry)
    return [tuple(sorted(b.pieces)) for b in bins if b.pieces]
