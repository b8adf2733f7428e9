"""The engine of a client, which runs its turns; its end, and the errors of calls after that.

A client that was made before a fork of this process is the parent's, and every call in the child says so.

The records of unclosed clients are still delivered, and their groups are still left (B7). Any thread may be the
one that collects a client, an event loop's or a network thread: it only asks the network side to end, and waits for
nothing. Only the end of the process waits, for all clients together: it would cut them off. It ends them when the
program's own `atexit` handlers have run, which may still use them.

All open clients are registered here for `kadence.stopping`, which ends them when a signal comes. No client loads it.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from kadence.at_exit import after_handlers, among_handlers, be_called
from kadence.clock import Seconds, SystemClock, add_ms
from kadence.errors import BootstrapResolutionError, ClosedError, FatalNetworkError, ForkedError, KafkaError
from kadence.loaded import attribute_if_loaded
from kadence.logs import flush
from kadence.weak import all_of

__all__ = [
    "ENDING",
    "END_MS",
    "OPEN",
    "Ending",
    "Engine",
    "Stoppable",
    "Unclosed",
    "abandoned",
    "end_if_unclosed",
    "ended",
    "forked_error",
    "opened",
]


class Engine(Protocol):
    """Runs the turns of one network side: a `kadence.client.network_thread.NetworkThread`, or a simulation."""

    @property
    def has_thread(self) -> bool:
        """True if turns run while a call waits. In a simulation none does: the end of the process waits for none."""
        ...

    def start(self) -> None:
        """Let the first turn come."""
        ...

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end."""
        ...

    def is_alive(self) -> bool:
        """True while turns still run."""
        ...

    def runs_here(self) -> bool:
        """True on the thread of its turns, which cannot wait for their end."""
        ...


def ended(kind: str, cause: BaseException | None) -> KafkaError:
    """The error of a call once the network side has ended: because of ``close()``, of names, or of a bug (B6).

    Args:
        kind: of the client: consumer, producer, admin client.
    """
    if cause is None:
        return ClosedError(f"this {kind} is closed")
    if isinstance(cause, BootstrapResolutionError):
        return BootstrapResolutionError(str(cause))
    fatal = FatalNetworkError(
        f"the {kind}'s network thread ended with a bug: {cause!r}; only close() works now"
    )
    fatal.__cause__ = cause
    return fatal


def forked_error(kind: str) -> ForkedError:
    """The error of a call of a client of this kind in a child of the process that made it."""
    return ForkedError(f"this {kind} was made before fork(); make a new one in the child")


END_MS: Final = 500
"""The time that a network side needs at its end to fail the remaining calls, and to close its sockets."""


class Ending(Protocol):
    """Asks a network side to end. It refers to no client, which could otherwise never be collected."""

    @property
    def is_closing(self) -> bool:
        """True if it was asked to end."""
        ...

    def begin_close(self, deadline: int) -> None:
        """Have it end until ``deadline`` (ms). Any thread; waits for nothing."""
        ...

    def left_behind(self) -> None:
        """The end is no longer waited for: log it. Any thread."""
        ...

    def refuse(self, cause: BaseException | None) -> None:
        """As `kadence.client.network_thread.Callers`, where the process ends before the network side."""
        ...

    def dismiss(self) -> None:
        """The same."""
        ...


@runtime_checkable
class Delivering(Protocol):
    """An `Ending` that may have something to deliver."""

    def hurry(self) -> None:
        """The process is to end: from now on nothing waits to be sent. Any thread."""
        ...

    def delivers_within(self, seconds: float) -> bool:
        """Wait until what was given to it so far is acknowledged or has failed; False: the time was over before."""
        ...


class Unclosed(NamedTuple):
    """A client whose network side may have to be ended at the end of the process."""

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
        The finalizer, which close() has to detach.
    """
    unclosed = Unclosed(kind, ending, time_ms)
    _unclosed[engine] = unclosed
    be_called()
    _be_called_by_multiprocessing()
    finalizer = weakref.finalize(client, abandoned, unclosed, engine, os.getpid())
    finalizer.atexit = False
    return finalizer


def abandoned(unclosed: Unclosed, engine: Engine, pid: int) -> None:
    """A client was collected unclosed: have its network side do what is left. Waits for nothing. Any thread."""
    # In a child after fork() no network side runs.
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
    parent_process = attribute_if_loaded("multiprocessing.process", "parent_process")
    if parent_process is None or parent_process() is None or os.getpid() in _children:
        return
    from multiprocessing.util import Finalize

    # Finalizers of the program run first.
    Finalize(None, _end_at_exit, exitpriority=-sys.maxsize)
    _children.add(os.getpid())


def _alive() -> list[tuple[Engine, Unclosed]]:
    # Daemon threads of the program may still make clients.
    known = all_of(_unclosed.items)
    return [(engine, each) for engine, each in known if engine.has_thread and engine.is_alive()]


def _deliver_at_exit() -> None:
    """Let clients deliver their records. A client that cannot end here logs its losses."""
    clock = SystemClock()
    delivering = [
        (engine, each, each.ending) for engine, each in _alive() if isinstance(each.ending, Delivering)
    ]
    for _, _, ending in delivering:
        ending.hurry()
    began = clock.now_ms()
    late = [
        (engine, each)
        for engine, each, ending in delivering
        if not ending.delivers_within(max(add_ms(began, each.time_ms) - clock.now_ms(), 0) / 1000)
    ]
    _end(late, at_once=True)


def _end_at_exit() -> None:
    _end(_alive())


def _end(clients: Sequence[tuple[Engine, Unclosed]], *, at_once: bool = False) -> None:
    """End these clients, and wait for that. No call waits for what cannot end in time."""
    clock = SystemClock()
    deadlines = {}
    kinds = []
    for engine, each in clients:
        if not each.ending.is_closing:
            kinds.append(each.kind)
        deadlines[engine] = add_ms(clock.now_ms(), 0 if at_once else each.time_ms)
        each.ending.begin_close(deadlines[engine])
    for engine, each in clients:
        engine.join(max(deadlines[engine] + END_MS - clock.now_ms(), 0) / 1000)
        if engine.is_alive():
            _unclosed.pop(engine)
            each.ending.left_behind()
            each.ending.refuse(None)
            each.ending.dismiss()
    # Last: a filter may make errors of warnings.
    for kind in kinds:
        _warn(kind)
    # Processes of multiprocessing run nothing after this.
    flush()


among_handlers(_deliver_at_exit)
after_handlers(_end_at_exit)


@runtime_checkable
class Stoppable(Protocol):
    """A client that may have something to do when the program is to end.

    Attributes:
        _end_means: what `_end_unfinished` does, for the log.
    """

    _end_means: str

    def stop(self, *, grace: Seconds | None = None) -> None:
        """The program is to end, and everything to be closed within ``grace``. In a signal handler."""
        ...

    def _unfinished(self) -> str | None:
        """The work that is left before the application closes this, as a sentence; None if nothing. Any thread."""
        ...

    def _end_unfinished(self) -> None:
        """End without waiting for the application. Any thread."""
        ...


OPEN: Final[weakref.WeakSet[Stoppable]] = weakref.WeakSet()
"""Every consumer, producer and admin client of this process."""

ENDING: Final[list[Callable[[Stoppable], None]]] = []
"""Called by those that got a signal and act for all clients."""


def opened(client: Stoppable) -> None:
    """A client was made. A signal that came just before is for it, too."""
    OPEN.add(client)
    for stop in tuple(ENDING):
        stop(client)
