"""Timers as data: a deadline for each key, the earliest first. Scheduling a key again replaces it.

Heartbeats push the same key's deadline back thousands of times before it is due, so that costs no work in the heap: a
key has one entry there, which is moved to its true place when it comes to the top. Entries of cancelled keys are
dropped there too, and all at once when they outnumber the others.
"""

from __future__ import annotations

import heapq
from enum import StrEnum
from typing import NamedTuple

from kadence.clock import FOREVER

__all__ = ["TimerKey", "TimerKind", "Timers"]

_REBUILD_ABOVE = 64


class TimerKind(StrEnum):
    """The kind of a timer. Text, because each heartbeat looks timers up by it: an `Enum` is hashed in Python."""

    SESSION = "session"
    """A member, or a pending member id, has sent nothing for a session timeout."""
    JOIN = "join"
    """The join phase has lasted a rebalance timeout, or the initial delay is over."""
    SYNC = "sync"
    """Members that joined have had a rebalance timeout to sync."""
    REBALANCE = "rebalance"
    """A KIP-848 member has had a rebalance timeout to revoke partitions."""
    MATCH = "match"
    """A KIP-848 group has more regular expressions to match than fit into one step."""
    EXPIRY = "expiry"
    """Time to look for expired offsets, or transactional ids."""
    TRANSACTION = "transaction"
    """A transaction has been open for its timeout."""


class TimerKey(NamedTuple):
    """Identifies a timer; ``member_id`` is empty for timers of the group. A transaction's has the transactional id."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class _Entry:
    """One key's deadline, and its entry in the heap: not later than the deadline, identified by its serial number."""

    __slots__ = ("deadline", "queued_at", "serial")

    def __init__(self, deadline: int, serial: int) -> None:
        self.deadline = self.queued_at = deadline
        self.serial = serial


class Timers:
    """Keyed deadlines in milliseconds."""

    __slots__ = ("_entries", "_heap", "_serial")

    def __init__(self) -> None:
        self._entries: dict[TimerKey, _Entry] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._entries

    def deadline(self, key: TimerKey) -> int | None:
        """The deadline of ``key``; None if it is not scheduled."""
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline

    def schedule(self, key: TimerKey, deadline: int) -> None:
        """Set the deadline of ``key``, in place of an earlier one."""
        entry = self._entries.get(key)
        if entry is not None and entry.queued_at <= deadline:
            entry.deadline = deadline
            return
        self._serial += 1
        self._entries[key] = _Entry(deadline, self._serial)
        heapq.heappush(self._heap, (deadline, self._serial, key))
        self._drop_many()

    def cancel(self, key: TimerKey) -> None:
        """Forget ``key``; no effect if it is not scheduled."""
        if self._entries.pop(key, None) is not None:
            self._drop_many()

    def next_deadline(self) -> int:
        """The earliest deadline, `FOREVER` if there is none."""
        self._settle_top()
        return self._heap[0][0] if self._heap else FOREVER

    def pop_due(self, now: int) -> TimerKey | None:
        """Take one key whose deadline is at or before ``now``, the earliest first.

        One at a time, because the caller's action may cancel or re-arm the next.
        """
        self._settle_top()
        if not self._heap or self._heap[0][0] > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._entries[key]
        return key

    def _settle_top(self) -> None:
        """Drop stale entries, and move postponed ones, until the top is a deadline."""
        heap, entries = self._heap, self._entries
        while heap:
            at, serial, key = heap[0]
            entry = entries.get(key)
            if entry is None or entry.serial != serial:
                heapq.heappop(heap)
            elif entry.deadline != at:
                entry.queued_at = entry.deadline
                heapq.heapreplace(heap, (entry.deadline, serial, key))
            else:
                return

    def _drop_many(self) -> None:
        if len(self._heap) > _REBUILD_ABOVE and len(self._heap) > 2 * len(self._entries):
            for entry in self._entries.values():
                entry.queued_at = entry.deadline
            self._heap = [(entry.deadline, entry.serial, key) for key, entry in self._entries.items()]
            heapq.heapify(self._heap)
