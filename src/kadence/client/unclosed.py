"""Clients that nobody closed: what they were given is still delivered, and groups are still left (B7).

Any thread may be the one that collects a client, an event loop's or a network thread: it only asks the network side to
end, and waits for nothing. Only the end of the process waits, for all clients together: it would cut them off.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
import weakref
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from kadence.client.engine import Engine
from kadence.clock import SystemClock, add_ms

__all__ = ["END_MS", "Ending", "Unclosed", "abandoned", "end_if_unclosed"]

END_MS: Final = 500
"""What a network side needs at the end of its time to fail what is left, and to close its sockets."""


class Ending(Protocol):
    """What tells a network side to end. It refers to no client: what would be collected would never be."""

    @property
    def is_closing(self) -> bool:
        """Whether it was told."""
        ...

    def begin_close(self, deadline: int) -> None:
        """Have it end until ``deadline`` (ms). Any thread; waits for nothing."""
        ...

    def left_behind(self) -> None:
        """Whoever waited for the end waits no longer. Any thread."""
        ...


class Unclosed(NamedTuple):
    """A client whose network side may have to be told at the end of the process."""

    kind: str
    ending: Ending
    time_ms: int


_unclosed: weakref.WeakKeyDictionary[Engine, Unclosed] = weakref.WeakKeyDictionary()
"""Of all clients. An engine that runs stays."""

_children: Final[set[int]] = set()
"""This process, if it is one of multiprocessing, and calls us at its end."""


def end_if_unclosed(
    client: object, kind: str, ending: Ending, engine: Engine, time_ms: int
) -> weakref.finalize[..., Any]:
    """See to it that ``client``'s network side ends when the client is collected, or the process ends, unclosed.

    Args:
        kind: name of its class, for the warning. time_ms: how long the end may take.

    Returns:
        What close() has to detach.
    """
    unclosed = Unclosed(kind, ending, time_ms)
    _unclosed[engine] = unclosed
    _be_called_at_exit()
    _be_called_by_multiprocessing()
    finalizer = weakref.finalize(client, abandoned, unclosed, engine, os.getpid())
    finalizer.atexit = False
    return finalizer


def abandoned(unclosed: Unclosed, engine: Engine, pid: int) -> None:
    """A client was collected unclosed: have its network side do what is left. Waits for nothing. Any thread."""
    # In a child after fork() there is nobody to ask.
    if not engine.is_alive() or os.getpid() != pid:
        return
    unclosed.ending.begin_close(add_ms(SystemClock().now_ms(), unclosed.time_ms))
    if not sys.is_finalizing():
        _warn(unclosed.kind)


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

    Finalize(None, _end_at_exit, exitpriority=0)
    _children.add(os.getpid())


@cache
def _be_called_at_exit() -> None:
    # That of logging, which every client imports, comes after ours: what is lost can be logged.
    atexit.register(_end_at_exit)


def _end_at_exit() -> None:
    clock = SystemClock()
    unclosed = [(engine, each) for engine, each in _unclosed.items() if engine.is_alive()]
    deadlines = {}
    for engine, each in unclosed:
        if not each.ending.is_closing:
            _warn(each.kind)
        deadlines[engine] = add_ms(clock.now_ms(), each.time_ms)
        each.ending.begin_close(deadlines[engine])
    for engine, each in unclosed:
        engine.join(max(deadlines[engine] + END_MS - clock.now_ms(), 0) / 1000)
        if engine.is_alive():
            each.ending.left_behind()
