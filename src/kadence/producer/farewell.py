"""Lets producers that nobody closed still deliver their records.

Any thread may be the one that collects a producer, an event loop's or a network thread: it only asks the producer's own
thread to deliver and to end, and waits for nothing. Only the end of the interpreter waits, for all of them together: it
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

__all__ = ["abandoned", "deliver_if_abandoned"]

_FAREWELL_MS: Final = 5_000
"""How long what was sent may take to be acknowledged."""


class _Ending(Protocol):
    """The network thread of a producer, as far as it is needed here."""

    def begin_close(self, deadline: int) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


_running: weakref.WeakSet[_Ending] = weakref.WeakSet()
"""Every thread that may have to be asked at the end of the interpreter. One that runs keeps its entry."""


def deliver_if_abandoned(producer: object, kind: str, thread: _Ending) -> weakref.finalize[..., Any]:
    """See to it that what was sent is delivered when ``producer`` is collected, or the interpreter ends, unclosed.

    Args:
        kind: name of its class, for the warning.

    Returns:
        What close() has to detach.
    """
    _running.add(thread)
    finalizer = weakref.finalize(producer, abandoned, kind, thread, os.getpid())
    finalizer.atexit = False
    return finalizer


def abandoned(kind: str, thread: _Ending, pid: int) -> None:
    """A producer was collected unclosed: have its thread deliver what it was given. Waits for nothing. Any thread."""
    if not thread.is_alive() or os.getpid() != pid:
        return
    thread.begin_close(add_ms(SystemClock().now_ms(), _FAREWELL_MS))
    if not sys.is_finalizing():
        word = "async with" if kind.startswith("Async") else "with"
        warnings.warn(
            f"{kind} was not closed; use `{word} {kind}(...)` or close()", ResourceWarning, stacklevel=2
        )


@atexit.register
def _deliver_at_exit() -> None:
    clock = SystemClock()
    deadline = add_ms(clock.now_ms(), _FAREWELL_MS)
    # In a forked child the threads of the parent are not alive.
    running = [thread for thread in _running if thread.is_alive()]
    for thread in running:
        thread.begin_close(deadline)
    for thread in running:
        # Half a second more than the delivery may take: the thread still closes its sockets.
        thread.join(max(deadline + 500 - clock.now_ms(), 0) / 1000)
