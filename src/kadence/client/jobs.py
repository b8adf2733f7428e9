"""The helper thread: it runs work that may block or take long, which never runs on the network thread.

Assignors (custom ones too) and token callbacks go here; name look-ups have their own in ``net``. The thread
starts with the first job and ends with the consumer; it is a daemon because a job may hang for ever.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kadence.client.request_manager import Jobs

__all__ = ["Done", "FinishedJobs", "JobRunner", "JobThread"]

Done = Callable[[int, object, Exception | None], None]
"""Told at what time (ms) the job's result, or what it raised, is handed over."""


class JobRunner(Jobs, Protocol):
    """Where what may block is done, as the loop sees it."""

    def deliver(self, now: int) -> bool:
        """Hand over what has ended; whether there was anything. Network thread."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class FinishedJobs:
    """What jobs have led to, on its way from where they ran to the network thread.

    Args:
        wake: called after each job: there is something to deliver. It runs where the job did.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._finished: deque[tuple[Done, object, Exception | None]] = deque()

    def deliver(self, now: int) -> bool:
        """Hand over what has ended; whether there was anything. Network thread."""
        count = len(self._finished)
        for _ in range(count):
            done, result, error = self._finished.popleft()
            done(now, result, error)
        return count > 0

    def _do(self, work: Callable[[], object], done: Done) -> None:
        """Do one job, here and now."""
        result: object = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - it is the job's result
            error = raised
        except BaseException as raised:  # noqa: BLE001 - sys.exit() in a job ends the job, not all that come after
            error = RuntimeError(repr(raised))
            error.__cause__ = raised
        self._finished.append((done, result, error))
        self._wake()


class JobThread(FinishedJobs):
    """Runs jobs one after the other."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._name = name
        self._todo: queue.SimpleQueue[tuple[Callable[[], object], Done] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], object], done: Done) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._todo.put((work, done))

    def close(self) -> None:
        self._todo.put(None)

    def _run(self) -> None:
        while (job := self._todo.get()) is not None:
            self._do(*job)
