"""Filters of a batch query that spare reading: on topic, partition, offset and timestamp. Pure.

Pruning only ever leaves out what cannot pass, and Spark checks every row again, so it can make a query cheaper and
never wrong. A lower bound on the timestamp moves the start to the first record that is as late: all before it are
earlier. An upper one moves nothing, because records need not be in the order of their times.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kadence.spark.source.planning import OffsetRange
from kadence.types import TopicPartition

__all__ = ["EVERYTHING", "Bounds", "Condition"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

Condition = tuple[str, str, Any]
"""(column, operator, value), the operator one of ``= < <= > >= in``; ``in`` has several values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What conditions that must all hold leave of a query.

    Attributes:
        topics, partitions: those that can pass; None: all.
        from_offset: inclusive. to_offset: exclusive. from_time: ms since 1970, inclusive; None where nothing is said.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_range: tuple[float, float] = (-math.inf, math.inf)
    from_offset: float = -math.inf
    to_offset: float = math.inf
    from_time: int | None = None

    def and_also(self, condition: Condition) -> Bounds:
        """These bounds, narrowed by one more condition. One that says nothing of use changes nothing."""
        column, operator, value = condition
        values = tuple(value) if operator == "in" else (value,)
        if column == "topic" and operator in ("=", "in"):
            return replace(self, topics=_both(self.topics, frozenset(values)))
        if column == "partition" and all(map(_is_whole, values)):
            if operator in ("=", "in"):
                return replace(self, partitions=_both(self.partitions, frozenset(values)))
            low, high = _interval(operator, values)
            return replace(
                self,
                partition_range=(max(low, self.partition_range[0]), min(high, self.partition_range[1])),
            )
        if column == "offset" and values and all(map(_is_whole, values)):
            low, high = _interval(operator, values)
            return replace(self, from_offset=max(low, self.from_offset), to_offset=min(high, self.to_offset))
        if column == "timestamp" and operator in ("=", ">", ">=") and isinstance(value, datetime.datetime):
            earliest = _milliseconds(value)
            # Records without a time count as one millisecond before 1970.
            return replace(self, from_time=max(earliest, self.from_time or 0)) if earliest > 0 else self
        return self

    def narrowed(
        self,
        ranges: Iterable[OffsetRange],
        offsets_for_times: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]],
    ) -> list[OffsetRange]:
        """The part of ``ranges`` that can pass. Asks for times only where a condition names one."""
        kept = []
        for whole in ranges:
            start, end = max(whole.start, self.from_offset), min(whole.end, self.to_offset)
            if self._wants(whole) and start < end:
                kept.append(whole._replace(start=int(start), end=int(end)))
        if self.from_time is None or not kept:
            return kept
        # The ends are known by now, so a partition without so late a record has none below its end either.
        first = offsets_for_times({piece.topic_partition: self.from_time for piece in kept})
        later = ((piece, first.get(piece.topic_partition)) for piece in kept)
        return [
            piece._replace(start=max(piece.start, begin))
            for piece, begin in later
            if begin is not None and begin < piece.end
        ]

    def _wants(self, piece: OffsetRange) -> bool:
        low, high = self.partition_range
        return (
            (self.topics is None or piece.topic in self.topics)
            and (self.partitions is None or piece.partition in self.partitions)
            and low <= piece.partition < high
        )


EVERYTHING: Final = Bounds()
"""No condition."""


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _interval(operator: str, values: tuple[int, ...]) -> tuple[float, float]:
    """Whole numbers that pass, as (from, to), the latter exclusive."""
    low, high = min(values), max(values)
    match operator:
        case ">":
            return low + 1, math.inf
        case ">=":
            return low, math.inf
        case "<":
            return -math.inf, high
        case "<=":
            return -math.inf, high + 1
        case _:
            return low, high + 1


def _milliseconds(when: datetime.datetime) -> int:
    """The first millisecond that is not before ``when``. Kafka's times are whole milliseconds, Spark's microseconds."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    microseconds = (when - _EPOCH) // datetime.timedelta(microseconds=1)
    return -(-microseconds // 1000)
