"""Makes calls that may block, and calls that are due later: on threads, or as a simulation does it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol

__all__ = ["Aside", "ThreadsAside"]


class Aside(Protocol):
    """Makes calls for code on an event loop, which they must not block."""

    async def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Make a call that may block, and wait for its end. What it raises is raised here."""
        ...

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Make a call when so much time has passed. Any thread; it keeps no program from ending."""
        ...


class ThreadsAside:
    """Calls are made on threads: those of the event loop's pool, and one for each call that is due later.

    They have the context of whoever asked: what they send belongs to the same trace.
    """

    async def call(self, function: Callable[..., object], *arguments: Any) -> None:
        # Who has only threads need not load it.
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, copy_context().run, function, *arguments)

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, copy_context().run, [function])
        timer.daemon = True
        timer.start()
