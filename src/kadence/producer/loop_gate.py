"""The lock of a producer whose calls wait on an event loop: what notifies threads wakes the loop's tasks, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["LoopGate"]


class LoopGate(threading.Condition):
    """A condition that tasks can wait for, beside threads.

    Args:
        loop: whose tasks wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(threading.Lock())
        self.loop = loop
        self._waiting: dict[asyncio.Event, None] = {}
        self._is_waking = False

    def watch(self, changed: asyncio.Event) -> None:
        """Have ``changed`` set by each change from now on. On the loop, with the lock held, so that none is missed."""
        self._waiting[changed] = None

    def forget(self, changed: asyncio.Event) -> None:
        """Nobody waits for it any more. On the loop."""
        self._waiting.pop(changed, None)

    def notify_all(self) -> None:
        """Something has changed. Any thread that holds the lock."""
        super().notify_all()
        if self._waiting and not self._is_waking:
            self._is_waking = True
            self.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        for changed in self._waiting:
            changed.set()

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Make a call on the loop. Any thread."""
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            # The loop was closed before the producer: nobody waits on it any more.
            self._waiting.clear()

    def runs_here(self) -> bool:
        """Whether this thread runs the loop, which nothing may block."""
        from asyncio import get_running_loop

        try:
            return get_running_loop() is self.loop
        except RuntimeError:
            return False
