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
from typing import Any, Final

from kadence.client.engine import Engine
from kadence.clock import SystemClock, add_ms
from kadence.producer.network_state import END_MS, NetworkState

__all__ = ["abandoned", "deliver_if_abandoned"]

_FAREWELL_MS: Final = 5_000
"""How long what was sent may take to be acknowledged."""


_running: weakref.WeakKeyDictionary[Engine, tuple[str, NetworkState]] = weakref.WeakKeyDictionary()
"""Every thread that may have to be asked at the end of the process, and its producer's class. One that runs stays."""

_children: Final[set[int]] = set()
"""This process, if it is one of multiprocessing, and calls us at its end."""


def deliver_if_abandoned(
    producer: object, kind: str, network: NetworkState, engine: Engine
) -> weakref.finalize[..., Any]:
    """See to it that what was sent is delivered when ``producer`` is collected, or the process ends, unclosed.

    Args:
        kind: name of its class, for the warning.

    Returns:
        What close() has to detach.
    """
    _running[engine] = kind, network
    _be_called_by_multiprocessing()
    finalizer = weakref.finalize(producer, abandoned, kind, network, engine, os.getpid())
    finalizer.atexit = False
    return finalizer


def abandoned(kind: str, network: NetworkState, engine: Engine, pid: int) -> None:
    """A producer was collected unclosed: have its thread deliver what it was given. Waits for nothing. Any thread."""
    if not engine.is_alive() or os.getpid() != pid:
        return
    network.begin_close(add_ms(SystemClock().now_ms(), _FAREWELL_MS))
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
    running = [(engine, *what) for engine, what in _running.items() if engine.is_alive()]
    for _, kind, network in running:
        if not network.is_closing:
            _warn(kind)
        network.begin_close(deadline)
    for engine, _, network in running:
        engine.join(max(deadline + END_MS - clock.now_ms(), 0) / 1000)
        if engine.is_alive():
            network.left_behind()
