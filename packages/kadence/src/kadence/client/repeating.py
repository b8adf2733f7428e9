"""Something that must not be given up is done again: after waits that grow, and with a WARNING a minute at most.

The one home of both for endless repetitions: dead letter and retry records, commits and transactions
of `Consumer.process`. No clock is read here: callers give the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from logging import INFO, WARNING
from typing import Final, NamedTuple

from kadence.clock import add_ms
from kadence.connection.request import Backoff
from kadence.logs import LogLimiter

__all__ = ["Again", "Repeating"]

_LONGEST_MS: Final = 30_000
"""The longest wait: so soon it is noticed that what stood in the way is gone."""


class Again(NamedTuple):
    """The time (ms) of the next try, and the level of its log line."""

    at: int
    level: int


class Repeating:
    """The next try of one thing, and whether it is logged.

    Args:
        first_ms: the first wait. Each is twice as long as the one before, up to 30 s, more or less 20 % of chance.
        limiter: of log lines; several things may share it, and are then logged in one line. None: one of its own.
    """

    __slots__ = ("_backoff", "_failures", "_limiter")

    def __init__(self, first_ms: int, limiter: LogLimiter | None = None) -> None:
        self._backoff = Backoff(first_ms, _LONGEST_MS)
        self._failures = 0
        self._limiter = LogLimiter() if limiter is None else limiter

    def failed(self, now: int, subject: Hashable = None) -> Again:
        """It failed. Of each ``subject`` there is one WARNING a minute, and else INFO."""
        wait = self._backoff.delay_ms(self._failures)
        self._failures += 1
        return Again(add_ms(now, wait), WARNING if self._limiter.is_new(now, subject, None) else INFO)

    def succeeded(self) -> None:
        """It was done: after the next failure the wait is short."""
        self._failures = 0
