"""How many records one poll returns, by what they cost (A5): max.poll.records=auto. Pure; application side.

One round is what the application does between a poll that returned records and the next poll. No round may take
longer than the *bound*, a set share of max.poll.interval.ms. A round is sized to take the *aim*, a hundredth of the
bound. So a round stays inside the bound even when records become a hundred times as dear after its size was chosen. It
also does when only the last records of a round are dear, so that the mean, by which the next round is sized, hides most
of it. A tenth of the aim would already make polling itself cost next to nothing.

    the round took longer than the aim      the next returns as many as would have fitted into the aim
    it did not                              up to `_GROWTH` times what this one returned, as far as that fits

The first round is one record, since nothing is known yet; with four times as many each time the sixth has a thousand.
Growth is bounded by what a round returned, not by what it was allowed: a short round says little of a long one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HEADROOM", "MOST", "Pace"]

HEADROOM: Final = 100
"""The bound is so many times the aim: how much dearer records may become at once."""

MOST: Final = 10_000
"""More at once makes nothing cheaper."""

_GROWTH: Final = 4


class Pace:
    """The cap of the next poll.

    Args:
        bound_ms: the longest that a round may take.

    Attributes:
        cap: how many records the next poll may return.
    """

    __slots__ = ("_aim_ms", "_count", "_returned_at", "cap")

    def __init__(self, bound_ms: int) -> None:
        self.cap = 1
        self._aim_ms = bound_ms / HEADROOM
        self._count = 0
        self._returned_at = 0

    def polls(self, now: int) -> int:
        """A poll begins, which ends the round before it; returns the cap."""
        if count := self._count:
            self._count = 0
            self._learn(count, now - self._returned_at)
        return self.cap

    def returns(self, now: int, count: int) -> None:
        """A poll returns ``count`` records, and their round begins."""
        self._count = count
        self._returned_at = now

    def _learn(self, count: int, took_ms: int) -> None:
        # As coarse as the clock: a round of 0 ms may have taken almost 1.
        fits = int(count * self._aim_ms / (took_ms + 1))
        if took_ms > self._aim_ms:
            self.cap = max(1, min(fits, self.cap))
        else:
            self.cap = max(1, min(fits, max(self.cap, _GROWTH * count), MOST))

    def __repr__(self) -> str:
        return f"<pace cap={self.cap} aim={self._aim_ms:.0f} ms>"
