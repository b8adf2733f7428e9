"""The state of records on their way to a group (KIP-932): one for a whole batch, or one for each offset of it.

    AVAILABLE ── acquire ──▶ ACQUIRED ── accept ──────────────────────▶ ACKNOWLEDGED
        ▲                        │ ├──── gap, reject, last attempt ────▶ ARCHIVED
        └── release, lock ends ──┘ └──── reject, last attempt, where the group has a dead letter topic ──▶
                                                                        ARCHIVING ──▶ ARCHIVED   (KIP-1191)

What is ACKNOWLEDGED or ARCHIVED is done: the group never sees it again. An ARCHIVING record waits for its dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from kadence.clock import FOREVER

__all__ = ["DONE", "NOBODY", "Delivery", "InFlightBatch", "RecordState"]

NOBODY: Final = ""
"""No member has this id (`kadence_broker.share.validation`)."""


class RecordState(IntEnum):
    """The numbers are those of the stored state."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


DONE: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


@dataclass(slots=True, eq=False)
class Delivery:
    """The state of one offset, or of a batch of them.

    Attributes:
        count: how often it was acquired.
        member: who has it, or `NOBODY`.
        lock_ends: when it is released if nothing else happens (ms); FOREVER while nobody has it.
        is_settling: it has just been changed, and does not count as available or done yet.
    """

    state: RecordState
    count: int
    member: str = NOBODY
    lock_ends: int = FOREVER
    is_settling: bool = False

    @property
    def is_done(self) -> bool:
        return self.state in DONE and not self.is_settling

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and not self.is_settling

    def is_held_by(self, member: str) -> bool:
        return self.state is RecordState.ACQUIRED and self.member == member


class InFlightBatch:
    """Neighbouring offsets that were acquired together for the first time; its bounds never change.

    Attributes:
        whole: the state of all its offsets; None once they differ.
        each: then the states of the offsets, in their order.
        looked_at: when the share-partition looks for locks of it that have ended; FOREVER: it has none.
    """

    __slots__ = ("each", "first", "last", "looked_at", "whole")

    def __init__(self, first: int, last: int, delivery: Delivery) -> None:
        self.first = first
        self.last = last
        self.whole: Delivery | None = delivery
        self.each: list[Delivery] = []
        self.looked_at = FOREVER

    def __repr__(self) -> str:
        states = [self.whole] if self.whole is not None else self.each
        return f"<batch {self.first}..{self.last} {','.join(f'{d.state.name}/{d.count}' for d in states)}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        """From now on each offset has a state of its own."""
        whole = self.whole
        if whole is not None:
            self.each = [replace(whole) for _ in range(self.size)]
            self.whole = None

    def lies_within(self, first: int, last: int) -> bool:
        return first <= self.first and self.last <= last

    def straddles(self, start_offset: int) -> bool:
        """True if it begins below ``start_offset`` and ends at or above it."""
        return self.first < start_offset <= self.last

    def parts(self) -> Iterator[tuple[int, int, Delivery]]:
        """First offset, last offset and state of everything that has a state of its own."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
        else:
            for number, delivery in enumerate(self.each):
                yield self.first + number, self.first + number, delivery

    def parts_within(self, first: int, last: int) -> Iterator[tuple[int, int, Delivery]]:
        """Those of `parts` that overlap two offsets; the others cost nothing."""
        if self.whole is None:
            for offset, delivery in self.within(first, last):
                yield offset, offset, delivery
        elif self.first <= last and self.last >= first:
            yield self.first, self.last, self.whole

    def within(self, first: int, last: int) -> Iterator[tuple[int, Delivery]]:
        """Offsets and their states between two offsets, of a batch that is split."""
        begin, end = max(first, self.first), min(last, self.last)
        for offset in range(begin, end + 1):
            yield offset, self.each[offset - self.first]
