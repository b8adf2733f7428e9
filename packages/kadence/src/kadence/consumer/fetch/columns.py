"""Rows as columns from the readers of partitions, for `poll_arrow`. Application side; loaded with the first of them."""

from __future__ import annotations

from collections.abc import Collection

from kadence.consumer.fetch._partition_reader import PartitionReader
from kadence.consumer.fetch._steps import ReaderState
from kadence.records import Columns, FetchedRecords

__all__ = ["ColumnsTaker", "rows"]


class ColumnsTaker:
    """Takes columns from readers until keys and values fill ``room`` bytes, or nearly so.

    Each partition's rows are a chunk of the table with columns of their own, and a chunk costs as much as a thousand
    rows or more. So no partition is begun for the last quarter of the room: by default a fetch holds about as many
    bytes as a table, and each table would end with the beginning of a fetch, whose rest the next table must read.
    """

    def __init__(self, touched: list[ReaderState], *, columns: Collection[str], room: int | None) -> None:
        self._touched = touched
        self._wanted = columns
        self._room = room
        self._least = 0 if room is None else room // 4

    def give(self, reader: PartitionReader, limit: int) -> list[Columns]:
        """The next rows of one partition."""
        if self._room is not None and self._room <= self._least:
            return []
        columns = reader.give_columns(self._touched, limit, self._take)
        if self._room is not None:
            self._room -= sum(part.payload for part in columns)
        return columns

    def _take(self, fetched: FetchedRecords, limit: int, unpacks: bool) -> list[Columns]:
        return fetched.take_columns(limit, columns=self._wanted, max_bytes=self._room, unpacks=unpacks)


def rows(columns: list[Columns]) -> int:
    """The number of rows."""
    return sum(len(part) for part in columns)
