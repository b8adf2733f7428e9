"""How long to leave a broker alone after a failed connection (KIP-144, KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.clock import add_ms

__all__ = ["Backoff"]

_JITTER: Final = 0.2
_MOST_DOUBLINGS: Final = 30


class Backoff:
    """Doubles from ``first_ms`` to ``longest_ms``, ±20 % so that clients do not come back all at once.

    Args:
        random: a number in [0, 1).
    """

    __slots__ = ("_first_ms", "_longest_ms", "_random", "failures", "retry_at")

    def __init__(self, first_ms: int, longest_ms: int, random: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._random = random
        self.failures = 0
        self.retry_at = 0

    def failed(self, now: int) -> None:
        """One more failure. Failures inside one wait count once: all lanes of a dead broker fail together."""
        if now < self.retry_at:
            return
        factor = 1 + _JITTER * (2 * self._random() - 1)
        doubled = self._first_ms << min(self.failures, _MOST_DOUBLINGS)
        self.retry_at = add_ms(now, min(int(min(doubled, self._longest_ms) * factor), self._longest_ms))
        self.failures += 1

    def succeeded(self) -> None:
        """The next failure starts from the first wait again."""
        self.failures = 0
        self.retry_at = 0

    def waits(self, now: int) -> bool:
        """Whether it is too early to try again."""
        return now < self.retry_at
