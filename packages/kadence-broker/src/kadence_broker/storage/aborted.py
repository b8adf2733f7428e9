"""Aborted transactions of one partition, for readers that want only what was committed (KIP-98)."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

__all__ = ["Aborted", "AbortedIndex"]


class Aborted(NamedTuple):
    """One aborted transaction.

    Attributes:
        first_offset: of its first record. last_offset: of its marker.
        last_stable_offset: the partition's when the marker had been appended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    """Ascending by `Aborted.last_offset`, which is the order of their markers."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[Aborted] = []

    def add(self, aborted: Aborted) -> None:
        self.entries.append(aborted)

    def between(self, offset: int, upto: int) -> list[Aborted]:
        """Those with records at ``offset`` or later, and below ``upto``."""
        found: list[Aborted] = []
        for each in self.entries[bisect_left(self.entries, offset, key=_last_offset) :]:
            if each.first_offset < upto:
                found.append(each)
            if each.last_stable_offset >= upto:
                # Everything below it was decided by then.
                break
        return found

    def truncate(self, end_offset: int) -> None:
        del self.entries[bisect_left(self.entries, end_offset, key=_last_offset) :]

    def delete_before(self, offset: int) -> None:
        """Forget those whose marker is below ``offset``."""
        del self.entries[: bisect_left(self.entries, offset, key=_last_offset)]


def _last_offset(aborted: Aborted) -> int:
    return aborted.last_offset
