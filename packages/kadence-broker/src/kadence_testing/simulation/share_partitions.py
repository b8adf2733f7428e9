"""One share-partition through a simulation: each turn of the broker is compared with what Kafka's rules allow.

It knows the state after the last turn. Of what members said in the turn, which fetches were open, which sessions ended
and what time it is, `share_rules` derives the states that each record may have now. What the disk has is derived, too,
and compared when the share-partition leaves the memory: then only the disk remembers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kadence.clock import FOREVER
from kadence.types import TopicPartition
from kadence_broker.share.delivery import RecordState
from kadence_broker.storage import Isolation
from kadence_testing.simulation.share_rules import (
    FRESH,
    GAP,
    REJECT,
    RENEW,
    Circumstances,
    Said,
    Slot,
    may_become,
)
from kadence_testing.simulation.share_states import Parts, Stored, parts_of, slots_of, stored_of
from kadence_testing.simulation.transactions import readable

if TYPE_CHECKING:
    from kadence_broker.share.interface import ShareSettings
    from kadence_broker.share.led import Led
    from kadence_broker.share.stored import ShareKey, StoredState
    from kadence_broker.storage import Partition

__all__ = ["Acknowledgement", "BrokerTurn", "End", "Fate", "SharePartitionHistory", "Verdict"]


class Fate(Enum):
    """Why nobody gets a record any more."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    AT_THE_LIMIT = "delivered as often as the group allows"
    GONE = "no record, or one that was deleted or aborted"


class End(Enum):
    """Why a member does not have a record any more."""

    SAID = "it has said what becomes of it"
    SESSION = "its session ended"
    LOCK = "its lock ended"
    DELETED = "the record was deleted"
    UNLOADED = "the share-partition has left the memory of its leader"


class Verdict(Enum):
    """What the answer to an acknowledgement must be."""

    COUNTS = "it counts"
    REFUSED = "it is refused"
    OPEN = "either"


@dataclass(eq=False)
class Acknowledgement:
    """What one request says of one partition.

    Attributes:
        batches: first and last offset, and the types. is_loose: a fault of the broker may keep it from being served.
    """

    member: str
    node_id: int
    batches: Sequence[tuple[int, int, Sequence[int]]]
    is_loose: bool
    verdict: Verdict = Verdict.REFUSED

    def kinds(self, start: int) -> Iterable[tuple[int, int]]:
        """Offsets from ``start`` on, and what is said of each."""
        for first, last, types in self.batches:
            for offset in range(max(first, start), last + 1):
                yield offset, types[offset - first] if len(types) > 1 else types[0]


class BrokerTurn(NamedTuple):
    """What happened to one share-partition in a turn of the broker.

    Attributes:
        readers: members with an open fetch at its leader. gone: those whose session there has ended.
        must_go: those of them that surely hold nothing any more. has_sessions: whether one was there all the time.
        settings: the group's.
    """

    now: int
    said: Sequence[Acknowledgement]
    readers: AbstractSet[str]
    gone: AbstractSet[str]
    must_go: AbstractSet[str]
    has_sessions: bool
    settings: ShareSettings

    def around(self) -> Circumstances:
        """The same for the rules."""
        settings = self.settings
        return Circumstances(
            self.now,
            settings.lock_duration_ms,
            settings.delivery_count_limit,
            bool(settings.dead_letter_topic),
            settings.renew_enabled,
            self.readers,
            self.gone,
        )


_ARCHIVED: Final = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})


