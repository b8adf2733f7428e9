"""A setting that a group may have of its own: the broker's value, and the least and the most that it allows a group."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Bounds"]


class Bounds(NamedTuple):
    """The broker's value and its bounds. They hold for groups, and for the broker's own value, too."""

    value: int
    least: int
    most: int

    def clamped(self, value: int) -> int:
        """A group's own value as it counts now: the bounds may have been narrowed after it was set."""
        return max(self.least, min(value, self.most))

    @property
    def is_kept(self) -> bool:
        """True if the broker's own value is within the bounds."""
        return self.least <= self.value <= self.most
