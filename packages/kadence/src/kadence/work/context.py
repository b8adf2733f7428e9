"""The context of an attempt, for handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kadence.records import Record
from kadence.work.scheduler import Task

__all__ = ["Context", "deliveries_of"]


def deliveries_of(records: Sequence[Record[Any, Any]]) -> int | None:
    """The most that a queue has delivered any of these; None: they come from none."""
    return max((record.delivery_count or 0 for record in records), default=0) or None


class Context:
    """The second argument of a handler that takes two: ``handle(record, context)``.

    Attributes:
        attempt: 1 for the first attempt, 2 for the second one; in a batch, the highest.
    """

    __slots__ = ("_tasks", "attempt")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        for task in tasks:
            task.told_lost = False
        self.attempt = max(task.attempts for task in tasks) + 1

    @property
    def lost(self) -> bool:
        """Whether a partition of these records is revoked or lost, or is being revoked; of a queue, their locks.

        A long-running handler may read it, and stop by a return or an exception. Once a handler has read True, its
        records are not committed, no more of its outputs are sent, and its records are delivered again. In a batch,
        this member handles the records of other partitions again; that does not count as another attempt.
        """
        lost = self._is_lost()
        if lost:
            for task in self._tasks:
                task.told_lost = True
        return lost

    def _is_lost(self) -> bool:
        return any(task.is_lost for task in self._tasks)

    @property
    def delivery_count(self) -> int | None:
        """How often a queue has delivered the record, this time included; in a batch the most. None: it is no queue."""
        return deliveries_of([task.record for task in self._tasks])

    @property
    def timed_out(self) -> bool:
        """Whether this attempt has taken longer than ``timeout``."""
        return any(task.timed_out for task in self._tasks)

    def __repr__(self) -> str:
        return f"<Context attempt={self.attempt} lost={self._is_lost()} timed_out={self.timed_out}>"
