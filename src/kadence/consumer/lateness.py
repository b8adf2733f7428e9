"""How late the network thread is (B9): each turn of its loop has a time by which it must run.

A turn that comes later was kept from running: an extension held the interpreter, the machine was paused, or the
turn before had too much to do. Heartbeats are late by as much, unless the native thread sends them. Pure; written by
the network thread, read by anyone.
"""

from __future__ import annotations

from typing import NamedTuple

from kadence.clock import FOREVER

__all__ = ["Lateness", "NetworkLateness"]


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
        fallback_heartbeats: heartbeats that the native thread has sent.
    """

    __slots__ = ("_due", "_told_ms", "fallback_heartbeats", "last_ms", "longest_at", "longest_ms")

    def __init__(self) -> None:
        self.last_ms = 0
        self.longest_ms = 0
        self.fallback_heartbeats = 0
        self.longest_at: int | None = None
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
        if late > self.longest_ms:
            self.longest_ms, self.longest_at = late, now
        return late

    def worth_telling(self, late_ms: int) -> bool:
        """Whether this is news: once, and again when it is twice as long."""
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
