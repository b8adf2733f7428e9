"""The batches of a share-partition in the order of their offsets, as a sorted map from first offset to batch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from kadence_broker.share.delivery import InFlightBatch

__all__ = ["InFlight"]


class InFlight:
    """Batches by their first offsets. They do not overlap."""

    __slots__ = ("_batches", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def first(self) -> InFlightBatch:
        return self._batches[0]

    @property
    def last(self) -> InFlightBatch:
        return self._batches[-1]

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or below ``offset``; it may end below it."""
        at = bisect_right(self._firsts, offset)
        return self._batches[at - 1] if at else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that begin from ``first`` to ``last``."""
        return self._batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def next_first(self, offset: int) -> int:
        """Where the first batch begins that begins above ``offset``; there is one."""
        return self._firsts[bisect_right(self._firsts, offset)]

    def add(self, batch: InFlightBatch) -> None:
        """Take a batch in, in the place of one that begins where it does."""
        at = bisect_left(self._firsts, batch.first)
        if at < len(self._firsts) and self._firsts[at] == batch.first:
            self._batches[at] = batch
        else:
            self._firsts.insert(at, batch.first)
            self._batches.insert(at, batch)

    def forget_before(self, offset: int) -> None:
        """Let the batches go that begin below ``offset``."""
        at = bisect_left(self._firsts, offset)
        del self._firsts[:at]
        del self._batches[:at]
