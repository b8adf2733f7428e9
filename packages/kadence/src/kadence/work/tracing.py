"""The interface between `process` and its tracing (`kadence.otel`). Not called without tracing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kadence.work.scheduler import Task

__all__ = ["Tracing"]


class Tracing(Protocol):
    """Called by workers, each on its own thread or in its own task, unless a method says otherwise."""

    def attempt(self, tasks: Sequence[Task]) -> AbstractContextManager[None]:
        """Entered around the handler of these records, the sending of outputs, and the handling of a failure."""
        ...

    def failed(self, error: BaseException) -> None:
        """The attempt that this worker has entered has failed."""
        ...

    def carried(self) -> AbstractContextManager[None]:
        """The present context, for the worker process that runs the handler: it is pickled, and entered there."""
        ...

    def follow(self, producer: Any) -> None:
        """This producer sends outputs, retry records and dead letter records. Any thread."""
        ...

    def end(self, running: Collection[Task]) -> None:
        """`process` ends without waiting for these. Called on the thread, or in the task, that called `process`."""
        ...
