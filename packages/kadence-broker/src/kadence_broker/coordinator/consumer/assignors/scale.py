"""Readers of a topic from the lightest to the heaviest, while partitions move from one end to the other.

Equally light readers get partitions in turn, equally heavy ones give in turn. So a step costs the same for any number
of readers: they are sorted once, and at each end a run of equals grows towards the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["Scale"]


class Scale:
    """The caller changes ``loads`` by one for each member that `lightest` or `heaviest` returns."""

    def __init__(self, readers: Sequence[int], loads: Sequence[int]) -> None:
        self._loads = loads
        self._order = sorted(readers, key=lambda member: (loads[member], member))
        light, heavy = loads[self._order[0]], loads[self._order[-1]]
        self.spread = heavy - light
        # The light run is order[:light_end], where the next to get is order[next_light]; all have light_load.
        self._light_load, self._light_end, self._next_light = light - 1, 0, 0
        # The heavy run is order[heavy_start:heavy_end]; behind it are the readers that have nothing to give.
        self._heavy_load = heavy + 1
        self._heavy_start = self._heavy_end = len(self._order)
        self._next_heavy = len(self._order) - 1

    def is_even(self) -> bool:
        """True if another move would not improve the balance."""
        return self._heavy_load - self._light_load <= 1

    def lightest(self) -> int:
        """The reader that gets the next partition."""
        if self._next_light >= self._light_end:
            # Each reader of the run has got one: readers that already had as many join it.
            self._light_load += 1
            end = self._light_end
            while end < len(self._order) and self._loads[self._order[end]] == self._light_load:
                end += 1
            self._light_end, self._next_light = end, 0
        member = self._order[self._next_light]
        self._next_light += 1
        return member

    def heaviest(self, held: Mapping[int, Sequence[int]]) -> int | None:
        """The reader that gives the next partition: one that has some in ``held``; None if there is none."""
        while True:
            if self._next_heavy < self._heavy_start:
                self._widen()
            if self._next_heavy < 0:
                return None
            at = self._next_heavy
            self._next_heavy -= 1
            member = self._order[at]
            if held.get(member):
                return member
            # Its load stays the same, so it goes behind the run.
            self._heavy_end -= 1
            self._order[at], self._order[self._heavy_end] = self._order[self._heavy_end], member

    def _widen(self) -> None:
        """Each reader of the run has given one: readers that already had as few join it."""
        start = self._heavy_start
        if self._heavy_end <= start and start > 0:
            self._heavy_load = self._loads[self._order[start - 1]]
        else:
            self._heavy_load -= 1
        while start > 0 and self._loads[self._order[start - 1]] == self._heavy_load:
            start -= 1
        self._heavy_start, self._next_heavy = start, self._heavy_end - 1
