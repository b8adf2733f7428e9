"""Waiting for all sockets of a network thread, and reading from those that have something, in one call.

The compiled poller does it without the interpreter and takes it back only when Python has something to do: a frame is
whole, a connection ended, a socket can be written, another thread wakes this one (`_drain_c`, intake.h).
"""

from __future__ import annotations

import selectors
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.net import drain
from kadence.net.wakeup import ClearedWakeup, PlainWakeup, Wakeup

if TYPE_CHECKING:
    from kadence.connection.request import Follow
    from kadence.net.intake import Intake

__all__ = ["REPEATED", "Arrivals", "PlainPoller", "Poller", "new_poller"]

REPEATED: Final = 4
"""An event beside selectors' two: a fetch went out again because its answer brought nothing (`Repeat`)."""


class Arrivals(Protocol):
    """Records that came while a network thread waited, for another thread to take."""

    def flag(self) -> Any:
        """What that thread waits for: raised when records come."""
        ...

    def has_some(self) -> bool:
        """Whether there is anything to take."""
        ...

    def take(self, into: deque[Any]) -> None:
        """Append what came, as `Follow.read` has it. An interruption loses nothing."""
        ...

    def drop(self, follow: Follow) -> None:
        """Nobody may have what came for this any more."""
        ...


class Poller(Protocol):
    """One network thread's sockets.

    Attributes:
        arrivals: where records are passed on to; None: nowhere.
    """

    arrivals: Arrivals | None

    def watch(self, fd: int, events: int, owner: Any, intake: Intake | None = None) -> None:
        """Tell ``owner`` of these events (`selectors`) from now on.

        With an ``intake`` what comes in is read into it, and READ tells that `Inbox` has something to do.
        """
        ...

    def unwatch(self, fd: int) -> None:
        """Forget it. Before it is closed."""
        ...

    def pass_on(self) -> Arrivals | None:
        """Pass on records from now on, where a fetch gives leave. None: this poller cannot."""
        ...

    def wait(self, wait_ms: int | None) -> list[tuple[Any, int]]:
        """Wait at most so long (ms; None: for ever) for something to happen: (owner, events) of each.

        The owner of a wake-up is None. A signal may end the wait with nothing.
        """
        ...

    def close(self) -> None:
        """Forget everything; descriptors are their owners' concern."""
        ...


def new_poller() -> tuple[Poller, Wakeup]:
    """The best poller there is, and what ends its waits."""
    if drain.COMPILED:
        wake = drain.drain.Wake()
        return drain.drain.Poller(wake), wake
    plain = PlainWakeup()
    return PlainPoller(selectors.DefaultSelector(), plain), plain


class PlainPoller:
    """By a selector of the standard library's interface."""

    arrivals: Arrivals | None = None

    def __init__(self, selector: selectors.BaseSelector, wakeup: ClearedWakeup) -> None:
        self._wakeup = wakeup
        self._selector = selector
        self._selector.register(wakeup.fileno(), selectors.EVENT_READ, (None, None))
        # Of those that have one.
        self._intakes: dict[int, tuple[Any, Any]] = {}

    def watch(self, fd: int, events: int, owner: Any, intake: Any = None) -> None:
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, (owner, intake))
        else:
            self._selector.register(fd, events, (owner, intake))
        self._intakes.pop(fd, None)
        if intake is not None:
            self._intakes[fd] = owner, intake

    def unwatch(self, fd: int) -> None:
        self._intakes.pop(fd, None)
        self._selector.unregister(fd)

    def pass_on(self) -> None:
        """It reads with the interpreter only."""

    def wait(self, wait_ms: int | None) -> list[tuple[Any, int]]:
        is_pending = any(intake.more or intake.is_due for _, intake in self._intakes.values())
        events: dict[int, int] = {}
        ready: list[tuple[Any, int]] = []
        for key, seen in self._selector.select(
            0 if is_pending else None if wait_ms is None else wait_ms / 1000
        ):
            owner, intake = key.data
            if owner is None:
                self._wakeup.clear()
            if intake is None:
                ready.append((owner, seen))
            else:
                events[key.fd] = seen
        for fd, (owner, intake) in self._intakes.items():
            seen = events.get(fd, 0)
            if seen & selectors.EVENT_READ or intake.more:
                intake.advance()
            seen &= selectors.EVENT_WRITE
            if intake.is_due:
                seen |= selectors.EVENT_READ
            if seen:
                ready.append((owner, seen))
        return ready

    def close(self) -> None:
        self._intakes.clear()
        self._selector.close()
