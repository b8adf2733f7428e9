"""State shared by both threads of any client: queued events, the signal for waits (C1, C2, C6).

Two deques and one flag: the network thread appends, the application thread takes. Appending to a deque is
atomic in CPython and costs 0.03 µs, a wake byte 3 µs, a blocking round trip 15 µs; so neither side locks, and each
wakes the other only when there is something new to do.

`Progress` knows when the application polled last, for the poll timer (B4). The application thread writes it. Waiting
inside poll() is progress. A user callback inside it is not: a callback that hangs is processing that hangs.

`Lateness` knows how late the network thread is (B9): each turn of its loop has a time by which it must run. A turn that
runs later was delayed: an extension held the interpreter, the machine was paused, or the turn before had too much to
do. Heartbeats are late by as much, unless the native thread sends them. The network thread writes it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kadence.clock import FOREVER, Clock, SystemClock, wall_ms
from kadence.consumer.decoded_records import Attention
from kadence.consumer.events import ApplicationEvent, BackgroundEvent, Close, Stalled
from kadence.consumer.measures import ClientMeasures
from kadence.metrics.sensors import Meter

__all__ = ["FAREWELL_MS", "Asked", "ClientState", "Lateness", "NetworkLateness", "Progress", "Signal"]

FAREWELL_MS: Final = 2_000
"""How long the network thread may take to leave the group for a consumer that is not closed."""


class Progress:
    """Records when the application last polled.

    ``_since``: since when (ms) nothing was polled; None while the application waits in poll().

    Attributes:
        by_turns: waiting in poll() counts only as long as `turned` is called: under asyncio a blocked loop makes no
            progress, though a task waits in poll().
    """

    __slots__ = ("_callbacks", "_depth", "_since", "by_turns")

    def __init__(self) -> None:
        self._since: int | None = None
        self._depth = 0
        # Callbacks that are running: one may run inside another, or in another task. A poll starts to count again, so
        # one that Ctrl-C ended without a report does not seem to run for ever.
        self._callbacks = 0
        self.by_turns = False

    # -- application thread

    def polled(self, now: int) -> None:
        """A poll has returned at once, from the buffer."""
        self._since = now

    def enter_poll(self, now: int) -> None:
        self._depth += 1
        self._callbacks = 0
        self._since = now if self.by_turns else None

    def leave_poll(self, now: int) -> None:
        self._depth -= 1
        self._since = now

    def enter_callback(self, now: int) -> None:
        self._callbacks += 1
        self._since = now

    def leave_callback(self, now: int) -> None:
        """The callback returned; if it ran inside poll() and no other callback, the application waits there again."""
        self._callbacks = max(self._callbacks - 1, 0)
        self._since = None if self._depth and not self._callbacks and not self.by_turns else now

    def turned(self, now: int) -> None:
        """The event loop turns; if a task waits in poll(), that is progress."""
        if self._depth and not self._callbacks:
            self._since = now

    # -- network thread

    def processing_since(self, now: int) -> int | None:
        """Since when (ms) nothing was polled; None while the application waits in poll() or never polled."""
        since = self._since
        return since if since is None else min(since, now)


class NetworkLateness(NamedTuple):
    """How late the network thread was, in seconds.

    Attributes:
        last: how late its latest turn was. longest: the longest delay since the consumer was made. longest_ago: how
            many seconds ago that was; None: never.
        fallback_heartbeats: how many heartbeats the native thread has sent because the network thread was late.
    """

    last: float
    longest: float
    longest_ago: float | None
    fallback_heartbeats: int = 0


class Lateness:
    """Lateness of one network thread.

    Attributes:
        last_ms: of the latest turn. longest_ms: the longest, ever, and longest_at: when (monotonic ms).
        turns: those that were late, for the metrics' windows.
        fallback_heartbeats: heartbeats that the native thread has sent.
    """

    __slots__ = ("_due", "_told_ms", "fallback_heartbeats", "last_ms", "longest_at", "longest_ms", "turns")

    def __init__(self) -> None:
        self.last_ms = 0
        self.longest_ms = 0
        self.fallback_heartbeats = 0
        self.longest_at: int | None = None
        self.turns = Meter()
        self._due = FOREVER
        self._told_ms = 0

    def due(self, now: int, wake_at: int) -> None:
        """The next turn is to begin at ``wake_at`` at the latest, and not in the past."""
        self._due = wake_at if wake_at > now else now

    def turned(self, now: int) -> int:
        """A turn begins. Returns how late (ms)."""
        late = now - self._due
        if late <= 0:
            self.last_ms = 0
            return 0
        self.last_ms = late
        self.turns.record(now, late)
        if late > self.longest_ms:
            self.longest_ms, self.longest_at = late, now
        return late

    def worth_telling(self, late_ms: int) -> bool:
        """Whether to report this delay: the first one, and again when it is twice as long."""
        if late_ms < 2 * self._told_ms:
            return False
        self._told_ms = late_ms
        return True

    def seen(self, now: int) -> NetworkLateness:
        """For people."""
        at = self.longest_at
        return NetworkLateness(
            self.last_ms / 1000,
            self.longest_ms / 1000,
            None if at is None else (now - at) / 1000,
            self.fallback_heartbeats,
        )


class Signal:
    """A flag that one thread waits for and others set.

    ``waiting`` keeps the setter's cost at one attribute read while no thread waits. The waiter checks its condition
    after `enter`, and after each `wait`, which both leave the flag down: a later change raises the flag.

    One bare lock, held while the flag is down. `threading.Event` will not do: it takes two locks in Python code, and a
    signal handler that raises in between (Ctrl-C) leaves one of them taken, and the network thread would hang on it.
    """

    __slots__ = ("_down", "on_set", "waiting")

    def __init__(self) -> None:
        self._down = threading.Lock()
        self.waiting = False
        self.on_set: Callable[[], None] | None = None
        """Called instead of raising the flag by shells that do not block a thread (asyncio)."""

    def enter(self) -> None:
        # Usually it is down; reading that is cheaper than trying.
        if not self._down.locked():
            self._down.acquire(blocking=False)
        self.waiting = True

    def wait(self, seconds: float | None) -> None:
        self._down.acquire(timeout=-1 if seconds is None else seconds)

    def leave(self, *, interrupts: bool = False) -> None:
        """No call waits any more, except one that this call interrupted: end its wait."""
        self.waiting = interrupts
        if interrupts:
            self.set()

    def set(self) -> None:
        if self.waiting:
            if self.on_set is not None:
                self.on_set()
            else:
                # The flag is up already.
                with contextlib.suppress(RuntimeError):
                    self._down.release()

    def show(self) -> int:
        """A descriptor that becomes readable when the flag is raised, from now on; below 0: that is not possible."""
        return -1

    def seen(self) -> None:
        """The descriptor was readable: lower the flag. A check after this misses nothing."""

    def hide(self) -> None:
        """The descriptor is no longer watched."""


class Asked(Protocol):
    """A request that the application's thread has written by itself. Its plain answer sets the signal."""

    @property
    def is_answered(self) -> bool:
        """Whether that has come."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether neither that has come, nor the network thread has taken the request over."""
        ...


