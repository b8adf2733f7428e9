"""The driver's side of a batch query: it determines the offset ranges once for each ``load()``.

Spark keeps the plan, so later actions on the same DataFrame, and DataFrames made from it, read the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from kadence.errors import ConfigError
from kadence.types import TopicPartition
from kadence_spark.source.limits import ByteEstimate, measured
from kadence_spark.source.loss import Loss
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.planning import OffsetRange, Task, plan
from kadence_spark.source.ports import OffsetClient
from kadence_spark.source.start import (
    AtTimestamp,
    AtTimestamps,
    Found,
    Place,
    check_existence,
    found_at,
    resolve,
    told,
)

__all__ = ["plan_batch"]

_Offsets = dict[TopicPartition, int]


def plan_batch(options: SourceOptions, brokers: OffsetClient) -> list[Task]:
    """The tasks of a batch query.

    Raises:
        DataLossError: the options name offsets that the logs do not hold (with failOnDataLoss).
        ConfigError: the options do not fit the topics, or a partition's end lies before its start.
        UnknownTopicOrPartitionError: a topic or partition in the options does not exist.
    """
    listing = brokers.partitions(options.topics)
    leaders = listing.leaders
    check_existence(options.topics, leaders)
    if not leaders:
        return []
    look = _OneLook(brokers, leaders)
    starts = _offsets(options.starting, look)
    ends = _offsets(options.ending, look)
    _refuse_backwards(options, starts, ends)
    ranges = [
        piece._replace(topic_id=listing.ids.get(piece.topic, ""))
        for piece in _within_logs(options, starts, ends, look)
    ]
    by_bytes = options.max_bytes_per_partition is not None
    per_offset = measured(ranges, brokers, ByteEstimate()) if by_bytes else {}
    return plan(ranges, options.task_size(), leaders, per_offset)


class _OneLook:
    """Looks up the bounds of all logs once, so that start, end and the check for losses use the same bounds.

    Commits of a running group must not look like a loss, so its offsets are looked up before the bounds. Nor must
    retention, so times are looked up after them.
    """

    def __init__(self, brokers: OffsetClient, partitions: Iterable[TopicPartition]) -> None:
        self._brokers = brokers
        self.partitions = sorted(partitions)

    @cached_property
    def _ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        return self._brokers.log_ranges(self.partitions)

    def log_starts(self, partitions: Iterable[TopicPartition]) -> _Offsets:
        return {partition: self._ranges[partition][0] for partition in partitions}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> _Offsets:
        return {partition: self._ranges[partition][1] for partition in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._brokers.offsets_for_times(times)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return self._brokers.committed(partitions)


def _offsets(place: Place, look: _OneLook) -> _Offsets:
    if not isinstance(place, AtTimestamp | AtTimestamps):
        return resolve(place, look.partitions, look)
    ends = look.log_ends(look.partitions)
    found = resolve(place, look.partitions, look)
    # A record written after the look-up of the ends belongs to a later query.
    return {partition: min(offset, ends[partition]) for partition, offset in found.items()}


def _refuse_backwards(options: SourceOptions, starts: _Offsets, ends: _Offsets) -> None:
    """Refuse a given end before a given start, which is a mistake and not an empty range."""
    wrong = [
        f"{partition} from {starts[partition]} to {ends[partition]}"
        for partition in starts
        if ends[partition] < starts[partition]
        and found_at(options.ending, partition) is not Found.LATEST
        and found_at(options.starting, partition) is not Found.EARLIEST
    ]
    if wrong:
        raise ConfigError(
            f"the query would end before it starts ({told(options.starting)}, {told(options.ending)}): "
            f"{'; '.join(wrong)}"
        )


def _within_logs(
    options: SourceOptions, starts: _Offsets, ends: _Offsets, look: _OneLook
) -> list[OffsetRange]:
    """The ranges within the logs, with the checks for loss."""
    log_starts, log_ends = look.log_starts(look.partitions), look.log_ends(look.partitions)
    loss = Loss(fail=options.fail_on_data_loss)
    ranges = []
    for partition, start in starts.items():
        log_start, log_end, end = log_starts[partition], log_ends[partition], ends[partition]
        if log_start > start:
            loss.aged_out(partition, start, log_start)
        elif end < start and found_at(options.starting, partition) is Found.EARLIEST:
            loss.nothing_left(partition, end, start)
        if log_end < max(start, end):
            loss.beyond(partition, max(start, end), log_end)
        ranges.append(OffsetRange(*partition, max(start, log_start), min(end, log_end)))
    return ranges
