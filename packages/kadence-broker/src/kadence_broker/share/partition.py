"""One share-partition at its leader (KIP-932): which offsets are in flight, and where reading begins and goes on.

    start offset ──── in flight: batches, some split into offsets ──── end offset ── not read yet ──▶
    (all below is done)          (holes: compacted away, or not stored)

`kadence_broker.share.acquiring` gives records out, `kadence_broker.share.acknowledging` takes the members' answers. The
rules and their order are those of Apache Kafka 4.4's SharePartition, which its clients have come to rely on. Nothing
here reads a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from kadence.clock import FOREVER, add_ms
from kadence_broker.share.changes import Changes, DeadLetter, StateBatch
from kadence_broker.share.delivery import DONE, NOBODY, Delivery, InFlightBatch, RecordState
from kadence_broker.share.in_flight import InFlight
from kadence_broker.share.interface import ShareSettings

__all__ = ["DamagedStateError", "SharePartition"]


class DamagedStateError(Exception):
    """The stored state of a share-partition contradicts itself."""


class SharePartition:
    """The state of one. Its leader's thread owns it.

    Attributes:
        start_offset: everything below it is done.
        end_offset: the last offset in flight; the next one to read while nothing is.
        done_count: offsets from the start offset on that are done.
        state_epoch: of the stored state from which this was loaded.
        is_fenced: it has been altered, deleted or moved: nothing may be acquired or acknowledged.
    """

    __slots__ = (
        "_gap_end",
        "_gap_start",
        "_locks",
        "_may_have_available",
        "_serial",
        "done_count",
        "end_offset",
        "in_flight",
        "is_fenced",
        "start_offset",
        "state_epoch",
    )

    def __init__(self, start_offset: int, state_epoch: int = 0, stored: Sequence[StateBatch] = ()) -> None:
        """Begin with what is stored.

        Raises:
            DamagedStateError: it cannot be true.
        """
        self.in_flight = InFlight()
        self.start_offset = self.end_offset = start_offset
        self.state_epoch = state_epoch
        self.done_count = 0
        self.is_fenced = False
        self._may_have_available = False
        self._gap_start = self._gap_end = -1
        self._locks: list[tuple[int, int, InFlightBatch]] = []
        self._serial = count()
        if stored:
            self._load(stored)

    def __repr__(self) -> str:
        return f"<share-partition {self.start_offset}..{self.end_offset}, {len(self.in_flight)} batches>"

    def _load(self, stored: Sequence[StateBatch]) -> None:
        expected = self.start_offset
        for each in stored:
            if not max(self.start_offset, expected) <= each.first <= each.last:
                raise DamagedStateError(
                    f"a batch of offsets {each.first} to {each.last} where at least {expected} should stand"
                )
            if each.first > expected and self._gap_start < 0:
                self._gap_start = expected
            expected = each.last + 1
            self.in_flight.add(InFlightBatch(each.first, each.last, Delivery(each.state, each.deliveries)))
            if each.state in DONE:
                self.done_count += each.last - each.first + 1
        self.end_offset = expected - 1
        self._gap_end = self.end_offset if self._gap_start >= 0 else -1
        self._may_have_available = True
        self.advance()

    # Holes in the stored state: offsets that were given out and never answered before a restart

    @property
    def has_gaps(self) -> bool:
        """True while offsets below the end may be neither in flight nor done."""
        return self._gap_start >= 0 and self._gap_end == self.end_offset

    def read_up_to(self, offset: int) -> None:
        """Everything below ``offset`` is in flight or done: gaps begin there, if any are left.

        Gaps never begin below that again. A record that was released and is acquired anew lies below them, and the
        start would not move over its batch.
        """
        if self._gap_start >= 0:
            is_left = self.has_gaps and offset <= self._gap_end
            self._gap_start = max(self._gap_start, offset) if is_left else -1

    def _gaps_begin_at(self, offset: int) -> None:
        """Nothing below ``offset`` can be read any more: a fetch from a gap there would bring nothing, for ever."""
        if self._gap_start >= 0:
            self._gap_start = max(self._gap_start, offset)

    def read_jumped(self, begin: int, offset: int) -> None:
        """A read from ``begin`` found its first batch at ``offset``: compaction took what was missing between.

        A start offset in a gap that has gone would never move again, and the window would fill up.
        """
        self._gaps_begin_at(offset)
        if begin <= self.start_offset and self.in_flight.floor(self.start_offset) is None:
            self.start_offset = min(self.in_flight.first.first, offset)

    # Where to read

    @property
    def window(self) -> int:
        """Offsets from the start to the end: what the limit of locks is about."""
        return self.end_offset - self.start_offset + 1 if len(self.in_flight) else 0

    @property
    def next_offset(self) -> int:
        """The offset of the next read: the lowest that is available, else the first that was not read yet."""
        if not len(self.in_flight) or self.start_offset > self.in_flight.last.last:
            return self.end_offset
        if self._may_have_available:
            found = self._first_available()
            if found is not None:
                return found
            self._may_have_available = False
        return self.end_offset + 1

    def look_for_available(self) -> None:
        """Something became available by another way than `change`."""
        self._may_have_available = True

    def _first_available(self) -> int | None:
        gap = self._gap_start if self.has_gaps else -1
        for batch in self.in_flight:
            if self.has_gaps:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for first, _, delivery in batch.parts():
                if delivery.is_available:
                    return first
        return None

    def may_read(self, settings: ShareSettings) -> bool:
        """True if a read may bring something: a released record, or new ones while the window is not full.

        What was archived without an answer of a member (aborted, compacted away) may fill the window. Nobody's answer
        will move the start over that, so it moves here, or the group would stand still for ever.
        """
        if self.next_offset != self.end_offset + 1 or self.window < settings.max_record_locks:
            return True
        return self.advance() and self.window < settings.max_record_locks

    # The one door for changes of state

    def change(
        self,
        delivery: Delivery,
        first: int,
        last: int,
        state: RecordState,
        changes: Changes | None = None,
    ) -> None:
        """Let a delivery of the offsets ``first`` to ``last`` have another state, and nobody have it."""
        if changes is not None:
            changes.add(delivery, first, last)
        self._count(delivery.state, state, first, last)
        delivery.state = state
        delivery.member = NOBODY
        delivery.lock_ends = FOREVER

    def _count(self, before: RecordState, after: RecordState, first: int, last: int) -> None:
        if (after in DONE) is not (before in DONE):
            size = max(last - max(first, self.start_offset) + 1, 0)
            self.done_count += size if after in DONE else -size
        if after is RecordState.AVAILABLE:
            self._may_have_available = True

    def release(
        self, delivery: Delivery, first: int, last: int, settings: ShareSettings, changes: Changes
    ) -> None:
        """Let others have what a member had; after the last attempt nobody gets it any more."""
        state = RecordState.AVAILABLE
        if last < self.start_offset:
            state = RecordState.ARCHIVED
        elif delivery.count >= settings.delivery_count_limit:
            state = RecordState.ARCHIVING if settings.dead_letter_topic else RecordState.ARCHIVED
        self.change(delivery, first, last, state, changes)

    def lock(
        self, now: int, batch: InFlightBatch, deliveries: Iterable[Delivery], settings: ShareSettings
    ) -> None:
        """Let what a member has be released if it does not answer in time."""
        ends = add_ms(now, settings.lock_duration_ms)
        for each in deliveries:
            each.lock_ends = ends
        self._look_at(batch, ends)

    def _look_at(self, batch: InFlightBatch, at: int) -> None:
        """Look for ended locks of a batch ``at`` that time: once for all of them, however often they are renewed."""
        if at < batch.looked_at:
            batch.looked_at = at
            heapq.heappush(self._locks, (at, next(self._serial), batch))

    def undo(self, changes: Changes) -> None:
        """Take back what could not be stored, or was part of a request that is refused."""
        for each in reversed(changes.made):
            self._count(each.delivery.state, each.state, each.first, each.last)
            each.delivery.state = each.state
            each.delivery.member = each.member
            each.delivery.lock_ends = each.lock_ends

    def settle(self, changes: Changes) -> None:
        """What these changes made available or done counts from now on."""
        for each in changes.made:
            if each.delivery.is_settling:
                # Its batch may have been split since then.
                for _, _, delivery in self._parts_within(each.first, each.last):
                    delivery.is_settling = False
        self._may_have_available = True
        # A renewal moves nothing, as in Kafka: it is not stored.
        if any(each.is_stored for each in changes.made):
            self.advance()

    # Locks

    def next_lock_end(self) -> int:
        """When `expire` has something to do; FOREVER: never, as things are."""
        while self._locks and _next_end(self._locks[0][2]) == FOREVER:
            heapq.heappop(self._locks)[2].looked_at = FOREVER
        return self._locks[0][0] if self._locks else FOREVER

    def expire(self, now: int, settings: ShareSettings) -> Changes:
        """Release everything whose lock has ended."""
        changes = Changes()
        while self._locks and self._locks[0][0] <= now:
            batch = heapq.heappop(self._locks)[2]
            batch.looked_at = FOREVER
            for first, last, delivery in self._split_at_start(batch):
                if delivery.state is RecordState.ACQUIRED and delivery.lock_ends <= now:
                    self.release(delivery, first, last, settings, changes)
            self._look_at(batch, _next_end(batch))
        return changes

    def release_member(self, member: str, settings: ShareSettings) -> Changes:
        """Release everything that a member has: its session has ended."""
        changes = Changes()
        for batch in self.in_flight:
            if any(delivery.is_held_by(member) for _, _, delivery in batch.parts()):
                for first, last, delivery in self._split_at_start(batch):
                    if delivery.is_held_by(member):
                        self.release(delivery, first, last, settings, changes)
        return changes

    def _split_at_start(self, batch: InFlightBatch) -> Iterator[tuple[int, int, Delivery]]:
        if batch.straddles(self.start_offset):
            batch.split()
        return batch.parts()

    # Moves of the start

    def advance(self) -> bool:
        """Move the start offset over what is done, and forget that. Returns whether it moved."""
        if not self._is_done_at_start():
            return False
        done_up_to, done = self._done_prefix()
        if done_up_to < 0:
            return False
        last = self.in_flight.last.last
        if done_up_to == last:
            self.start_offset = self.end_offset = max(last + 1, self.start_offset)
            self.in_flight.forget_before(FOREVER)
            self.done_count = 0
            return True
        self._gaps_begin_at(done_up_to + 1)
        holder = self.in_flight.floor(done_up_to)
        assert holder is not None
        if done_up_to == holder.last:
            start = self.in_flight.next_first(done_up_to)
            if self.has_gaps:
                start = min(start, self._gap_start)
            self.in_flight.forget_before(holder.last + 1)
        else:
            start = done_up_to + 1
            self.in_flight.forget_before(holder.first)
        self.start_offset = max(start, self.start_offset)
        self.done_count -= done
        return True

    def _is_done_at_start(self) -> bool:
        batch = self.in_flight.floor(self.start_offset)
        if batch is None:
            return False  # A gap is at the beginning, or nothing is in flight.
        if batch.whole is not None:
            return batch.whole.is_done
        return batch.each[min(self.start_offset, batch.last) - batch.first].is_done

    def _done_prefix(self) -> tuple[int, int]:
        """The last offset of what is done at the beginning, and how many of these are not below the start offset.

        It ends before a gap that was not read yet. What is done right behind a gap that was read counts, or a group
        whose window it fills would stand still.
        """
        found, done = -1, 0
        for batch in self.in_flight:
            if self.has_gaps and found >= 0 and max(found + 1, self._gap_start) < batch.first:
                break
            for first, last, delivery in batch.parts():
                if not delivery.is_done:
                    return found, done
                found = last
                done += max(last - max(first, self.start_offset) + 1, 0)
        return found, done

    def log_starts_at(self, offset: int) -> bool:
        """Retention or DeleteRecords removed everything below ``offset``: what nobody has of it is archived.

        What members have of it stays theirs until they answer or their locks end. Returns whether the start moved.
        """
        if offset <= self.start_offset:
            # The rest of a batch that was read whole, from below the start on: the next read would begin there.
            self.archive(0, offset - 1, list(self.in_flight), RecordState.AVAILABLE)
            return False
        self._gaps_begin_at(offset)
        if not len(self.in_flight):
            self.start_offset = self.end_offset = offset
            return True
        self.archive(self.start_offset, offset - 1, list(self.in_flight), RecordState.AVAILABLE)
        self.done_count -= sum(
            max(min(last, offset - 1) - max(first, self.start_offset) + 1, 0)
            for batch in self.in_flight
            for first, last, delivery in batch.parts()
            if delivery.state in DONE
        )
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        return True

    def archive(
        self, first: int, last: int, batches: Iterable[InFlightBatch], only: RecordState
    ) -> list[StateBatch]:
        """Archive what has the state ``only`` from ``first`` to ``last``: nobody can read it, or nobody should."""
        archived: list[StateBatch] = []
        for batch in batches:
            if batch.first > last:
                break
            if batch.whole is not None and not batch.lies_within(first, last):
                if batch.whole.state is not only:
                    continue
                batch.split()
            for begin, end, delivery in batch.parts():
                if delivery.state is only and begin >= first and end <= last:
                    self.change(delivery, begin, end, RecordState.ARCHIVED)
                    archived.append(StateBatch(begin, end, RecordState.ARCHIVED, delivery.count))
        return archived

    # Dead letters (KIP-1191)

    def letters_owed(self, settings: ShareSettings) -> list[DeadLetter]:
        """What was ARCHIVING when the leader stopped: its dead letters may not have been written."""
        return [
            DeadLetter(first, last, delivery.count, delivery.count < settings.delivery_count_limit)
            for batch in self.in_flight
            for first, last, delivery in batch.parts()
            if delivery.state is RecordState.ARCHIVING
        ]

    def letter_written(self, letter: DeadLetter) -> Changes:
        """The dead letter of these offsets is written, or given up: they are archived."""
        changes = Changes()
        for first, last, delivery in self._parts_within(letter.first, letter.last):
            if delivery.state is RecordState.ARCHIVING:
                self.change(delivery, first, last, RecordState.ARCHIVED, changes)
        return changes

    def _parts_within(self, first: int, last: int) -> Iterator[tuple[int, int, Delivery]]:
        """Everything in flight that overlaps two offsets."""
        floor = self.in_flight.floor(first)
        for batch in self.in_flight.between(first if floor is None else floor.first, last):
            yield from batch.parts_within(first, last)


def _next_end(batch: InFlightBatch) -> int:
    """When the next lock of a batch ends."""
    return min(delivery.lock_ends for _, _, delivery in batch.parts())
