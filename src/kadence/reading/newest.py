"""The newest records of a reading: so many, whatever partitions they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.reading.places import Ranges
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["newest"]

_LEAST: Final = 100
"""So many offsets of a partition are read at once, at least: a request costs as much."""

Read: TypeAlias = "Callable[[Ranges], Iterable[pa.Table]]"
"""Reads ranges, with the columns topic, partition, offset and timestamp among others."""


def newest(ranges: Ranges, limit: int, read: Read, wanted: Callable[[Any], Any]) -> list[pa.Table]:
    """So many records with the latest timestamps, those of one partition in its order.

    The ends of all partitions are read first, and then ever more before them, as long as a partition may have records
    that are later than what was found in others.

    Args:
        wanted: of a table the rows that count.
    """
    low = {partition: end for partition, (_, end) in ranges.items()}
    found: list[pa.Table] = []
    window = max(_LEAST, -(-limit // len(ranges)))
    todo = set(ranges)
    while todo:
        parts = {p: (max(ranges[p][0], low[p] - window), low[p]) for p in todo}
        tables = list(read(parts))
        latest = _latest(tables)
        low.update((p, start) for p, (start, _) in parts.items())
        # What is read later lies before: rows of a partition stay in its order.
        found = [*(wanted(table) for table in tables), *found]
        cut = _cut(found, limit)
        todo = {
            p for p in todo if low[p] > ranges[p][0] and (cut is None or p not in latest or latest[p] >= cut)
        }
        window *= 2
    return _last(found, limit)


def _times(table: pa.Table) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.fill_null(table["timestamp"].cast(pa.int64()), 0)


def _latest(tables: list[pa.Table]) -> dict[TopicPartition, int]:
    """The latest timestamp of each partition in tables."""
    found: dict[TopicPartition, int] = {}
    for table in tables:
        kept = table.select(["topic", "partition"]).append_column("at", _times(table))
        grouped = kept.group_by(["topic", "partition"]).aggregate([("at", "max")])
        for row in grouped.to_pylist():
            p = TopicPartition(row["topic"], row["partition"])
            found[p] = max(found.get(p, row["at_max"]), row["at_max"])
    return found


def _cut(tables: list[pa.Table], limit: int) -> int | None:
    """The timestamp of the last record that is among the newest; None: there are not so many."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if sum(table.num_rows for table in tables) < limit:
        return None
    times = pa.chunked_array([chunk for table in tables for chunk in _times(table).chunks])
    first = pc.select_k_unstable(times, limit, [("x", "descending")])
    return int(times.take(first[-1:])[0].as_py())


def _last(tables: list[pa.Table], limit: int) -> list[pa.Table]:
    """The rows that are among the newest, where they stand."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if sum(table.num_rows for table in tables) <= limit:
        return [table for table in tables if table.num_rows]
    whole = pa.concat_tables(tables)
    keys = pa.table({"at": _times(whole), "offset": whole["offset"]})
    order = pc.sort_indices(keys, [("at", "descending"), ("offset", "descending")])
    return [whole.take(order[:limit].sort())]
