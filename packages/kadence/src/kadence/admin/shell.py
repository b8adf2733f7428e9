"""Runs the admin client's calls on a thread: `client.waits` and the wait of each call.

Each call has a wait of its own, so those of several threads, and of a signal handler inside one of them, do not meet.
The asyncio twin is async_shell.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from kadence.admin.calls import Calls
from kadence.admin.leaders import Leaders
from kadence.admin.network import Network
from kadence.client import waits
from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds
from kadence.config import AdminConfig
from kadence.net.direct import Asked

__all__ = ["AdminShell"]

P = ParamSpec("P")
T = TypeVar("T")


class AdminShell:
    """Makes the admin client's calls on the calling thread."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._leaders = Leaders(config.metadata_max_age_ms)
        self.network = Network(config, clock)

    def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], Waits[T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``."""
        self.network.check_usable()
        changes = _Changes(self.network)
        calls = Calls(self._config, self._clock, self.network, self._leaders, changes)
        deadline = calls.deadline(timeout)
        return waits.Shell(changes, self._clock).run(call(calls, deadline, *arguments, **options))

    def close(self) -> None:
        """Close the connections. Calls of other threads end with `ClosedError`."""
        self.network.begin_close()
        waits.Shell(_Changes(self.network), self._clock).run(self.network.end())


class _Changes:
    """The changes that one call waits for (`kadence.client.waits.Changes`).

    One bare lock, held while nothing has changed: a signal handler that raises can come between two steps of
    `threading.Event`, and leave its lock taken for the network thread to hang on.
    """

    __slots__ = ("_asked", "_network", "_unchanged", "waiting")

    listens = True

    def __init__(self, network: Network) -> None:
        self._network = network
        self.waiting = False
        self._asked: Asked | None = None
        self._unchanged = threading.Lock()
        self._unchanged.acquire()

    def set(self) -> None:
        """Something has changed. Any thread."""
        try:
            self._unchanged.release()
        except RuntimeError:
            # It was set already.
            pass

    def listen(self, asked: Asked | None) -> bool:
        """See `kadence.admin.asking.Changes`. Other changes are seen a moment later meanwhile."""
        if asked is not None and not asked.enter():
            return False
        self._asked = asked
        return True

    def enter(self) -> None:
        self.waiting = True
        self._network.waiting.add(self.set)

    def wait(self, seconds: float | None) -> None:
        if self._asked is not None:
            self._asked.wait(seconds)
            return
        self._network.send_off()
        self._unchanged.acquire(timeout=-1 if seconds is None else seconds)

    def leave(self, *, interrupts: bool) -> None:
        del interrupts
        self.waiting = False
        self._network.waiting.discard(self.set)
