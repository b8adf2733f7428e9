"""What one step does to the records of a share-partition: what is to be stored of it, and how it is undone.

A step changes the states at once, and then its changes are stored. They count once that has succeeded; else they are
undone, so that the group is where it was before the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kadence_broker.share.delivery import Delivery, RecordState

__all__ = ["Change", "Changes", "DeadLetter", "StateBatch"]


class StateBatch(NamedTuple):
    """Neighbouring offsets with the same state and count, as they are stored."""

    first: int
    last: int
    state: RecordState
    deliveries: int


class DeadLetter(NamedTuple):
    """Records that became ARCHIVING and whose dead letters are to be written."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool


class Change(NamedTuple):
    """One delivery before it was changed; ``is_stored`` is False for a renewed lock, which nobody stores."""

    delivery: Delivery
    first: int
    last: int
    state: RecordState
    member: str
    lock_ends: int
    is_stored: bool


@dataclass(slots=True)
class Changes:
    """The changes of one step, in their order.

    Attributes:
        rejected: first offsets of what the member rejected (the others that are archived ran out of attempts).
    """

    made: list[Change] = field(default_factory=list)
    rejected: set[int] = field(default_factory=set)

    def add(self, delivery: Delivery, first: int, last: int, *, is_stored: bool = True) -> None:
        """Remember ``delivery`` as it is before a change."""
        self.made.append(
            Change(delivery, first, last, delivery.state, delivery.member, delivery.lock_ends, is_stored)
        )

    @property
    def stored(self) -> list[StateBatch]:
        """What is to be stored: neighbours with one state and count are one entry."""
        joined: list[StateBatch] = []
        for each in self.made:
            if each.is_stored:
                new = StateBatch(each.first, each.last, each.delivery.state, each.delivery.count)
                last = joined[-1] if joined else None
                if last is not None and last.last + 1 == new.first and last[2:] == new[2:]:
                    joined[-1] = last._replace(last=new.last)
                else:
                    joined.append(new)
        return joined

    def dead_letters(self) -> Iterator[DeadLetter]:
        """The records that these changes made ARCHIVING."""
        for each in self.made:
            if each.delivery.state is RecordState.ARCHIVING:
                yield DeadLetter(each.first, each.last, each.delivery.count, each.first in self.rejected)
