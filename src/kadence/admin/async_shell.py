"""Runs the admin client's calls for an event loop, each on a thread of the client's own; see shell.py.

It uses threads because calls are few and each exchanges requests with several brokers. A thread starts when a call
finds none that is free. When a task is cancelled, its call stops waiting at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from kadence.admin.calls import Calls, Leaders
from kadence.admin.exchange import Exchange
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig
from kadence.errors import ClosedError, ConcurrentAccessError, KafkaTimeoutError
from kadence.idioms import running_loop

__all__ = ["MOST_THREADS", "AsyncShell"]

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS: Final = 64
"""Calls that run at the same time. What is asked for beyond them waits, at most for its own timeout."""


class AsyncShell:
    """Makes the admin client's calls for an event loop, on threads of its own.

    It belongs to the event loop that runs when it is made.
    """

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._loop = running_loop("AsyncAdmin")
        self._config = config
        self._clock = clock
        self._exchange = Exchange(config, clock)
        self._leaders = Leaders(config.metadata_max_age_ms)
        self._threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=f"kadence-{config.client_id}")
        self._given_up: set[threading.Event] = set()
        self._is_ending = False
        self._has_threads = True

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
        self._exchange.check_usable()
        if self._is_ending:
            raise ClosedError("this admin client is closed")
        given_up = threading.Event()
        calls = Calls(self._config, self._clock, self._exchange, self._leaders, given_up)
        deadline = calls.deadline(timeout)

        def make() -> T:
            if given_up.is_set():
                raise ClosedError("this admin client was closed during the call")
            return call(calls, deadline, *arguments, **options)

        job = self._threads.submit(make)
        outcome = asyncio.wrap_future(job)
        self._given_up.add(given_up)
        try:
            await asyncio.wait([outcome], timeout=max(0, deadline - self._clock.now_ms()) / 1000)
            if job.cancel():
                raise KafkaTimeoutError(
                    f"not begun in time: the client makes at most {MOST_THREADS} calls at once, and all of them waited"
                )
            return await outcome
        except asyncio.CancelledError:
            # Nobody asks how it ends.
            outcome.cancel()
            given_up.set()
            self._exchange.wakeup()
            raise
        finally:
            self._given_up.discard(given_up)

    async def close(self) -> None:
        """Close the connections; calls of other tasks end with ClosedError. Any number of tasks may wait for it."""
        if not self._is_ending:
            self.drop()
        if self._has_threads:
            await asyncio.to_thread(self._threads.shutdown)

    def drop(self) -> None:
        """Close the connections without waiting for the threads, which end by themselves."""
        self._is_ending = True
        for given_up in list(self._given_up):
            given_up.set()
        self._exchange.wakeup()
        try:
            self._threads.submit(self._exchange.close)
        except RuntimeError:
            # The interpreter is ending, and has ended its threads.
            self._has_threads = False
            self._exchange.close()
        self._threads.shutdown(wait=False)

    @property
    def is_closed(self) -> bool:
        return self._is_ending
