"""Records of a queue as Arrow tables, with a delivery count, and acknowledging by a table. Application side.

A queue's records are acquired one by one, so a table is made of records, not of the fetched bytes as a consumer's is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kadence.consumer.application.arguments import columns_of
from kadence.records import Record, arrow

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DELIVERY_COUNT", "column_names", "offsets_of", "table_of"]

DELIVERY_COUNT: Final = "deliveryCount"

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


def table_of(records: Sequence[Record[Any, Any]], names: tuple[str, ...]) -> pyarrow.Table:
    """A row for each of these, which are in bytes.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    own = tuple(name for name in names if name != DELIVERY_COUNT)
    table = arrow.of_records(records, own)
    if DELIVERY_COUNT in names:
        import pyarrow as pa

        counts = pa.array([record.delivery_count for record in records], pa.int16())
        table = table.add_column(names.index(DELIVERY_COUNT), pa.field(DELIVERY_COUNT, pa.int16()), counts)
    return table


def offsets_of(table: Any) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of each row.

    Raises:
        ValueError: the table has no columns of these.
    """
    if missing := [name for name in _PLACE if name not in table.column_names]:
        raise ValueError(
            "a table to acknowledge has the columns topic, partition and offset; this one "
            f"lacks {', '.join(missing)}"
        )
    return zip(*(table.column(name).to_pylist() for name in _PLACE), strict=True)
