"""Virtual time for tests: it passes only when a test calls `FakeClock.advance`."""

from __future__ import annotations

__all__ = ["FakeClock"]


class FakeClock:
    """A `kadence.clock.Clock` that stands still until `advance`.

    It starts at an odd number, not at 0, so that a test notices code that takes 0 for "never".
    """

    __slots__ = ("_now",)

    def __init__(self, now: int = 1_000_003) -> None:
        self._now = now

    def now_ms(self) -> int:
        """The present time in ms."""
        return self._now

    def advance(self, duration_ms: int) -> int:
        """Let ``duration_ms`` pass, and return the new time. Time never goes back."""
        if duration_ms < 0:
            raise ValueError(f"time does not go back by {-duration_ms} ms")
        self._now += duration_ms
        return self._now

    def __repr__(self) -> str:
        return f"<FakeClock {self._now} ms>"
