"""The newest records: which they are, and how little is read for them."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kadence.reading.newest import newest
from kadence.reading.places import Ranges
from kadence.records.arrow import schema
from kadence.types import TopicPartition

COLUMNS = ("topic", "partition", "offset", "timestamp")


class Log:
    """Partitions whose records have these times; None is an offset without a record, such as a marker."""

    def __init__(self, *partitions: list[int | None]) -> None:
        self.partitions = partitions
        self.read = 0

    @property
    def ranges(self) -> Ranges:
        return {TopicPartition("t", p): (0, len(times)) for p, times in enumerate(self.partitions)}

    def table(self, rows: list[tuple[int, int, int]]) -> pa.Table:
        columns = (
            [[], [], [], []]
            if not rows
            else [list(column) for column in zip(*[("t", *row) for row in rows], strict=True)]
        )
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, schema(COLUMNS), strict=True)],
            schema=schema(COLUMNS),
        )

    def polled(self, ranges: Ranges) -> Iterator[pa.Table]:
        for (_, p), (start, end) in ranges.items():
            self.read += end - start
            rows = [(p, at, time) for at in range(start, end) if (time := self.partitions[p][at]) is not None]
            for first in range(0, len(rows), 30):
                yield self.table(rows[first : first + 30])

    def newest(self, limit: int, keeps: int = 1) -> list[tuple[int, int]]:
        """Partition and offset of each, in the order of the tables. ``keeps``: one record of so many counts."""

        def wanted(table: pa.Table) -> pa.Table:
            return table.filter(
                pa.array([offset % keeps == 0 for offset in table["offset"].to_pylist()], pa.bool_())
            )

        tables = newest(self.ranges, limit, self.polled, wanted)
        return [(row["partition"], row["offset"]) for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_with_the_latest_times(seed: int) -> None:
    rnd = random.Random(seed)
    keeps = rnd.choice([1, 1, 7])
    partitions: list[list[int | None]] = []
    for _ in range(rnd.choice([1, 3])):
        # No two records have one time.
        times: list[int | None] = list(range(rnd.randrange(3), 9_000, rnd.choice([3, 9, 30])))
        times = [None if rnd.random() < rnd.choice([0, 0.9]) else time for time in times]
        partitions.append([None if time is None else time * 3 + len(partitions) for time in times])
    log = Log(*partitions)
    everything = sorted(
        (time, p, at)
        for p, times in enumerate(log.partitions)
        for at, time in enumerate(times)
        if time is not None and at % keeps == 0
    )
    for limit in (1, 50, 400, 10_000):
        found = log.newest(limit, keeps)
        assert sorted(found) == sorted((p, at) for _, p, at in everything[-limit:])
        for p in range(len(partitions)):
            mine = [at for number, at in found if number == p]
            assert mine == sorted(mine), "rows of a partition are in its order"


def test_what_lies_before_them_is_not_read() -> None:
    log = Log(list(range(100_000)), list(range(100_000)))
    assert len(log.newest(1_000)) == 1_000
    assert log.read < 4_000
    # One partition is quiet since long: all of the newest are in the other.
    log = Log(list(range(5_000)), list(range(1_000_000, 1_005_000)))
    assert log.newest(1_000) == [(1, at) for at in range(4_000, 5_000)]
    assert log.read <= 5_000


def test_one_wrong_clock_does_not_hide_what_lies_before() -> None:
    times: list[int | None] = list(range(1_000))
    times[950] = 0
    log = Log(times, [500])
    assert len(log.newest(300)) == 300
    assert (0, 705) in log.newest(300)


def test_rows_that_do_not_count_do_not_stay_in_memory() -> None:
    log = Log(list(range(3_000)))
    read: list[weakref.ref[pa.Table]] = []

    def polled(ranges: Ranges) -> Iterator[pa.Table]:
        for table in log.polled(ranges):
            assert sum(each() is not None for each in read) <= 1, "the one before may still be looked at"
            read.append(weakref.ref(table))
            yield table
            del table

    tables = newest(log.ranges, 2, polled, lambda table: log.table([]))
    assert sum(table.num_rows for table in tables) == 0
    assert len(read) >= 100
