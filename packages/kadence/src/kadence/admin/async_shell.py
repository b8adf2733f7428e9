"""Runs the admin client's calls on an event loop: `client.async_shell` and the wait of each call; see shell.py.

Nothing here blocks the loop. When a task is cancelled, its call ends where it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from kadence.admin.calls import Calls
from kadence.admin.leaders import Leaders
from kadence.admin.network import KIND, Network
from kadence.client import async_shell
from kadence.client.slices import Slices, slices_of
from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig
from kadence.idioms import running_loop
from kadence.net.direct import Asked

__all__ = ["AsyncAdminShell"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncAdminShell:
    """Makes the admin client's calls for an event loop: the one that runs when it is made."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._loop = running_loop("AsyncAdmin")
        # Once: a signal handler may make a call while the loop begins one, and this takes a lock.
        self._slices = slices_of(self._loop)
        self._config = config
        self._clock = clock
        self._leaders = Leaders(config.metadata_max_age_ms)
        self.network = Network(config, clock)

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
        changes = _Changes(self.network, self._loop, self._slices)
        shell = async_shell.AsyncShell(KIND, changes, self._clock)
        # First: in a forked child no loop runs.
        self.network.check_usable()
        shell.check_loop()
        calls = Calls(self._config, self._clock, self.network, self._leaders, changes)
        return await shell.run(call(calls, calls.deadline(timeout), *arguments, **options))

    async def close(self) -> None:
        """Close the connections; calls of other tasks end with ClosedError. Any number of tasks may wait for it.

        Another loop may do so, too: the client's own may have ended.
        """
        self.network.begin_close()
        if self.network.has_ended:
            return
        changes = _Changes(self.network, asyncio.get_running_loop())
        await async_shell.AsyncShell(KIND, changes, self._clock).run(self.network.end())


class _Changes:
    """The changes that one call waits for (`kadence.client.async_shell.LoopChanges`)."""

    is_held: ClassVar[bool] = False

    def __init__(
        self, network: Network, loop: asyncio.AbstractEventLoop, slices: Slices | None = None
    ) -> None:
        self._network = network
        self.loop = loop
        self._changed: async_shell.Change | None = None
        self._slices = slices

    @property
    def listens(self) -> bool:
        """See `kadence.admin.asking.Changes`."""
        return self._slices is not None and self._slices.descriptor() >= 0

    def listen(self, asked: Asked | None) -> bool:
        """See `kadence.admin.asking.Changes`."""
        if asked is None or self._slices is None:
            return asked is None
        if not asked.enter(self._slices.descriptor(), self._slices):
            return False
        self._slices.when_raised(asked, self._tell)
        return True

    def set(self) -> None:
        """Something has changed. Any thread."""
        try:
            self.loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits on it any more.
            pass

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()

    def watch(self, changed: async_shell.Change) -> None:
        self._changed = changed
        self._network.waiting.add(self.set)

    def forget(self, changed: async_shell.Change) -> None:
        del changed
        self._network.waiting.discard(self.set)

    def release(self) -> None:
        self._network.send_off()

    def acquire(self) -> None:
        """No lock is held."""
