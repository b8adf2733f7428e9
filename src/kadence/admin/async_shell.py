"""How an event loop carries the admin client's calls; see shell.py. Nothing here blocks the loop.

When a task is cancelled, its call ends where it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from kadence.admin.calls import Calls
from kadence.admin.leaders import Leaders
from kadence.admin.network import Network
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, Seconds, wait_seconds
from kadence.config import AdminConfig
from kadence.errors import ConcurrentAccessError
from kadence.idioms import running_loop

__all__ = ["AsyncShell"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncShell:
    """Makes the admin client's calls for an event loop: the one that runs when it is made."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._loop = running_loop("AsyncAdmin")
        self._config = config
        self._clock = clock
        self._network = Network(config, clock)
        self._leaders = Leaders(config.metadata_max_age_ms)

    async def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], Waits[T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``.

        Raises:
            ConcurrentAccessError: on another event loop than the client's own.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise ConcurrentAccessError("this admin client belongs to another event loop")
        self._network.check_usable()
        wait = _Wait()
        calls = Calls(self._config, self._clock, self._network, self._leaders, wait.end)
        return await self._carry(call(calls, calls.deadline(timeout), *arguments, **options), wait)

    async def close(self) -> None:
        """Close the connections; calls of other tasks end with ClosedError. Any number of tasks may wait for it.

        Another loop may do so, too: the client's own may have ended.
        """
        self._network.begin_close()
        await self._carry(self._ended(), _Wait())

    def drop(self) -> None:
        """Close the connections of a client that nobody has any more, without waiting. Any thread."""
        self._network.begin_close()

    @property
    def is_closed(self) -> bool:
        return self._network.is_closing

    def _ended(self) -> Waits[None]:
        while self._network.is_ending:
            yield FOREVER

    async def _carry(self, call: Waits[T], wait: _Wait) -> T:
        self._network.waiting.add(wait.end)
        try:
            until = next(call)
            while True:
                assert isinstance(until, int), "an admin client runs no user code in its calls"
                self._network.send_off()
                await wait.until_ended(wait_seconds(until, self._clock.now_ms()))
                until = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            self._network.waiting.discard(wait.end)
            call.close()


class _Wait:
    """What one call waits on. An `end` that comes before the wait ends it, too."""

    __slots__ = ("_event", "end")

    def __init__(self) -> None:
        self._event = event = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            # The loop was closed meanwhile: nobody waits on it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

        self.end = end

    async def until_ended(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()
