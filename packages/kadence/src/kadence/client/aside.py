"""Makes calls that may block, and calls that are due later: on threads, or as a simulation does it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import Any, Protocol

from kadence.forked import ThisProcess

__all__ = ["Aside", "Caller", "Calls", "ThreadsAside"]

Calls = Generator[Callable[[], Any], Any, None]
"""Yields calls that may block, one after the other. It gets what each returned, or what it raised (`Exception`)."""


class Caller(Protocol):
    """Makes the calls of one piece of code in their order."""

    def carry(self, calls: Calls) -> None:
        """Make these calls when those before them have been made. It waits for nothing."""
        ...

    def end(self) -> None:
        """No more calls are carried after those that were given."""
        ...


class Aside(Protocol):
    """Makes calls for code on an event loop, which they must not block."""

    async def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Make a call that may block, and wait for its end. Raises what the call raises."""
        ...

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        """Make a call when so much time has passed. Any thread; it keeps no program from ending."""
        ...

    def caller(self, name: str) -> Caller:
        """Make a `Caller`, whose thread, if it has one, has this name."""
        ...


class ThreadsAside:
    """Calls are made on threads: those of the event loop's pool, and one for each call that is due later.

    They have the context of their caller: records that they send belong to the same trace.
    """

    async def call(self, function: Callable[..., object], *arguments: Any) -> None:
        # A program without an event loop need not load it.
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, copy_context().run, function, *arguments)

    def later(self, seconds: float, function: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, copy_context().run, [function])
        timer.daemon = True
        timer.start()

    def caller(self, name: str) -> Caller:
        return _ThreadCaller(name)


class _ThreadCaller:
    """Makes calls on a thread of its own, which begins with the first of them."""

    def __init__(self, name: str) -> None:
        self._todo: queue.SimpleQueue[Calls | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def carry(self, calls: Calls) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._todo.put(calls)

    def end(self) -> None:
        self._todo.put(None)

    def _run(self) -> None:
        # Serialisers, partitioners and interceptors run in these calls.
        here = ThisProcess()
        while (calls := self._todo.get()) is not None:
            _make(calls, here)


def _make(calls: Calls, here: ThisProcess) -> None:
    try:
        call = next(calls)
        while True:
            try:
                with here:
                    result = call()
            except Exception as error:  # noqa: BLE001 - the generator handles it
                call = calls.throw(error)
            else:
                call = calls.send(result)
    except StopIteration:
        return