@dataclass(eq=False)
class SharePartitionHistory:
    """See the top of the file.

    Args:
        stored: what the disk has. object_to: called with each broken rule. on_late: called with the offset, member and
            count of a lock that ended.

    Attributes:
        start, slots: the state after the last turn. fates: of records that are done. first: the first start.
        seen: offsets that a program has reported. accepted: those that the broker said are accepted.
        taken: of members, the count of each record that they acquired since their last fetch began.
        ended: why a member (with the count) does not have a record any more.
    """

    key: ShareKey
    log: Partition
    stored: StoredState
    object_to: Callable[[str], None]
    on_late: Callable[[int, Slot], None]
    start: int = -1
    first: int = -1
    slots: dict[int, Slot] = field(default_factory=dict)
    fates: dict[int, Fate] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    accepted: set[int] = field(default_factory=set)
    taken: dict[str, dict[int, int]] = field(default_factory=dict)
    ended: dict[tuple[int, str, int], End] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.version = self.stored.state_epoch, self.stored.snapshot_epoch
        self._disk: Stored = stored_of(self.stored)
        self._disk_start = self.stored.start_offset
        self._led: Led | None = None
        self._led_at: tuple[int, int] = (-1, -1)
        self._parts: Parts | None = None
        self._next_end = FOREVER
        self._read_committed = False
        self._from_disk()

    @property
    def name(self) -> str:
        """For errors."""
        return f"share group {self.key.group_id!r}, {self.log.topic.name}-{self.log.index}"

    @property
    def partition(self) -> TopicPartition:
        """Whose records these are."""
        return TopicPartition(self.log.topic.name, self.log.index)

    @property
    def is_empty(self) -> bool:
        """Whether all records are done. The start may stand before the last ones until others come."""
        offsets = range(max(self.start, 0), self.log.end_offset)
        return all(self.slots.get(offset, FRESH).is_done for offset in offsets)

    def _wrong(self, what: str, offset: int | None = None) -> None:
        place = "" if offset is None else f" offset {offset}"
        self.object_to(f"{self.name}{place}: {what}")

    # ------------------------------------------------------------ turns

    def turned(self, led: Led | None, stored: StoredState, turn: BrokerTurn) -> None:
        """The broker's loop has run a turn. ``led``: the share-partition in the memory of its leader."""
        if led is not None and led.state.is_fenced:
            led = None
        self.stored = stored
        if self._led is not None and led is not self._led:
            self._unloaded(turn, is_replaced=led is not None)
            turn = turn._replace(said=())
        if led is not None:
            self._compare(led, turn)
        elif turn.gone:
            # It may have been loaded, read and unloaded in this turn.
            self._check_disk({}, turn.around())
            self._from_disk()

    def crashed(self) -> None:
        """The broker is killed: the disk has what it had after the last turn."""
        if self._led is not None:
            self._check_disk({}, None)
            self._forget(End.UNLOADED)

    def restarted(self, stored: StoredState | None) -> None:
        """Another broker has loaded the files of the one before it."""
        if stored is None:
            self._wrong("the restart has lost its state")
            return
        self.stored = stored
        self.version = stored.state_epoch, stored.snapshot_epoch
        if stored.start_offset != self._disk_start:
            self._wrong(f"the restart moved the start from {self._disk_start} to {stored.start_offset}")
        self._check_disk({}, None)

    def _compare(self, led: Led, turn: BrokerTurn) -> None:
        parts = parts_of(led.state)
        self._read_committed = turn.settings.read_committed
        if led is not self._led:
            self._led = led
            self._led_at = led.log.leader_id, led.log.leader_epoch
            if self.start < 0:
                self._begins(parts.start, turn.settings)
            for each in turn.said:
                # Whoever had something of it, had it of the leader before.
                each.is_loose = True
        elif parts == self._parts and not turn.said and turn.now < self._next_end and not turn.must_go:
            return
        around = turn.around()
        words = self._words(turn.said, around, parts.start)
        new = slots_of(parts)
        if parts.start < self.start:
            self._wrong(f"its start went back from {self.start} to {parts.start}")
        for offset in range(self.start, parts.start):
            self._passed(offset, words.get(offset, ()), around)
        changed = {offset for offset, slot in new.items() if self.slots.get(offset) != slot}
        gone = {offset for offset in self.slots if offset >= parts.start and offset not in new}
        for offset in sorted(changed | gone | {each for each in words if each >= parts.start}):
            self._step(offset, new.get(offset, FRESH), words.get(offset, ()), around)
        self._owed(new, turn)
        self.start, self.slots, self._parts = parts.start, new, parts
        self._next_end = min((slot.ends for slot in new.values()), default=FOREVER)
        self._stores(new)

    def _begins(self, start: int, settings: ShareSettings) -> None:
        """It had no place yet: the group's reset decides."""
        if settings.offset_reset == "earliest" and start > self.log.start_offset:
            self._wrong(f"it begins at {start}, though the log begins at {self.log.start_offset}")
        self.start = start
        self.first = start if self.first < 0 else self.first

    def _words(
        self, said: Iterable[Acknowledgement], around: Circumstances, new_start: int
    ) -> dict[int, list[Said]]:
        """What is said of each offset, as far as it may count; and what must be answered."""
        words: dict[int, list[Said]] = {}
        for each in said:
            kinds = dict(each.kinds(self.start))
            can, sure = True, not each.is_loose
            for offset, kind in kinds.items():
                before = self.slots.get(offset, FRESH)
                slots = may_become(before, words.get(offset, ()), around)
                held = [slot for slot in slots if slot.is_acquired and slot.member == each.member]
                can = can and bool(held) and (kind != RENEW or around.renews)
                sure = sure and len(held) == len(slots)
            if any(self.start <= last < new_start for _, last, _ in each.batches):
                # Whether it was below the start when its turn came is not known.
                each.verdict = Verdict.OPEN
                can = can and bool(kinds)
            elif each.is_loose:
                # It may have counted in an earlier turn.
                each.verdict = Verdict.OPEN if can or each.verdict is Verdict.OPEN else Verdict.REFUSED
            elif can:
                each.verdict = Verdict.COUNTS if sure else Verdict.OPEN
            else:
                each.verdict = Verdict.REFUSED
            if can:
                is_sure = each.verdict is Verdict.COUNTS
                for offset, kind in kinds.items():
                    words.setdefault(offset, []).append(Said(each.member, kind, is_sure))
        return words

    def _step(self, offset: int, after: Slot, words: Sequence[Said], around: Circumstances) -> None:
        """One offset that is still to be done."""
        before = self.slots.get(offset, FRESH)
        if after not in may_become(before, words, around) and not (
            self._is_hole(offset) and after in may_become(before, words, around, is_hole=True)
        ):
            self._wrong(f"it was {before}, and is {after}{_told(words)}", offset)
        if after.is_acquired and (after.member, after.deliveries) != (before.member, before.deliveries):
            self.taken.setdefault(after.member, {})[offset] = after.deliveries
            if offset in self.accepted:
                self._wrong(f"it was accepted, and {after.member!r} gets it again", offset)
        if before.is_acquired and (after.member, after.deliveries) != (before.member, before.deliveries):
            self._lost(offset, before, words, around)
        if after.state is RecordState.ACKNOWLEDGED or after.state in _ARCHIVED:
            self._settle(offset, after, words, around)

    def _passed(self, offset: int, words: Sequence[Said], around: Circumstances) -> None:
        """The start has moved over an offset."""
        before = self.slots.get(offset, FRESH)
        done = [slot for slot in may_become(before, words, around) if slot.is_done]
        is_gone = not done and (offset < self.log.start_offset or self._is_hole(offset))
        if is_gone:
            done = [Slot(RecordState.ARCHIVED, before.deliveries)]
        if not done:
            self._wrong(f"the start moved over it, and it was {before}{_told(words)}", offset)
            return
        if before.is_acquired and is_gone:
            # Its member has it still, and nobody looks at its lock.
            self.ended[offset, before.member, before.deliveries] = End.DELETED
        elif before.is_acquired:
            self._lost(offset, before, words, around)
        self._settle(offset, done[0], words, around)
        self._disk[offset] = done[0].state, done[0].deliveries

    def _lost(self, offset: int, before: Slot, words: Sequence[Said], around: Circumstances) -> None:
        """A member does not have a record any more."""
        if any(word.member == before.member and word.kind != RENEW for word in words):
            why = End.SAID
        elif before.member in around.gone:
            why = End.SESSION
        else:
            why = End.LOCK
            self.on_late(offset, before)
        self.ended[offset, before.member, before.deliveries] = why

    def _settle(self, offset: int, after: Slot, words: Sequence[Said], around: Circumstances) -> None:
        """A record is done, or waits for its dead letter."""
        if offset in self.fates:
            return
        kinds = {word.kind for word in words}
        if after.state is RecordState.ACKNOWLEDGED:
            self.fates[offset] = Fate.ACCEPTED
        elif REJECT in kinds:
            self.fates[offset] = Fate.REJECTED
        elif self._is_hole(offset):
            self.fates[offset] = Fate.GONE
        elif after.deliveries >= around.limit:
            self.fates[offset] = Fate.AT_THE_LIMIT
        else:
            self.fates[offset] = Fate.GONE
            said = "a member said that there is no record" if GAP in kinds else "nobody gave it up"
            self._wrong(f"it is archived, and {said}", offset)

    def _owed(self, new: dict[int, Slot], turn: BrokerTurn) -> None:
        """What must not be any more after a turn."""
        for offset, slot in new.items():
            if not slot.is_acquired:
                continue
            if slot.ends <= turn.now:
                self._wrong(f"its lock ended at {slot.ends} ms, and it is still {slot}", offset)
            if slot.member in turn.must_go and slot == self.slots.get(offset):
                self._wrong(f"the session of {slot.member!r} has ended, and it still is {slot}", offset)

    # ------------------------------------------------------------ the disk

    def _stores(self, new: dict[int, Slot]) -> None:
        """What the disk has after a turn. Locks are not stored."""
        for offset, slot in new.items():
            if not slot.is_acquired:
                self._disk[offset] = slot.state, slot.deliveries
        if self.stored.start_offset != self._disk_start:
            if not self._disk_start <= self.stored.start_offset <= self.start:
                self._wrong(
                    f"the stored start moved from {self._disk_start} to {self.stored.start_offset}, and the start is "
                    f"{self.start}"
                )
            self._disk_start = self.stored.start_offset
            self._disk = {offset: slot for offset, slot in self._disk.items() if offset >= self._disk_start}

    def _unloaded(self, turn: BrokerTurn, *, is_replaced: bool) -> None:
        """It has left the memory of its leader, or another one has taken its place there."""
        assert self._led is not None
        led_at = self.log.leader_id, self.log.leader_epoch
        if led_at == self._led_at and turn.has_sessions and not is_replaced:
            self._wrong("it left the memory of its leader, and members read it")
        for each in turn.said:
            each.is_loose = True
        around = turn.around()
        words = self._words(turn.said, around, self.start)
        for each in turn.said:
            each.verdict = Verdict.OPEN
        # Another leadership knows nothing of the locks of this one, and stores no end of them.
        must_go = turn.must_go if led_at == self._led_at else frozenset()
        self._check_disk(words, around, must_go)
        self._forget(End.UNLOADED if led_at != self._led_at else End.SESSION)

    def _check_disk(
        self,
        words: dict[int, list[Said]],
        around: Circumstances | None,
        must_go: Collection[str] = (),
    ) -> None:
        """Compare the disk with what it should have.

        Args:
            words, around, must_go: of the turn that has just been, if the disk may have something of it already.
        """
        real, start = stored_of(self.stored), self.stored.start_offset
        for offset in sorted(real.keys() | self._disk.keys() | self.slots.keys()):
            if offset < start:
                continue
            found, expected = real.get(offset), self._disk.get(offset)
            before = self.slots.get(offset, FRESH)
            is_owed = before.is_acquired and before.member in must_go
            if found == expected and not is_owed:
                continue
            told = words.get(offset, ())
            may = set() if around is None else may_become(before, told, around)
            if found in {(slot.state, slot.deliveries) for slot in may if not slot.is_acquired}:
                assert found is not None
                if around is not None and found[0] is not RecordState.AVAILABLE:
                    self._settle(offset, Slot(*found), told, around)
                continue
            if self._is_hole(offset):
                continue
            self._wrong(
                f"it was {before}, the disk should have {_shown(expected)}, and has {_shown(found)}{_told(told)}",
                offset,
            )
        self._disk, self._disk_start = real, start

    def _forget(self, why: End) -> None:
        """Only the disk knows it now."""
        for offset, slot in self.slots.items():
            if slot.is_acquired:
                self.ended.setdefault((offset, slot.member, slot.deliveries), why)
        self._led = self._parts = None
        self._from_disk()

    def _from_disk(self) -> None:
        self.start = self._disk_start
        self.slots = {offset: Slot(*each) for offset, each in self._disk.items()}
        if self.start >= 0 and self.first < 0:
            self.first = self.start

    def _is_hole(self, offset: int) -> bool:
        """Whether the log has no record there that the group may get."""
        isolation = Isolation.COMMITTED if self._read_committed else Isolation.UNCOMMITTED
        return offset not in readable(self.log, offset, isolation)

    def deliverable(self) -> set[int]:
        """The offsets of all records of the log that the group may get."""
        isolation = Isolation.COMMITTED if self._read_committed else Isolation.UNCOMMITTED
        return readable(self.log, max(self.first, 0), isolation)


def _shown(stored: tuple[RecordState, int] | None) -> str:
    return "nothing" if stored is None else f"{stored[0].name}, delivered {stored[1]} times"


def _told(words: Sequence[Said]) -> str:
    """What was said, for an error."""
    names = ("gap", "accept", "release", "reject", "renew")
    return "".join(f"; {word.member!r} says {names[word.kind]}" for word in words)
