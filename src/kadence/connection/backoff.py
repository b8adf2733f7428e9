"""Exponential backoff with jitter (KIP-580), `now` passed in. Shared by every room that repeats requests."""

from __future__ import annotations

import random

__all__ = ["Backoff"]


class Backoff:
    """Exponential backoff with jitter: ``first·2ⁿ`` ms capped at ``most``, ±20 % (KIP-580)."""

    __slots__ = ("_attempts", "_first", "_most", "_uniform", "until")

    def __init__(self, first_ms: int, most_ms: int, rng: random.Random | None = None) -> None:
        self._first = first_ms
        self._most = most_ms
        # Without one of its own it shares the process's generator, which a test can seed and a fork seeds anew.
        self._uniform = rng.uniform if rng else random.uniform
        self._attempts = 0
        self.until = 0
        """Absolute ms before which nothing may be tried again."""

    def delay_ms(self, attempts: int) -> int:
        """The wait after the ``attempts``-th failure in a row (0 = the first)."""
        base: int = min(self._first * 2 ** min(attempts, 30), self._most)
        return max(0, round(base * self._uniform(0.8, 1.2)))

    def failed(self, now: int) -> None:
        """An attempt failed at ``now``: wait longer than after the one before."""
        self.until = now + self.delay_ms(self._attempts)
        self._attempts += 1

    def succeeded(self) -> None:
        """Forget the failures."""
        self._attempts = 0
        self.until = 0

    def ready(self, now: int) -> bool:
        return now >= self.until
