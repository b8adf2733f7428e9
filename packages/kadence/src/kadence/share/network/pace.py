"""How fast the application works records off, and how many may be fetched ahead because of it (Q3).

A lock runs from when its record is acquired, so what is fetched ahead must be worked off within a part of it. The pace
is that at which records are acknowledged, whoever works on them, one thread or many. Before anything was acknowledged
nothing is fetched ahead.
"""

from __future__ import annotations

from typing import Final

__all__ = ["WorkPace"]

_SHARE: Final = 0.5
"""The part of a lock within which all that is held is to be worked off."""

_MOMENT_MS: Final = 100

_MEMORY: Final = 1_000
"""So many records are remembered at full weight."""


class WorkPace:
    """The mean time for a record, of the latest ones.

    Attributes:
        done: how many records were acknowledged, ever.
    """

    def __init__(self) -> None:
        self.done = 0
        self._records = 0
        self._ms = 0.0
        self._at = 0

    @property
    def ms_per_record(self) -> float | None:
        """None: nothing is known yet."""
        return self._ms / self._records if self._records else None

    def acknowledged(self, now: int, count: int, taken_at: int) -> None:
        """The application has settled so many records, which it took at ``taken_at``."""
        if count <= 0 or taken_at < 0:
            return
        # As coarse as the clock: 0 ms may have been almost 1.
        took = max(now - max(self._at, taken_at), 0) + 1
        self._at = now
        self.done += count
        self._records += count
        self._ms += took
        if self._records > 2 * _MEMORY:
            self._ms *= _MEMORY / self._records
            self._records = _MEMORY

    def fits(self, lock_ms: int) -> int:
        """How many records can be worked off within the share of a lock; 0: not known, or not one."""
        pace = self.ms_per_record
        return 0 if pace is None else int(lock_ms * _SHARE / pace)

    def soon(self) -> int:
        """How many records are worked off within a moment: more at once costs others nothing, and saves fetches.

        No more than were worked off ever: whoever takes one record and ends has not taken a hundred.
        """
        pace = self.ms_per_record
        return 0 if pace is None else min(int(_MOMENT_MS / pace), self.done)

    def __repr__(self) -> str:
        return f"<work pace {self.ms_per_record} ms a record>"
