"""Handlers in processes: each worker thread has a child process of its own, which runs the handler (H2).

Records are sent to it as one pickle, and so are the handler's outputs returned. If a child dies, or takes longer than
``timeout``, its record has failed an attempt, and the next record gets a new child. So a record that kills its children
goes to the dead letter topic. A child that does not start ends the processing, because no record is at fault. A child
learns through a flag in shared memory that a partition is revoked or lost; only handlers that read it pay for that.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kadence.errors import HandlerTimeoutError, WorkerDiedError, WorkerStartError
from kadence.work.child import Child, imported_by, refuse_to_begin_in_a_child
from kadence.work.scheduler import Task
from kadence.work.settings import Settings
from kadence.work.tracing import Tracing
from kadence.work.workers import Call, Decode, given_to

__all__ = ["Children"]


class Children:
    """The child processes of one call of `process`.

    Args:
        new_decode: makes the function that deserialises records, in the worker's thread.
        start_ms: how long an import at the start of a child may take, if ``timeout`` is not longer.

    Raises:
        TypeError: the handler cannot be pickled. WorkerStartError, SystemExit: this process is a child itself.
    """

    def __init__(
        self,
        settings: Settings,
        new_decode: Callable[[], Decode | None],
        start_ms: int,
        tracing: Tracing | None = None,
    ) -> None:
        refuse_to_begin_in_a_child()
        try:
            self._handler = pickle.dumps(
                (settings.handler, settings.takes_context, settings.batch is not None)
            )
        except Exception as error:
            raise TypeError(
                f"a handler in processes must be a function of a module, which a child can import: {error}"
            ) from error
        self._imported = imported_by(settings.handler)
        self._settings = settings
        self._new_decode = new_decode
        self._start_ms = max(start_ms, settings.timeout_ms or 0)
        self._tracing = tracing
        self._lock = threading.Lock()
        self._children: set[Child] = set()
        self._is_ended = False
        self._first = threading.Lock()
        self._has_started = False
        self._failure: WorkerStartError | None = None

    def new_call(self) -> Call:
        """Start a child for one worker thread, and return the function that runs the handler in it.

        Raises:
            WorkerStartError: the child did not start.
        """
        decode = self._new_decode()
        child: Child | None = self._new_child()

        def call(tasks: Sequence[Task]) -> Any:
            nonlocal child
            records = given_to(self._settings, tasks, decode)
            if child is None:
                child = self._new_child()
            with self._lock:
                child.begins(tasks)
            try:
                return child.ask(
                    records,
                    max(task.attempts for task in tasks) + 1,
                    None if self._tracing is None else self._tracing.carried(),
                    self._settings.timeout_ms,
                )
            except (HandlerTimeoutError, WorkerDiedError):
                self._forget(child)
                child = None
                raise

        return call

    def tell_lost(self) -> None:
        """Set the flags of children that handle records of revoked or lost partitions. Does not block."""
        with self._lock:
            for child in self._children:
                child.tell_lost()

    def _new_child(self) -> Child:
        """A child that has imported the handler. Others wait for the first one: if it fails to start, all would."""
        if self._has_started:
            return self._start()
        with self._first:
            child = self._start()
            self._has_started = True
            return child

    def _start(self) -> Child:
        if self._failure is not None:
            # A new exception for each thread: its traceback is the thread's own.
            raise WorkerStartError(str(self._failure))
        child: Child | None = None
        try:
            child = Child(self._handler)
            with self._lock:
                self._children.add(child)
                is_ended = self._is_ended
            if is_ended:
                child.kill()
            child.wait_for_start(self._imported, self._start_ms)
        except WorkerStartError as error:
            self._failure = error
            if child is not None:
                self._forget(child)
            raise
        return child

    def _forget(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        child.end()

    def end(self) -> None:
        """End all children, at once."""
        with self._lock:
            self._is_ended = True
            children, self._children = self._children, set()
        for child in children:
            child.kill()
