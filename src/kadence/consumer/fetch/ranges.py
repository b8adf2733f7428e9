"""The end of the range for which a partition is read (C11), and which of the fetched records lie before it.

Before the end there are at most as many records as offsets, so this many records are decoded. Where some offsets
have no record (compaction, aborted transactions, control records), the last of these records lie beyond the end and
are cut off again.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from kadence.records import Columns, Record

__all__ = ["columns", "limit", "position", "records"]

_offset: Final = attrgetter("offset")


def limit(count: int, offset: int, end: int | None) -> int:
    """How many of ``count`` records from an offset on can lie before the end (None: there is none)."""
    return count if end is None else min(count, end - offset)


def position(offset: int, end: int | None) -> int:
    """Where a partition stands of which all below ``offset`` was read. It never stands beyond its end."""
    return offset if end is None else min(offset, end)


def records(items: list[Record], end: int | None) -> list[Record]:
    """Those before the end."""
    if end is None or not items or items[-1].offset < end:
        return items
    return items[: bisect_left(items, end, key=_offset)]


def columns(parts: list[Columns], end: int | None) -> list[Columns]:
    """Their rows before the end."""
    return parts if end is None else [part for each in parts if len(part := each.before(end))]
