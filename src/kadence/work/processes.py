"""Handlers in processes: each worker thread has a child of its own, which runs the handler for it (H2).

A record crosses as one pickle, and so does what the handler returned. A child that dies, or takes longer than
``timeout``, costs its record an attempt, and the next record gets a new child. So a record that
kills children becomes a dead letter. A child that does not start is not the record's fault: it ends the processing.
That a record's partition is gone is told through a flag in shared memory, which costs nobody anything who does not look
at it.
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
    """Makes calls that run in child processes, and ends these.

    Args:
        new_decode: makes what deserialises a record, in the worker's thread.
        start_ms: how long an import at the start of a child may take, if ``timeout`` is not longer.

    Raises:
        TypeError: the handler cannot be pickled. WorkerStartError, SystemExit: this is a child itself.
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
        """The call of one worker thread, whose child has started.

        Raises:
            WorkerStartError: it could not.
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
        """Tell the children whose records' partitions are gone. It waits for nothing."""
        with self._lock:
            for child in self._children:
                child.tell_lost()

    def _new_child(self) -> Child:
        """A child that has imported the handler. The others wait for the first one: if it cannot start, none can."""
        if self._has_started:
            return self._start()
        with self._first:
            child = self._start()
            self._has_started = True
            return child

    def _start(self) -> Child:
        if self._failure is not None:
            # A new one: several threads come here, and a traceback belongs to one of them.
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