class ClientState:
    """The shared state of any client. Every attribute names its one writer.

    `kadence.consumer.shared_state.SharedState` adds fetched records. A share consumer adds acquired ones.

    Args:
        wake: wakes the network thread. Any thread may call it.
        signal: what the application waits on; None: a new one.

    Attributes:
        application_events: application → network. background_events: network → application.
        attention: raised when the next poll must do more than take the next record: a background event, the end.
        signal: what the application waits on; set after a background event was appended.
        wants_polled: membership waits for a `Polled` (network).
        ended: the network thread has ended. dead: by this bug, if it was one (network).
        progress: when the application polled last (application).
        lateness: how late the network thread is (network).
        on_stall: called at once when a stall is noticed, on the network thread, while the application is busy
            (application).
        wakes: how often the application woke the network thread (application).
        measures: the measurements; each part has one writer. clock: that of both sides. wall: ms since 1970.
    """

    measures: ClientMeasures

    def __init__(
        self,
        wake: Callable[[], None],
        measures: ClientMeasures,
        clock: Clock | None = None,
        wall: Callable[[], int] = wall_ms,
        signal: Signal | None = None,
    ) -> None:
        self._wake = wake
        self.clock = clock or SystemClock()
        self.wall = wall
        self.measures = measures
        self.lateness = Lateness()
        self.on_stall: Callable[[Stalled], None] = lambda event: None
        self.application_events: deque[ApplicationEvent] = deque()
        self.background_events: deque[BackgroundEvent] = deque()
        self.attention = Attention()
        self.signal = Signal() if signal is None else signal
        self.wants_polled = False
        self.dead: BaseException | None = None
        self.ended = False
        self.progress = Progress()
        self.wakes = 0

    # -- application thread

    def send(self, event: ApplicationEvent) -> None:
        self.send_by(lambda to: to.append(event))

    def send_by(self, hand_over: Callable[[deque[ApplicationEvent]], None]) -> None:
        """Send the event that this appends."""
        self.measures.application_events.put(self.clock.now_ms())
        try:
            hand_over(self.application_events)
        finally:
            # Ctrl-C in between must not leave the event unseen until something else wakes the network thread.
            self.wake()

    def begin_close(self, deadline: int) -> None:
        """Have the network side leave the group, and end, until ``deadline``. Any thread; waits for nothing."""
        if not self.ended:
            self.send(Close(0, deadline, leave=None))

    def wake(self) -> None:
        self.wakes += 1
        self._wake()

    @property
    def is_closing(self) -> bool:
        """Whether the network side has ended, as far as calls are concerned. Any thread."""
        return self.ended

    def left_behind(self) -> None:
        """The process ends before the network side: the group continues once the session has timed out."""

    # -- network thread

    def tell(self, event: BackgroundEvent) -> None:
        self.measures.background_events.put(self.clock.now_ms())
        self.background_events.append(event)
        self.alert()

    def refuse(self, cause: BaseException | None) -> None:
        """The network side ends, because of ``cause`` if that is a bug: every call raises from now on."""
        self.dead = cause
        self.ended = True

    def dismiss(self) -> None:
        """It has ended: wake all that still wait."""
        self.alert()

    # -- any thread

    def wall_offset_ms(self) -> int:
        """The difference between ms since 1970 and the clock's time, now."""
        return self.wall() - self.clock.now_ms()

    def alert(self) -> None:
        """Something has changed: make the next poll look, and wake one that waits. Called after the change."""
        self.attention.up = True
        self.signal.set()
