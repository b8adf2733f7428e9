"""Threads of ours, and what is done in their place because it may wait: their lines of the log are given to handlers.

Whoever waits for such a thread may hold what the handler waits for. `logs` uses this; nothing else needs to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from kadence.forked import ThisProcess

__all__ = ["AT_EXIT_S", "OrderedCalls", "OwnThread", "is_own_thread"]

AT_EXIT_S: Final = 1.0
"""How long the end of the process waits for handlers."""

_MOST: Final = 10_000
"""So many lines wait for handlers at most; those that come then are left out, and counted."""


class OwnThread(threading.Thread):
    """A daemon thread of ours that others may wait for: it waits for no handler of its lines."""

    def __init__(self, target: Callable[..., object], name: str, args: Iterable[Any] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)


def is_own_thread() -> bool:
    """Whether the caller runs on a thread of ours."""
    return isinstance(threading.current_thread(), OwnThread)


class OrderedCalls:
    """Makes calls in their order, on a thread that ends when there are none left. The end of the process waits for it.

    Args:
        left_out: called in place of those that were too many, with their number.
    """

    def __init__(self, left_out: Callable[[int], None]) -> None:
        self._tell_left_out = left_out
        self._forget()
        atexit.register(self.flush, AT_EXIT_S)
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew, as in a forked child: its parent makes the calls that wait."""
        # Reentrant, for a finalizer may log within any step of the thread that holds it.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[Callable[[], None]] = deque()
        self._left_out = 0
        self._is_running = False

    def put(self, call: Callable[[], None]) -> None:
        """Have this made. It waits for no call."""
        with self._changed:
            if len(self._waiting) >= _MOST:
                self._left_out += 1
            else:
                self._waiting.append(call)
        self._run_waiting()

    def flush(self, seconds: float | None) -> bool:
        """Wait until no call is left; False: the time was over before."""
        self._run_waiting()
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_running, seconds) and not self._waiting

    def _run_waiting(self) -> None:
        with self._changed:
            if self._is_running or not self._waiting:
                return
            self._is_running = True
        self._start()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name="kadence-log", daemon=True).start()
        except RuntimeError:
            if threading.main_thread().is_alive():
                # The system has none just now. The caller may be one that waits for nobody: the calls wait.
                with self._changed:
                    self._is_running = False
                    self._changed.notify_all()
                return
            # The interpreter ends, and has no more threads. What a handler raises ends none of those that it has.
            with contextlib.suppress(BaseException):
                self._run()

    def _run(self) -> None:
        here = ThisProcess()
        try:
            while (call := self._next()) is not None:
                here.call(call)
        except BaseException:
            # What a handler has raised ends the thread, and the lines that follow have another one.
            self._start()
            raise

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            if count := self._left_out:
                self._left_out = 0
                return lambda: self._tell_left_out(count)
            self._is_running = False
            self._changed.notify_all()
            return None
