"""Does many small things on an event loop without holding it: some of them in each of its turns."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.forked import free_lock

if TYPE_CHECKING:
    import asyncio

__all__ = ["AT_ONCE", "Slices", "slices_of"]

AT_ONCE: Final = 64
"""The number of actions in one turn. Each may wake a task or call a callback, for some microseconds at least."""


class Raised(Protocol):
    """Something that makes a descriptor readable once it has ended."""

    @property
    def is_waiting(self) -> bool:
        """True until then."""
        ...


class Slices:
    """Actions to run on one event loop, in the order in which they were added.

    Args:
        loop: the loop that runs them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly, for the loop is the key under which this is found.
        self._loop = weakref.ref(loop)
        self._queue: deque[tuple[Callable[[Any], object], Iterator[Any]]] = deque()
        self._is_due = False
        self._descriptor: int | None = None
        self._awaited: dict[Raised, Callable[[], object]] = {}

    def __del__(self) -> None:
        if self._descriptor is not None and self._descriptor >= 0:
            os.close(self._descriptor)

    def descriptor(self) -> int:
        """A descriptor (eventfd) that the loop watches, for `when_raised`; below 0: there is none. On the loop.

        It stays open as long as this object.
        """
        if self._descriptor is None:
            loop = self._loop()
            self._descriptor = -1
            if loop is not None and hasattr(os, "eventfd"):
                # Without a descriptor the network thread wakes the loop. That must not make a call fail.
                with suppress(OSError):
                    shown = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                    try:
                        loop.add_reader(shown, self._seen)
                    except (NotImplementedError, OSError):
                        os.close(shown)
                    else:
                        self._descriptor = shown
        return self._descriptor

    def when_raised(self, raised: Raised, act: Callable[[], object]) -> None:
        """Call ``act`` once this has ended, and has made the descriptor readable. On the loop."""
        self._awaited[raised] = act

    def _seen(self) -> None:
        try:
            os.read(self._descriptor or 0, 8)
        except BlockingIOError:
            pass
        for raised in [each for each in self._awaited if not each.is_waiting]:
            self._awaited.pop(raised)()

    def add(self, act: Callable[[Any], object], things: Iterable[Any]) -> None:
        """Call ``act`` with each of these, soon. Any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        # No lock: a signal handler that interrupts `_run` may wait for the thread that calls this.
        loop = self._loop()
        if loop is None or loop.is_closed():
            # Its remaining actions may refer to the client, which could then not be collected, and would never end.
            self.drop()
            raise RuntimeError("the event loop is closed")
        self._queue.append((act, iter(things)))
        if self._is_due:
            return
        self._is_due = True
        try:
            loop.call_soon_threadsafe(self._run)
        except RuntimeError:
            self.drop()
            raise

    def drop(self) -> None:
        """Drop all actions: the loop is closed. Any thread."""
        self._queue.clear()

    def _run(self) -> None:
        left = AT_ONCE
        try:
            while left and self._queue:
                act, things = self._queue[0]
                for thing in islice(things, left):
                    left -= 1
                    act(thing)
                if left:
                    self._queue.popleft()
        finally:
            # Also when a callback ended the loop: it may be run again. In this order: an action that is added from now
            # on either finds that nothing is due, or adds before the queue is looked at here. Both may happen, which
            # costs a turn for nothing.
            self._is_due = False
            loop = self._loop()
            if self._queue and loop is not None:
                self._is_due = True
                loop.call_soon(self._run)


_lock = free_lock()
_known: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Slices] = weakref.WeakKeyDictionary()


def slices_of(loop: asyncio.AbstractEventLoop) -> Slices:
    """The slices of a loop. Actions of all clients take turns on it."""
    closed: list[Slices] = []
    with _lock:
        found = _known.get(loop)
        if found is None:
            # Remaining actions of a closed loop refer to it.
            closed = [_known.pop(each) for each in [*_known] if each.is_closed()]
            _known[loop] = found = Slices(loop)
    for each in closed:
        # Without the lock: a dropped action may hold the last reference to an object of the program.
        each.drop()
    return found
