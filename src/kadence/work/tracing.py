"""What `process` tells whoever traces it (`kadence.otel`). Without one nothing here is called."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kadence.work.scheduler import Task

__all__ = ["Tracing"]


class Tracing(Protocol):
    """Told by workers, each on its own thread or in its own task, unless a method says otherwise."""

    def attempt(self, tasks: Sequence[Task]) -> AbstractContextManager[None]:
        """Entered around the handler of these records, and around what is sent for them or made of their failure."""
        ...

    def failed(self, error: BaseException) -> None:
        """The attempt that is entered here has failed."""
        ...

    def carried(self) -> AbstractContextManager[None]:
        """The present context, for the worker process that runs the handler: it is pickled, and entered there."""
        ...

    def follow(self, producer: Any) -> None:
        """This producer sends outputs, retry records and dead letters. Any thread."""
        ...

    def end(self, running: Collection[Task]) -> None:
        """`process` ends, and does not wait for these any longer. The thread or task that called it."""
        ...
