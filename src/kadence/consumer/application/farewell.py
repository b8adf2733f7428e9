"""Consumers that nobody closed leave their group all the same (B7). Application side.

A collected consumer only sends its network thread a `Close`: that thread says goodbye to the group by itself. Any
thread may be the one that collects it, an event loop's or another consumer's network thread, so nothing is waited for.
Only the end of the interpreter waits, for all goodbyes together: it would cut them off.
"""

from __future__ import annotations

import atexit
import sys
import warnings
import weakref
from typing import Any, Final

from kadence.client.engine import Engine
from kadence.clock import SystemClock, add_ms
from kadence.consumer.events import Close
from kadence.consumer.shared_state import SharedState

__all__ = ["FAREWELL_MS", "abandoned", "leave_if_abandoned"]

FAREWELL_MS: Final = 2_000
"""How long the network thread may take to leave the group for a consumer that nobody closed."""


_running: weakref.WeakKeyDictionary[Engine, SharedState] = weakref.WeakKeyDictionary()
"""Every network side that may have to be told at the end of the interpreter. A thread that runs keeps its entry."""


def leave_if_abandoned(
    consumer: object, kind: str, shared_state: SharedState, engine: Engine
) -> weakref.finalize[..., Any]:
    """See to it that ``consumer`` leaves when it is collected, or the interpreter ends, without close().

    Returns:
        What close() has to detach.
    """
    _running[engine] = shared_state
    finalizer = weakref.finalize(consumer, abandoned, kind, shared_state, engine)
    finalizer.atexit = False
    return finalizer


def abandoned(kind: str, shared_state: SharedState, engine: Engine) -> None:
    """A consumer was collected unclosed: let its network thread leave the group. Waits for nothing. Any thread."""
    if shared_state.ended or not engine.is_alive():
        # Closed in the end, or in a child after fork(), where there is nobody to ask.
        return
    shared_state.send(Close(0, add_ms(SystemClock().now_ms(), FAREWELL_MS), leave=None))
    if not sys.is_finalizing():
        word = "async with" if kind.startswith("Async") else "with"
        warnings.warn(
            f"{kind} was not closed; use `{word} {kind}(...)` or close()", ResourceWarning, stacklevel=2
        )


@atexit.register
def _leave_at_exit() -> None:
    clock = SystemClock()
    running = [(engine, shared_state) for engine, shared_state in _running.items() if engine.is_alive()]
    deadline = add_ms(clock.now_ms(), FAREWELL_MS)
    for _, shared_state in running:
        if not shared_state.ended:
            shared_state.send(Close(0, deadline, leave=None))
    for engine, _ in running:
        # Half a second more than the goodbye may take: the thread still closes its sockets.
        engine.join(max(deadline + 500 - clock.now_ms(), 0) / 1000)
