"""Lets producers that nobody closed still deliver their records.

Any thread may be the one that collects a producer, an event loop's or a network thread: it only asks the producer's own
thread to deliver and to end, and waits for nothing. Only the end of the process waits, for all of them together: it
would cut them off.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from typing import Any, Final, Protocol

from kadence.clock import SystemClock, add_ms
from kadence.producer.thread import END_MS

__all__ = ["abandoned", "deliver_if_abandoned"]

_FAREWELL_MS: Final = 5_000
"""How long what was sent may take to be acknowledged."""


class _Ending(Protocol):
    """The network thread of a producer, as far as it is needed here."""

    @property
    def is_closing(self) -> bool: ...

    def begin_close(self, deadline: int) -> None: ...

    def join(self, seconds: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...

    def left_behind(self) -> None: ...


_running: weakref.WeakKeyDictionary[_Ending, str] = weakref.WeakKeyDictionary()
"""Every thread that may have to be asked at the end of the process, and its producer's class. One that runs stays."""

_children: Final[set[int]] = set()
"""This process, if it is one of multiprocessing, and calls us at its end."""


def deliver_if_abandoned(producer: object, kind: str, thread: _Ending) -> weakref.finalize[..., Any]:
    """See to it that what was sent is delivered when ``producer`` is collected, or the process ends, unclosed.

    Args:
        kind: name of its class, for the warning.

    Returns:
        What close() has to detach.
    """
    _running[thread] = kind
    _be_called_by_multiprocessing()
    finalizer = weakref.finalize(producer, abandoned, kind, thread, os.getpid())
    finalizer.atexit = False
    return finalizer


def abandoned(kind: str, thread: _Ending, pid: int) -> None:
    """A producer was collected unclosed: have its thread deliver what it was given. Waits for nothing. Any thread."""
    if not thread.is_alive() or os.getpid() != pid:
        return
    thread.begin_close(add_ms(SystemClock().now_ms(), _FAREWELL_MS))
    if not sys.is_finalizing():
        _warn(kind)


def _warn(kind: str) -> None:
    word = "async with" if kind.startswith("Async") else "with"
    warnings.warn(
        f"{kind} was not closed; use `{word} {kind}(...)` or close()", ResourceWarning, stacklevel=3
    )


def _be_called_by_multiprocessing() -> None:
    """Its processes end without what `atexit` has, and call finalizers of their own instead."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or os.getpid() in _children:
        return
    from multiprocessing.util import Finalize

    Finalize(None, _deliver_at_exit, exitpriority=0)
    _children.add(os.getpid())


# That of logging, which was imported before, comes after ours: what is lost can be logged.
@atexit.register
def _deliver_at_exit() -> None:
    clock = SystemClock()
    deadline = add_ms(clock.now_ms(), _FAREWELL_MS)
    # In a forked child the threads of the parent are not alive.
    running = [(thread, kind) for thread, kind in _running.items() if thread.is_alive()]
    for thread, kind in running:
        if not thread.is_closing:
            _warn(kind)
        thread.begin_close(deadline)
    for thread, _ in running:
        thread.join(max(deadline + END_MS - clock.now_ms(), 0) / 1000)
        if thread.is_alive():
            thread.left_behind()
