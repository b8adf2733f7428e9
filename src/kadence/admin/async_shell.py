"""Runs the admin client's calls for an event loop: one after the other, on a thread of the client's own; see shell.py.

It uses a thread because calls are few and each exchanges requests with several brokers. The thread starts with the
first call. When a task is cancelled, its call stops waiting at once, so that the next call can begin.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from kadence.admin.calls import Calls
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig
from kadence.errors import ClosedError, ConcurrentAccessError
from kadence.idioms import running_loop

__all__ = ["AsyncShell"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncShell:
    """Makes the admin client's calls for an event loop, on one thread of its own.

    It belongs to the event loop that runs when it is made.
    """

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._loop = running_loop("AsyncAdmin")
        self._calls = Calls(config, clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"kadence-{config.client_id}")
        self._given_up: set[threading.Event] = set()
        self._is_ending = False

    async def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], T],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``.

        Raises:
            ConcurrentAccessError: on another event loop than the client's own.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise ConcurrentAccessError("this admin client belongs to another event loop")
        self._calls.check_usable()
        if self._is_ending:
            raise ClosedError("this admin client is closed")
        calls, deadline, given_up = self._calls, self._calls.deadline(timeout), threading.Event()

        def make() -> T:
            with calls.until(given_up):
                return call(calls, deadline, *arguments, **options)

        self._given_up.add(given_up)
        try:
            return await self._loop.run_in_executor(self._thread, make)
        except asyncio.CancelledError:
            given_up.set()
            calls.wakeup()
            raise
        finally:
            self._given_up.discard(given_up)

    async def close(self) -> None:
        """Close the connections; calls of other tasks end with ClosedError. Any number of tasks may wait for it."""
        if not self._is_ending:
            self.drop()
        if not self._calls.is_closed:
            await asyncio.to_thread(self._thread.shutdown)

    def drop(self) -> None:
        """Close the connections without waiting for the thread, which ends by itself."""
        self._is_ending = True
        for given_up in list(self._given_up):
            given_up.set()
        self._calls.wakeup()
        try:
            self._thread.submit(self._calls.close)
        except RuntimeError:
            # The interpreter is ending, and has ended its threads.
            self._calls.close()
        self._thread.shutdown(wait=False)

    @property
    def is_closed(self) -> bool:
        return self._is_ending
