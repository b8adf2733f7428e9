"""The driver's side of a batch query: one answer to "from where to where", taken once for each ``load()``.

Spark keeps the plan, so later actions on the same DataFrame, and DataFrames made from it, read the same offsets.
"""

from __future__ import annotations

from kadence.spark.source.loss import Loss
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.planning import OffsetRange, Task, plan
from kadence.spark.source.ports import OffsetClient
from kadence.spark.source.start import check_existence, resolve

__all__ = ["plan_batch"]


def plan_batch(options: SourceOptions, brokers: OffsetClient) -> list[Task]:
    """The tasks of a batch query.

    Raises:
        DataLossError: the options name offsets that the logs do not hold (with failOnDataLoss).
        ConfigError: the options do not fit the topics.
        UnknownTopicOrPartitionError: a topic or partition that they name does not exist.
    """
    leaders = brokers.partitions(options.topics)
    check_existence(options.topics, leaders)
    if not leaders:
        return []
    # Bounds of the logs first and last: retention and producers at work meanwhile must not look like a loss.
    log_starts = brokers.log_starts(leaders)
    starts = resolve(options.starting, leaders, brokers)
    ends = resolve(options.ending, leaders, brokers)
    log_ends = brokers.log_ends(leaders)
    loss = Loss(fail=options.fail_on_data_loss)
    ranges = []
    for partition, start in starts.items():
        if log_starts[partition] > start:
            loss.aged_out(partition, start, log_starts[partition])
        highest = max(start, ends[partition])
        if log_ends[partition] < highest:
            loss.cut_off(partition, highest, log_ends[partition])
        begin, end = (
            max(start, log_starts[partition]),
            min(ends[partition], log_ends[partition]),
        )
        ranges.append(OffsetRange(*partition, begin, end))
    return plan(ranges, options.task_size(), leaders)
