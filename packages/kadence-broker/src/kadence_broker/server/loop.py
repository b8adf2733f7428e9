"""One thread, one selector: sockets, timers, and calls from other threads. It knows nothing of Kafka.

A loop that was held up (a busy machine, a held interpreter) first serves what has arrived meanwhile, and judges by the
clock only then: a timer fires when it was due before the sockets were last looked at, and one that is late only once
the sockets have been read to the end. Else a member would lose its session although its heartbeats lie here unread.
"""

from __future__ import annotations

import contextlib
import heapq
import selectors
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from kadence.clock import FOREVER, Clock, SystemClock, wait_seconds, wall_ms
from kadence.logs import logger

__all__ = ["Loop", "Timer"]

_log = logger("kadence.broker")

T = TypeVar("T")

_A_BUG: Final = "a bug in the broker; it goes on serving"
_LATE_MS: Final = 50
"""A timer that is later than that was held up, not merely behind the other work of a turn."""
_CATCH_UP_MS: Final = 1_000
"""For so long a late loop reads on; then timers fire, however much still comes."""
_LONG_WAIT_S: Final = 0.1
"""Linux may end a wait late by a 1,000th of it (in a niced process by a 200th), but not by more than 100 ms."""


class Timer:
    """A call that is due later. `cancel` it when it is no longer wanted."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Loop:
    """Runs in one thread; `call` and `stop` are for the others.

    Args:
        clock: where time comes from.
        before_wait: asked before each wait; may do what is due at the time it is given, and returns its next
            deadline.
        selector: waits for the sockets. None: the system's, and a wake-up of its own for other threads; with another
            one everything happens on the thread that calls `turn`.
        wall: ms since 1970; None: the machine's, moved on as the clock is.

    Attributes:
        turn_at: when the present turn looked at its sockets (ms).
    """

    def __init__(
        self,
        clock: Clock,
        before_wait: Callable[[int], int],
        selector: selectors.BaseSelector | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        self.clock = clock
        self.selector = selectors.DefaultSelector() if selector is None else selector
        self._wall = wall or _moved_on(clock)
        self._before_wait = before_wait
        self._timers: list[tuple[int, int, Timer]] = []
        self._serial = 0
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self.turn_at = clock.now_ms()
        self._deadline = self.turn_at
        self._is_stopping = False
        self._has_ended = False
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.setblocking(False)
        if selector is None:
            self.selector.register(self._wake_out, selectors.EVENT_READ, self._drain_wakeups)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._wall()

    def at(self, deadline: int, action: Callable[[], None]) -> Timer:
        """Do ``action`` at ``deadline`` (this thread only)."""
        timer = Timer(action)
        self._serial += 1
        heapq.heappush(self._timers, (deadline, self._serial, timer))
        return timer

    def soon(self, action: Callable[[], None]) -> None:
        """Do ``action`` in this turn, when what runs now has returned (this thread only)."""
        self._soon.append(action)

    def call(self, action: Callable[[], T]) -> Future[T]:
        """Run ``action`` on the loop's thread. Thread-safe. A stopped loop cancels the future."""
        future: Future[T] = Future()
        self._calls.append((future, action))
        if self._has_ended:
            self._cancel_calls()
        self._wake()
        return future

    def stop(self) -> None:
        """End `run` after its present step. Thread-safe."""
        self._is_stopping = True
        self._wake()

    def run(self) -> None:
        """Serve until `stop`. An exception in one callback is logged, and the others go on."""
        try:
            while not self._is_stopping:
                self.turn()
        finally:
            self._has_ended = True
            self._cancel_calls()

    def turn(self) -> int:
        """Wait for something to do, and do it. Returns when a timer is due next (ms); now if there is more to do."""
        looked_at = self.turn_at = self.clock.now_ms()
        # A loop that caught up may have read the wake-up of a call that came meanwhile.
        is_due = self._soon or self._calls
        self._serve(0 if is_due else _punctual(wait_seconds(self._deadline, looked_at)))
        for _ in range(len(self._calls)):
            self._run_call(*self._calls.popleft())
        if self._deadline < looked_at - _LATE_MS:
            self._catch_up(looked_at)
        self._deadline = min(self._run_timers(looked_at), self._before_wait(looked_at))
        return looked_at if self._soon or self._calls else self._deadline

    def close(self) -> None:
        """Free the selector and its wake-up pair; `run` has ended."""
        self.selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _serve(self, seconds: float | None) -> int:
        """Wait, and serve what is ready; how many sockets were."""
        ready = self.selector.select(seconds)
        for key, events in ready:
            try:
                key.data(events)
            except Exception:  # noqa: BLE001 - one client's trouble must not end the service for all
                _log.exception(_A_BUG)
        for _ in range(len(self._soon)):
            self._guarded(self._soon.popleft())
        return len(ready)

    def _catch_up(self, since: int) -> None:
        """Read until nothing is left of what came before timers that are late may judge."""
        while self._serve(0) or self._soon:
            if self._is_stopping or self.clock.now_ms() > since + _CATCH_UP_MS:
                return

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # noqa: BLE001 - as above
            _log.exception(_A_BUG)

    def _run_call(self, future: Future[Any], action: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(action())
        except Exception as error:  # noqa: BLE001 - it is raised where the future is awaited
            future.set_exception(error)

    def _cancel_calls(self) -> None:
        while self._calls:
            try:
                self._calls.popleft()[0].cancel()
            except IndexError:  # the other thread took the last one
                return

    def _run_timers(self, now: int) -> int:
        timers = self._timers
        while timers and (timers[0][0] <= now or timers[0][2].action is None):
            action = heapq.heappop(timers)[2].action
            if action is not None:
                self._guarded(action)
        return timers[0][0] if timers else FOREVER

    def _wake(self) -> None:
        # Full: a wake-up is on its way already. Closed: the loop has ended.
        with contextlib.suppress(OSError):
            self._wake_in.send(b"\0")

    def _drain_wakeups(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_out.recv(4096):
                pass


def _punctual(seconds: float | None) -> float | None:
    """A wait for a timer: a long one ends a little early, and the next one, which is short, ends in time.

    Else a request that comes some ms after a session's end would be served before it.
    """
    if seconds is None or seconds < _LONG_WAIT_S:
        return seconds
    return seconds - min(seconds / 100, 0.1)


def _moved_on(clock: Clock) -> Callable[[], int]:
    """The machine's time of day, as far ahead as ``clock`` is moved on from here (in tests)."""
    machine = SystemClock()
    ahead = clock.now_ms() - machine.now_ms()
    return lambda: wall_ms() + clock.now_ms() - machine.now_ms() - ahead
