"""Columns in Arrow's layout as plain buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Numbers", "Strings"]


class Strings(NamedTuple):
    """A column of large_binary.

    Attributes:
        valid: one bit per row, 1 = not null; None if nothing is null. ends: int64. data: all the bytes.
        start: index of the first row in the buffers. rows: their number.
    """

    valid: Buffer | None
    ends: Buffer | None
    data: Buffer | None
    start: int
    rows: int


class Numbers(NamedTuple):
    """A column of numbers, or the ends of lists.

    Attributes:
        valid: as in `Strings`. data: the numbers. start: index of the first row in the buffers.
    """

    valid: Buffer | None
    data: Buffer | None
    start: int
