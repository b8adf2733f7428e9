"""The newest records over all partitions, for ``read(limit=...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kadence.reading.places import Ranges
from kadence.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["newest"]

_LEAST: Final = 100
"""The least offsets of a partition in one step: fewer cost as much, because each step costs a request."""

Read: TypeAlias = "Callable[[Ranges], Iterable[pa.Table]]"
"""Reads ranges, with the columns topic, partition, offset and timestamp among others."""


def newest(ranges: Ranges, limit: int, read: Read, wanted: Callable[[Any], Any]) -> list[pa.Table]:
    """The records with the latest timestamps, in the order of each partition.

    The ends of all partitions are read first, and then ever larger stretches before them, while a partition may have
    records that are later than those found in others.

    Args:
        wanted: returns the rows of a table that count.
    """
    low = {partition: end for partition, (_, end) in ranges.items()}
    found: list[pa.Table] = []
    window = max(_LEAST, -(-limit // len(ranges)))
    todo = set(ranges)
    while todo:
        parts = {p: (max(ranges[p][0], low[p] - window), low[p]) for p in todo}
        latest: dict[TopicPartition, int] = {}
        kept: list[pa.Table] = []
        # Of each table only the rows that count stay in memory.
        for table in read(parts):
            _note_latest(latest, table)
            kept.append(wanted(table))
        low.update((p, start) for p, (start, _) in parts.items())
        # Later steps read earlier offsets, so they are put in front: rows stay in their partition's order.
        found = [*kept, *found]
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


def _note_latest(latest: dict[TopicPartition, int], table: pa.Table) -> None:
    """Add the latest timestamp of each partition in the table."""
    times = table.select(["topic", "partition"]).append_column("at", _times(table))
    grouped = times.group_by(["topic", "partition"]).aggregate([("at", "max")])
    for row in grouped.to_pylist():
        p = TopicPartition(row["topic"], row["partition"])
        latest[p] = max(latest.get(p, row["at_max"]), row["at_max"])


def _cut(tables: list[pa.Table], limit: int) -> int | None:
    """The timestamp of the oldest record among the newest; None: there are fewer records than wanted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if sum(table.num_rows for table in tables) < limit:
        return None
    times = pa.chunked_array([chunk for table in tables for chunk in _times(table).chunks])
    first = pc.select_k_unstable(times, limit, [("x", "descending")])
    return int(times.take(first[-1:])[0].as_py())


def _last(tables: list[pa.Table], limit: int) -> list[pa.Table]:
    """The rows that are among the newest, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if sum(table.num_rows for table in tables) <= limit:
        return [table for table in tables if table.num_rows]
    whole = pa.concat_tables(tables)
    keys = pa.table({"at": _times(whole), "offset": whole["offset"]})
    order = pc.sort_indices(keys, [("at", "descending"), ("offset", "descending")])
    return [whole.take(order[:limit].sort())]
