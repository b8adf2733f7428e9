"""Records of a queue as Arrow tables, with a delivery count, and acknowledging by a table. Application side.

A table is made of the fetched bytes, as a consumer's is; of records where there are gaps, and of those that were read
before or renewed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kadence.consumer.application.arguments import columns_of
from kadence.records import arrow
from kadence.share.application._marks import neighbours

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow

    from kadence.share.application._marks import Chunk

__all__ = ["DELIVERY_COUNT", "ShareTable", "column_names", "runs_of"]

DELIVERY_COUNT: Final = "deliveryCount"

_INT16: Final = struct.Struct("=h")

_PLACE: Final = ("topic", "partition", "offset")


def column_names(columns: Sequence[str] | None, *, headers: bool) -> tuple[str, ...]:
    """The columns of a table, in their order.

    Raises:
        ValueError: there is no such column, or it is named twice.
    """
    if columns is None:
        return (*columns_of(None, headers=headers), DELIVERY_COUNT)
    if isinstance(columns, str) or DELIVERY_COUNT not in columns:
        return columns_of(columns, headers=headers)
    names = tuple(columns)
    if names.count(DELIVERY_COUNT) > 1:
        raise ValueError(f"column {DELIVERY_COUNT!r} is named twice")
    if others := [name for name in names if name != DELIVERY_COUNT]:
        columns_of(others, headers=headers)
    return names


class ShareTable:
    """Makes tables of these columns.

    Attributes:
        own: those of a consumer's table.

    Raises:
        ValueError: as `column_names`. MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, columns: Sequence[str] | None, *, headers: bool) -> None:
        self._names = column_names(columns, headers=headers)
        # A table without columns has no rows.
        self.own = tuple(name for name in self._names if name != DELIVERY_COUNT) or ("offset",)
        self._schema = arrow.schema(self.own)

    def of(self, chunks: Iterable[Chunk]) -> pyarrow.Table:
        """A row for each of their records, which are in bytes."""
        import pyarrow as pa

        parts, counts = [], []
        for has_rows, alike in groupby(chunks, lambda chunk: chunk.rows is not None):
            if has_rows:
                rows = [chunk.rows for chunk in alike if chunk.rows is not None]
                parts.append(arrow.to_table([each.columns for each in rows], names=self.own))
                counts += [_counts(pa, len(each.columns), each.deliveries) for each in rows]
            else:
                records = [record for chunk in alike for record in chunk.records]
                parts.append(arrow.of_records(records, self.own))
                counts.append(pa.array([each.delivery_count for each in records], pa.int16()))
        # Without any there is no schema to be found.
        table = pa.concat_tables(parts) if parts else self._schema.empty_table()
        if DELIVERY_COUNT not in self._names:
            return table
        column = pa.chunked_array(counts, pa.int16())
        if len(self._names) == 1:
            return pa.table({DELIVERY_COUNT: column})
        return table.add_column(
            self._names.index(DELIVERY_COUNT), pa.field(DELIVERY_COUNT, pa.int16()), column
        )


def _counts(pa: ModuleType, rows: int, deliveries: int) -> pyarrow.Array:
    return pa.Array.from_buffers(pa.int16(), rows, [None, pa.py_buffer(_INT16.pack(deliveries) * rows)])


def runs_of(table: Any) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, and first and last offset of neighbouring rows.

    Raises:
        ValueError: the table has no columns of these, or a row without a value there.
    """
    if missing := [name for name in _PLACE if name not in table.column_names]:
        raise ValueError(
            "a table to acknowledge has the columns topic, partition and offset; this one "
            f"lacks {', '.join(missing)}"
        )
    # Each fetch has made batches of its own, so most have one topic and one partition.
    for batch in table.to_batches() if hasattr(table, "to_batches") else (table,):
        topics, partitions, offsets = (batch.column(name) for name in _PLACE)
        if empty := [name for name in _PLACE if batch.column(name).null_count]:
            raise ValueError(f"a row to acknowledge has no {', '.join(empty)}")
        names, numbers = topics.unique(), partitions.unique()
        if len(names) == len(numbers) == 1:
            topic, partition = names[0].as_py(), numbers[0].as_py()
            for first, last in neighbours(_integers(offsets)):
                yield topic, partition, first, last
            continue
        rows = zip(topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), strict=True)
        for (topic, partition), alike in groupby(rows, itemgetter(0, 1)):
            for first, last in neighbours([offset for _, _, offset in alike]):
                yield topic, partition, first, last


def _integers(column: Any) -> list[int]:
    """As its to_pylist, which costs twenty times as much."""
    if str(column.type) != "int64":
        found: list[int] = column.to_pylist()
        return found
    view = memoryview(column.buffers()[1]).cast("B").cast("q")
    return view[column.offset : column.offset + len(column)].tolist()
