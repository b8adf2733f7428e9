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
        self.attempt = max(task.attempts for task in tasks) + 1

    @property
    def lost(self) -> bool:
        """Whether a partition of these records went to another member: whatever this handler does now is done again.

        A handler that works for long may look at it, and stop.
        """
        return any(task.is_lost for task in self._tasks)

    @property
    def timed_out(self) -> bool:
        """Whether this attempt has taken longer than ``timeout``."""
        return any(task.timed_out for task in self._tasks)

    def __repr__(self) -> str:
        return f"<Context attempt={self.attempt} lost={self.lost} timed_out={self.timed_out}>"
