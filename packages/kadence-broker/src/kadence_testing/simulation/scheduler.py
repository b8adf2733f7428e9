"""Virtual time, and the events in it, in a fixed order.

`Scheduler.run_until` carries out events one after the other, and time jumps from each to the next. Events of the same
millisecond run in the order in which they were scheduled, so a run depends only on its inputs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from kadence.clock import FOREVER

__all__ = ["Event", "Process", "Scheduler", "SimulationError"]

_STEPS_AT_ONCE: Final = 200_000
"""So many events within one millisecond mean that a program never waits."""

_START: Final = 1_000_003
"""An odd number, not 0, so that tests notice code in which 0 means "never"."""

_START_WALL_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


class SimulationError(AssertionError):
    """An invariant does not hold, a program raised, or the simulation cannot go on."""


class Event:
    """A scheduled event, which can be cancelled."""

    __slots__ = ("action", "process")

    def __init__(self, action: Callable[[], None], process: Process | None) -> None:
        self.action: Callable[[], None] | None = action
        self.process = process

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    """The one clock of a simulation (`kadence.clock.Clock`), and its events."""

    def __init__(self) -> None:
        self._now = _START
        self._serial = 0
        # By their time, then in the order in which they were scheduled.
        self._events: list[tuple[int, int, Event]] = []
        self._at_once = 0

    def __repr__(self) -> str:
        return f"<scheduler at {self.elapsed_ms} ms, {len(self._events)} events to come>"

    def now_ms(self) -> int:
        """The present, in ms."""
        return self._now

    def wall_ms(self) -> int:
        """The present, in ms since 1970: every simulation begins with 2026."""
        return _START_WALL_MS + self.elapsed_ms

    @property
    def elapsed_ms(self) -> int:
        """How long the simulation has run, in its own time."""
        return self._now - _START

    def at(self, when: int, action: Callable[[], None], process: Process | None = None) -> Event:
        """Run ``action`` at ``when`` (ms; the past means now), if ``process`` is alive then."""
        self._serial += 1
        event = Event(action, process)
        heapq.heappush(self._events, (max(when, self._now), self._serial, event))
        return event

    def run_until(self, deadline: int, done: Callable[[], bool] | None = None) -> bool:
        """Carry out events until ``deadline`` (ms) or until ``done``, which is checked after each event.

        Returns:
            Whether it is done; without ``done``, True.
        """
        while True:
            if done is not None and done():
                return True
            if not self._events or self._events[0][0] > deadline:
                self._now = max(self._now, min(deadline, FOREVER))
                return done is None
            at, _, event = heapq.heappop(self._events)
            if event.action is None:
                continue
            self._pass_to(at)
            if event.process is None:
                event.action()
            else:
                event.process.take(event)

    def close(self) -> None:
        """Drop all events."""
        self._events.clear()

    def _pass_to(self, when: int) -> None:
        if when > self._now:
            self._now = when
            self._at_once = 0
            return
        self._at_once += 1
        if self._at_once > _STEPS_AT_ONCE:
            raise SimulationError(
                f"{_STEPS_AT_ONCE} steps at {self.elapsed_ms} ms without time passing: does a program poll with a "
                "timeout of 0 in a loop?"
            )


class Process:
    """A simulated process: its events run only while it is alive, and wait while it is frozen.

    Attributes:
        on_end: called once when it ends.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.scheduler = scheduler
        self.is_alive = True
        self.is_frozen = False
        self.on_end: list[Callable[[], None]] = []
        self._held: list[Event] = []
        self._thaws_at = FOREVER

    def __repr__(self) -> str:
        return f"<process {self.name}, {'dead' if not self.is_alive else 'frozen' if self.is_frozen else 'alive'}>"

    def at(self, when: int, action: Callable[[], None]) -> Event:
        return self.scheduler.at(when, action, self)

    def soon(self, action: Callable[[], None]) -> Event:
        return self.scheduler.at(self.scheduler.now_ms(), action, self)

    def take(self, event: Event) -> None:
        """Carry out an event of this process, or keep it until the process is thawed."""
        if not self.is_alive or event.action is None:
            return
        if self.is_frozen:
            self._held.append(event)
        else:
            event.action()

    def freeze(self, until: int = FOREVER) -> None:
        """Stop it as SIGSTOP, or a long pause of the machine, would: it does not run, and its connections stay open.

        Args:
            until: when it goes on (ms), if `thaw` is not called before. The latest of several times applies.
        """
        self._thaws_at = max(self._thaws_at, until) if self.is_frozen else until
        self.is_frozen = True
        if until < FOREVER:
            self.scheduler.at(until, self._thaw_if_due)

    def thaw(self) -> None:
        """Let it go on, with its missed events first, in order."""
        self.is_frozen = False
        held, self._held = self._held, []
        for event in held:
            if event.action is not None:
                self.scheduler.at(self.scheduler.now_ms(), event.action, self)

    def _thaw_if_due(self) -> None:
        if self.is_frozen and self._thaws_at <= self.scheduler.now_ms():
            self.thaw()

    def end(self) -> None:
        """End it: none of its events runs any more. A second call does nothing."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._held.clear()
        calls, self.on_end = self.on_end, []
        for call in calls:
            call()
