"""The lines of partitions, and the cells of progress for any line. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final

from kadence.types import TopicPartition
from kadence_cli.figures import count, duration, rate, sparkline
from kadence_cli.names import spelled
from kadence_cli.top.sampling import GroupHistory, PartitionHistory, Progress

__all__ = ["PartitionRow", "partition_rows", "progress_cells", "progress_mark", "progress_sort"]


_SOON_S: Final = 60.0
"""A shorter time to catch up is marked "ok" (seconds)."""


class PartitionRow:
    """The line of a partition.

    Its cells are made when they are drawn: a group may have 10,000 partitions, and a screen has room for 20.
    """

    __slots__ = ("_cells", "_known", "_owner", "key")

    folds: ClassVar[bool] = False
    spans: ClassVar[bool] = False

    def __init__(self, key: TopicPartition, owner: str, known: PartitionHistory) -> None:
        self.key = key
        self._owner = owner
        self._known = known
        self._cells: tuple[str, ...] | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """As of `rows.PARTITIONS`."""
        if self._cells is None:
            known = self._known
            self._cells = (
                spelled(self.key),
                self._owner or "-",
                count(known.committed.last),
                _end(known),
                *progress_cells(known.progress),
                count(known.above),
            )
        return self._cells

    @property
    def mark(self) -> str:
        """See `progress_mark`."""
        return progress_mark(self._known.progress)

    def value(self, column: int) -> Any:
        """The sort key of a column."""
        return _OF_PARTITION[column](self.key, self._owner, self._known)


_OF_PARTITION: Final[Sequence[Callable[[TopicPartition, str, PartitionHistory], Any]]] = (
    lambda key, owner, known: key,
    lambda key, owner, known: owner or None,
    lambda key, owner, known: known.committed.last,
    lambda key, owner, known: known.last_end,
    lambda key, owner, known: known.lag,
    lambda key, owner, known: _change(known.trend),
    lambda key, owner, known: known.progress.produced,
    lambda key, owner, known: known.progress.consumed,
    lambda key, owner, known: known.progress.catches_up_in,
    lambda key, owner, known: known.above,
)
"""The sort keys of the columns of `rows.PARTITIONS`, each made on demand."""


def partition_rows(history: GroupHistory, member: str | None = None) -> list[PartitionRow]:
    """The partitions of a group, or of one member."""
    rows = []
    for tp in history.partitions:
        owner = history.owner(tp)
        if member is not None and (owner is None or owner.member_id != member):
            continue
        name = "" if owner is None else owner.group_instance_id or owner.client_id or owner.member_id
        rows.append(PartitionRow(tp, name, history.partition(tp)))
    return rows


def progress_mark(progress: Progress) -> str:
    """The colour of a line: "bad" never catches up, "busy" not within a minute, "ok" soon; "" is unknown."""
    wait = progress.catches_up_in
    if progress.lag is None or wait is None:
        return ""
    return "bad" if wait == math.inf else "busy" if wait > _SOON_S else "ok"


def progress_cells(progress: Progress) -> tuple[str, ...]:
    """The five columns of progress: lag, trend, rates, time to catch up."""
    return (
        count(progress.lag),
        sparkline(progress.trend, 10),
        rate(progress.produced),
        rate(progress.consumed),
        duration(progress.catches_up_in),
    )


def progress_sort(progress: Progress) -> tuple[Any, ...]:
    """The sort keys of these columns."""
    return (
        progress.lag,
        _change(progress.trend),
        progress.produced,
        progress.consumed,
        progress.catches_up_in,
    )


def _end(known: PartitionHistory) -> str:
    """The end offset; that of an earlier sample is marked. A lag is not: it may have grown."""
    is_old = known.end.last is None and known.last_end is not None
    return f"{count(known.last_end)} old" if is_old else count(known.last_end)


def _change(trend: Iterable[int | None]) -> int | None:
    known = [value for value in trend if value is not None]
    return known[-1] - known[0] if known else None
