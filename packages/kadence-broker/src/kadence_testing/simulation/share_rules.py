"""Kafka's rules for the records of a share group (KIP-932), written down a second time.

The state of a record before a turn of the broker, and what happened to it in the turn, give the states that it may have
after the turn. The rules are those of the state machine alone. They know nothing of batches, of how they are split, nor
of what is stored, so a fault in that is no fault here.

    what was said           only by the member that has the record: accept, reject, release, gap, renew
    a lock that ended       is a release
    a session that ended    is a release of all that its member has
    a release               keeps the count; at the limit of deliveries the record is archived
    an acquisition          raises the count by one, and locks the record for the group's duration, from then on
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from kadence.clock import FOREVER, add_ms
from kadence_broker.share.delivery import DONE, NOBODY, RecordState

__all__ = [
    "ACCEPT",
    "FRESH",
    "GAP",
    "REJECT",
    "RELEASE",
    "RENEW",
    "Circumstances",
    "Said",
    "Slot",
    "may_become",
]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""What a member says of a record: the numbers of the protocol."""

_ROUNDS: Final = 4
"""So often a record may be released and acquired within one turn of the broker."""


class Slot(NamedTuple):
    """The state of one record. ``deliveries``: how often it was acquired. ``ends``: when its lock does (ms)."""

    state: RecordState
    deliveries: int
    member: str = NOBODY
    ends: int = FOREVER

    @property
    def is_acquired(self) -> bool:
        return self.state is RecordState.ACQUIRED

    @property
    def is_done(self) -> bool:
        return self.state in DONE

    def __str__(self) -> str:
        holder = f" by {self.member!r} until {self.ends} ms" if self.is_acquired else ""
        return f"{self.state.name}, delivered {self.deliveries} times{holder}"


FRESH: Final = Slot(RecordState.AVAILABLE, 0)
"""A record that nobody has had yet."""


class Said(NamedTuple):
    """What a member says of one record. ``is_sure``: it counts; else it may have come too late, or not at all."""

    member: str
    kind: int
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else happens to a share-partition in a turn.

    Attributes:
        now: the time of the turn (ms). lock_ms, limit, has_dead_letters, renews: the group's settings.
        readers: members that have a fetch at the broker. gone: those whose session has ended.
    """

    now: int
    lock_ms: int
    limit: int
    has_dead_letters: bool
    renews: bool
    readers: AbstractSet[str] = frozenset()
    gone: AbstractSet[str] = frozenset()

    def released(self, slot: Slot) -> Slot:
        """What a release makes of a record."""
        if slot.deliveries < self.limit:
            return Slot(RecordState.AVAILABLE, slot.deliveries)
        return Slot(self._given_up, slot.deliveries)

    def told(self, slot: Slot, kind: int) -> Slot | None:
        """What the word of the member that has it makes of a record; None: the group does not allow it."""
        if kind == ACCEPT:
            return Slot(RecordState.ACKNOWLEDGED, slot.deliveries)
        if kind == GAP:
            return Slot(RecordState.ARCHIVED, slot.deliveries)
        if kind == REJECT:
            return Slot(self._given_up, slot.deliveries)
        if kind == RELEASE:
            return self.released(slot)
        return slot._replace(ends=add_ms(self.now, self.lock_ms)) if self.renews else None

    @property
    def _given_up(self) -> RecordState:
        return RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED

    def beside(self, slots: Iterable[Slot], *, is_hole: bool) -> set[Slot]:
        """These, and what they may become without a word of a member."""
        found = set(slots)
        new = found
        for _ in range(_ROUNDS):
            new = {after for slot in new for after in self._steps(slot, is_hole=is_hole)} - found
            if not new:
                break
            found |= new
        return found

    def _steps(self, slot: Slot, *, is_hole: bool) -> Iterable[Slot]:
        if slot.is_acquired:
            if slot.ends <= self.now or slot.member in self.gone:
                yield self.released(slot)
        elif slot.state is RecordState.ARCHIVING:
            yield Slot(RecordState.ARCHIVED, slot.deliveries)
        elif slot.state is RecordState.AVAILABLE:
            ends = add_ms(self.now, self.lock_ms)
            for member in self.readers:
                yield Slot(RecordState.ACQUIRED, slot.deliveries + 1, member, ends)
        if is_hole and not slot.is_done:
            # Retention, compaction or an aborted transaction took it: nobody can read it, or nobody should.
            yield Slot(RecordState.ARCHIVED, slot.deliveries)


def may_become(
    before: Slot, said: Iterable[Said], around: Circumstances, *, is_hole: bool = False
) -> set[Slot]:
    """The states that a record may have after a turn.

    Args:
        said: what members say of it, in the order in which it came. is_hole: it has no record that the group may get.
    """
    found = around.beside({before}, is_hole=is_hole)
    for word in said:
        told = {
            after
            for slot in found
            if slot.is_acquired
            and slot.member == word.member
            and (after := around.told(slot, word.kind)) is not None
        }
        found = around.beside(told if word.is_sure else found | told, is_hole=is_hole)
    return found
