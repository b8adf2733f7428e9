"""How a thread carries the admin client's calls. The asyncio twin is async_shell.py.

A call is a generator. It yields until when at most it waits, and looks again each time it is resumed. Each call has a
wait of its own, so those of several threads, and of a signal handler inside one of them, do not meet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from kadence.admin.calls import Calls
from kadence.admin.leaders import Leaders
from kadence.admin.network import Network
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, Seconds, wait_seconds
from kadence.config import AdminConfig

__all__ = ["Shell"]

P = ParamSpec("P")
T = TypeVar("T")


class Shell:
    """Makes the admin client's calls on the calling thread."""

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._network = Network(config, clock)
        self._leaders = Leaders(config.metadata_max_age_ms)

    def run(
        self,
        timeout: Seconds | None,
        call: Callable[Concatenate[Calls, int, P], Waits[T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """Make a call that ends after ``timeout`` seconds; None takes ``default.api.timeout.ms``."""
        self._network.check_usable()
        wait = _Wait()
        calls = Calls(self._config, self._clock, self._network, self._leaders, wait.end)
        return self._carry(call(calls, calls.deadline(timeout), *arguments, **options), wait)

    def close(self) -> None:
        """Close the connections. Calls of other threads end with `ClosedError`."""
        self._network.begin_close()
        self._carry(self._ended(), _Wait())

    def drop(self) -> None:
        """Close the connections of a client that nobody has any more, without waiting. Any thread."""
        self._network.begin_close()

    @property
    def is_closed(self) -> bool:
        return self._network.is_closing

    def _ended(self) -> Waits[None]:
        while self._network.is_ending:
            yield FOREVER

    def _carry(self, call: Waits[T], wait: _Wait) -> T:
        self._network.waiting.add(wait.end)
        try:
            until = next(call)
            while True:
                assert isinstance(until, int), "an admin client runs no user code in its calls"
                self._network.send_off()
                wait.until_ended(wait_seconds(until, self._clock.now_ms()))
                until = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            self._network.waiting.discard(wait.end)
            # Not left to the collector: after Ctrl-C the traceback keeps it alive.
            call.close()


class _Wait:
    """What one call waits on. An `end` that comes before the wait ends it, too.

    One bare lock, taken while nothing has come: a signal handler that raises can come between two steps of
    `threading.Event`, and leave its lock taken for the network thread to hang on.
    """

    __slots__ = ("_lock", "end")

    def __init__(self) -> None:
        self._lock = lock = threading.Lock()
        lock.acquire()

        def end() -> None:
            try:
                lock.release()
            except RuntimeError:
                # Something has come already.
                pass

        self.end = end

    def until_ended(self, seconds: float | None) -> None:
        self._lock.acquire(timeout=-1 if seconds is None else seconds)
