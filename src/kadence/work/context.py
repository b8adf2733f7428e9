"""What a handler may ask about the attempt that it is."""

from __future__ import annotations

from collections.abc import Sequence

from kadence.work.scheduler import Task

__all__ = ["Context"]


class Context:
    """The second argument of a handler that takes two: ``handle(record, context)``.

    Attributes:
        attempt: 1 for the first attempt, 2 for the second one.
    """

    __slots__ = ("_tasks", "attempt")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        for task in tasks:
            task.told_lost = False
        self.attempt = max(task.attempts for task in tasks) + 1

    @property
    def lost(self) -> bool:
        """Whether a partition of these records is going, or went, to another member.

        A handler that works for long may look at it, and stop, by a return or by an exception. From the look on that
        found it true, whatever the handler does is done again: the records are not committed, and what it returns is
        not sent. Of a batch, the records of other partitions are handled again here, which is no further attempt.
        """
        lost = self._is_lost()
        if lost:
            for task in self._tasks:
                task.told_lost = True
        return lost

    def _is_lost(self) -> bool:
        return any(task.is_lost for task in self._tasks)

    @property
    def timed_out(self) -> bool:
        """Whether this attempt has taken longer than ``timeout``."""
        return any(task.timed_out for task in self._tasks)

    def __repr__(self) -> str:
        return f"<Context attempt={self.attempt} lost={self._is_lost()} timed_out={self.timed_out}>"
