"""Timers as data: a deadline for each key, the earliest first. Scheduling a key again replaces it.

A heap with lazy deletion: replacing or cancelling leaves the old entry in the heap, to be dropped when it
comes to the top. Heartbeats re-arm the same key thousands of times, so the heap is rebuilt when stale
entries outnumber live ones.
"""

from __future__ import annotations

import heapq
from enum import Enum
from typing import NamedTuple

from kadence.clock import FOREVER

__all__ = ["TimerKey", "TimerKind", "Timers"]

_REBUILD_ABOVE = 64


class TimerKind(Enum):
    """What a timer is about."""

    SESSION = "session"
    """A member's (or pending member's) heartbeats have been missing for a session timeout."""
    JOIN = "join"
    """The join phase has lasted a rebalance timeout, or the initial delay is over."""
    SYNC = "sync"
    """Members that joined have had a rebalance timeout to sync."""
    EXPIRY = "expiry"
    """Time to look for offsets that may go."""


class TimerKey(NamedTuple):
    """Which timer; ``member_id`` is empty for timers of the group."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Timers:
    """Keyed deadlines in milliseconds."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def deadline(self, key: TimerKey) -> int | None:
        """When ``key`` is due; None if it is not scheduled."""
        entry = self._deadlines.get(key)
        return None if entry is None else entry[0]

    def schedule(self, key: TimerKey, deadline: int) -> None:
        """Make ``key`` due at ``deadline``, in place of what it had."""
        self._serial += 1
        self._deadlines[key] = (deadline, self._serial)
        heapq.heappush(self._heap, (deadline, self._serial, key))
        if len(self._heap) > _REBUILD_ABOVE and len(self._heap) > 2 * len(self._deadlines):
            self._heap = [(at, serial, key) for key, (at, serial) in self._deadlines.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        """Forget ``key``; nothing happens if it is not scheduled."""
        self._deadlines.pop(key, None)

    def next_deadline(self) -> int:
        """The earliest deadline, `FOREVER` if there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else FOREVER

    def pop_due(self, now: int) -> TimerKey | None:
        """Take one key whose deadline is at or before ``now``, the earliest first.

        One at a time, because what the caller does about it may cancel or re-arm the next.
        """
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._deadlines[key]
        return key

    def _drop_stale(self) -> None:
        heap, deadlines = self._heap, self._deadlines
        while heap and deadlines.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
