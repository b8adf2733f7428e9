"""Fetched bytes → records, a bounded number for each poll (A1, A2, A4). Application side.

Each partition with data has a reader, and the readers form a ring. A poll takes greedily from the reader at its head
until the cap is reached; the reader served last goes to the end. So after a partition with much data all others are
served before it is served again, and one pass over the ring is enough (KIP-41).

A poll ends after the batch with which the bytes decompressed for it reach ``buffer.memory``: a few kB may become
gigabytes. Uncompressed data is bounded by the fetches.

Only as many batches are decompressed at a time as fit into memory (A6). A reader that has one stays in the ring
until it is used up; one that needs one waits in a line beside the ring meanwhile. So a batch is decompressed once, and
turns go by whole batches where memory is short.

Fetches are not relied on to have been cancelled: data of an old fetch epoch is dropped here, and data of a paused or
revoking partition stays where it is. Positions follow returned records, never fetched ones.

It is compiled; the C types of the fields are in the .pxd file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

import cython

from kadence._native import refuse
from kadence.clock import Clock, SystemClock
from kadence.consumer.events import Seek
from kadence.consumer.shared_partition import Origin
from kadence.consumer.shared_state import frees
from kadence.errors import KafkaError
from kadence.records import release_idle
from kadence.types import OffsetAndMetadata

if not cython.compiled:
    refuse(__name__)
    from kadence.consumer.fetch._partition_reader import PartitionReader
    from kadence.consumer.fetch._steps import Steps

if TYPE_CHECKING:
    from kadence.consumer.shared_partition import SharedPartition
    from kadence.consumer.shared_state import CompletedFetch, SharedState
    from kadence.records import Columns, Record
    from kadence.types import TopicPartition

__all__ = ["FetchCollector"]

T = TypeVar("T")

_AHEAD: Final = 256
"""Records decoded at once for small polls: enough that decoding costs each of them little more than itself."""

_FILLED: Final = 32
"""How many readers decode at once: one step must not wait long for all of them."""

_SMALL: Final = 64
"""A poll of more than this decodes what it returns, and no more."""

_IDLE_MS: Final = 5_000
"""Memory of columns that was unused for this long (ms) is released, after as long again at most."""

_NOTHING: Final = memoryview(b"")


@cython.nonecheck(True)
@cython.cclass
class FetchCollector:
    """Collects the records of one poll from the readers of all partitions.

    Args:
        buffer_memory: bound on all memory held. unpack_bytes: bound on batches decompressed for reading. decoded_bytes:
            bound on records decoded ahead.

    Attributes:
        advanced: whether a position moved without a record (control, aborted, compacted) in the last take.
        returned: how many records the last take returned.
        steps: polls that only take the next record.
    """

    def __init__(
        self,
        shared_state: SharedState,
        *,
        check_crcs: bool,
        max_batch_bytes: int,
        buffer_memory: int = 1 << 62,
        unpack_bytes: int = 1 << 62,
        decoded_bytes: int = 1 << 20,
        clock: Clock | None = None,
    ) -> None:
        self.shared_state = shared_state
        self.check_crcs = check_crcs
        self.max_batch_bytes = max_batch_bytes
        self._buffer_memory = buffer_memory
        self._unpack_bytes = unpack_bytes
        self._decoded_bytes = decoded_bytes
        self._unpacked = 0
        """Bytes to which batches were decompressed for this poll."""
        self._unpacked_ahead = 0
        """The same for later polls."""
        self._ring: OrderedDict[TopicPartition, PartitionReader] = OrderedDict()
        self._line: OrderedDict[TopicPartition, PartitionReader] = OrderedDict()
        """Readers that wait for memory to decompress their next batch, and are not in the ring.

        The first in line is the first to get it.
        """
        self._is_short = False
        """A reader that needs memory joins the end of the line."""
        self._void: dict[SharedPartition, int] = {}
        """Fetch epochs whose data is dropped although the network thread has not ended them yet."""
        self._clock = clock = clock or SystemClock()
        self._released_at = clock.now_ms()
        self.steps = Steps(
            shared_state.attention,
            clock.now_ms,
            shared_state.measures.poll_measures.polls,
            is_system=isinstance(clock, SystemClock),
        )
        self.advanced = False
        self.returned = 0
        self._passed: dict[SharedPartition, int] = {}
        """The fetch epochs of partitions that skipped batches that are not returned, in this poll or in earlier ones
        that raised.
        """
        self._has_told = False
        """Skipped batches are reported once the current poll returns."""
        self._taken_in = 0
        """The number of the poll (`Steps.calls`) that ``returned`` is about."""

    # ------------------------------------------------------------ polls

    def mark_processed(self) -> None:
        """The application polls again, so the records that it got are processed: at least once (D1)."""
        if self._has_told:
            self._has_told = False
            self._passed.clear()
        self.steps.mark_processed()

    def takes_nothing(self) -> bool:
        """Whether nothing is left here or in the shared state: then a take ends with this call."""
        shared_state = self.shared_state
        arrivals = shared_state.arrivals
        if (
            self._ring
            or self._line
            or shared_state.completed_fetches
            or shared_state.pressed
            or (arrivals is not None and arrivals.has_some())
        ):
            return False
        self._begin()
        return True

    def take_records(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """At most ``limit`` records.

        Raises:
            CorruptRecordError: the next batch is not readable and no record came before it. The position
                stays at that batch: seek past it, or read it again with another setting.
        """
        return self.take(limit, self._give)

    def take_columns(
        self, limit: int, *, columns: Collection[str], max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, list[Columns]]]:
        """As `take_records`, as columns.

        Args:
            columns: names of those to make, of `ALL_COLUMNS`.
            max_bytes: nothing is added once keys and values have reached this size, and no further partition is begun
                once they have three quarters of it.
        """
        # Loaded with the first of them.
        from kadence.consumer.fetch.columns import ColumnsTaker, rows

        taken = self.take(limit, ColumnsTaker(self.steps.touched, columns=columns, room=max_bytes).give, rows)
        self._release_idle()
        return taken

    def take(
        self,
        limit: int,
        give: Callable[[PartitionReader, int], list[T]],
        size: Callable[[list[T]], int] = len,
    ) -> list[tuple[TopicPartition, list[T]]]:
        """At most ``limit`` records, taken from one reader after the other by ``give``."""
        shared_state = self.shared_state
        self._begin()
        if shared_state.arrivals is not None:
            shared_state.arrivals.take(shared_state.completed_fetches)
        if shared_state.completed_fetches:
            self._admit()
        if shared_state.pressed:
            self._relieve()
        taken: list[tuple[TopicPartition, list[T]]] = []
        for reader in (
            self._turns() if self._line else chain(list(self._ring.values()), self._turns_of_line())
        ):
            partition, shared_partition = reader.partition, reader.shared_partition
            if (
                shared_partition.paused
                or shared_partition.work_paused
                or shared_partition.revoking
                or shared_partition.held
            ):
                self._pass_over(reader)
                continue
            try:
                items = give(reader, limit)
            except KafkaError as error:
                # Move it to the end of the ring: one bad partition must not starve the others.
                self._to_end(reader)
                if taken:
                    break
                shared_partition.note_raised(error, self._clock.now_ms())
                raise
            if items:
                taken.append((partition, items))
                count = size(items)
                limit -= count
                self.returned += count
            self._end_turn(reader, has_given=bool(items))
            if limit <= 0 or self._unpacked >= self._buffer_memory:
                break
        self._is_short = bool(self._line)
        if shared_state.pressing and not taken and any(map(_has_ended, self._readers())):
            # The poll waits for a fetch, and the fetch for their memory: no event reports that a range was read to its
            # end.
            self._relieve()
        return taken

    def _begin(self) -> None:
        """A take begins."""
        ring = self._ring
        for place in self.steps.disarm():
            if place.partition in ring:
                ring.move_to_end(place.partition)
        self.advanced = False
        self.returned = 0
        self._taken_in = self.steps.calls
        self._is_short = False
        self._unpacked, self._unpacked_ahead = self._unpacked_ahead, 0

    def _turns(self) -> Iterator[PartitionReader]:
        """Readers in the order of their turns."""
        yield from self._next_in_line()
        yield from list(self._ring.values())
        yield from self._turns_of_line()

    def _turns_of_line(self) -> Iterator[PartitionReader]:
        """Those in the line, after all others: these may have used up what they had decompressed."""
        if self._line:
            yield from self._next_in_line()

    def _next_in_line(self) -> Iterator[PartitionReader]:
        """Readers that waited for memory, as far as there is memory now."""
        self._is_short = False
        for reader in list(self._line.values()):
            if not (self._fits() or self.make_room()):
                break
            yield reader
        self._is_short = bool(self._line)

    def _end_turn(self, reader: PartitionReader, *, has_given: bool) -> None:
        if reader.is_empty:
            self._ring.pop(reader.partition, None)
            self._line.pop(reader.partition, None)
        elif reader.waits:
            self._line_up(reader)
        elif reader.partition in self._line:
            self._to_end(reader)
        elif has_given:
            self._ring.move_to_end(reader.partition)

    def _line_up(self, reader: PartitionReader) -> None:
        """It waits for memory, behind the readers that wait already."""
        self._ring.pop(reader.partition, None)
        self._line[reader.partition] = reader

    def _to_end(self, reader: PartitionReader) -> None:
        """All others have a turn before its next one."""
        self._line.pop(reader.partition, None)
        self._ring[reader.partition] = reader
        self._ring.move_to_end(reader.partition)

    def arm(self, now: int, limit: int, held_up: Collection[TopicPartition] = ()) -> None:
        """The poll of ``limit`` that began at ``now`` only had to take records: the next ones may be steps.

        Partitions take turns, so their decoded records run out together: after a small poll all decode more at once.
        Readers that are ``held_up`` serve no steps.
        """
        ring = self._ring
        if limit <= _SMALL:
            unpacked = self._unpacked
            for reader in list(ring.values())[:_FILLED]:
                if self._unpacked >= self._buffer_memory:
                    break
                reader.fill(limit)
                if reader.waits:
                    self._line_up(reader)
            self._unpacked_ahead = self._unpacked - unpacked
        self.steps.arm(now, [reader for reader in ring.values() if reader.partition not in held_up])

    def _give(self, reader: PartitionReader, limit: int) -> list[Record]:
        items = reader.look(limit)
        return items if items and reader.give(self.steps.touched, len(items)) else []

    def _release_idle(self) -> None:
        """Memory of large columns that was not used for a while goes back to the system.

        By time, and not when a poll was empty: the next poll may be about to use it again.
        """
        now = self._clock.now_ms()
        if now - self._released_at >= _IDLE_MS:
            self._released_at = now
            release_idle()

    # ------------------------------------------------------------ what was returned

    def moved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions of partitions that skipped records that are not returned: bad, aborted or control records."""
        if not self._passed:
            return {}
        self._has_told = True
        assignment = self.shared_state.shared_partitions
        return {
            shared_partition.partition: OffsetAndMetadata(at.offset, at.leader_epoch)
            for shared_partition, fetch_epoch in self._passed.items()
            if shared_partition.fetch_epoch == fetch_epoch
            and assignment.get(shared_partition.partition) is shared_partition
            and (at := shared_partition.current()) is not None
        }

    def given(self) -> int:
        """How many records the last poll returned, whether or not it was a step. Any thread."""
        steps = self.steps
        touched = tuple(steps.touched)
        if not touched or steps.calls == self._taken_in:
            return self.returned
        return sum(
            place.gone if place.gone_in == steps.calls else decoded.index - decoded.began
            for place in touched
            if (decoded := place.shared_partition.decoded) is not None
        )

    def in_hand(self) -> dict[TopicPartition, range]:
        """Offsets of returned records that are not known to be processed. Any thread."""
        found: dict[TopicPartition, range] = {}
        for place in tuple(self.steps.touched):
            shared_partition = place.shared_partition
            position, start = shared_partition.position, shared_partition.processed_position()
            if position is not None and start is not None and start.fetch_epoch == position.fetch_epoch:
                offsets = range(start.offset, position.offset)
                if offsets:
                    found[place.partition] = offsets
        return found

    def put_back(self) -> None:
        """The records of this poll never reached the caller (Ctrl-C, a cancelled task): the next poll returns them.

        When a poll begins all earlier records are processed, so the processed positions are where it began, even if a
        truncation has begun another fetch epoch since. If this is interrupted, too, it can be repeated as a whole.
        """
        self._has_told = False
        steps = self.steps
        for place in steps.put_back():
            # Returned as columns or released, or the fetch epoch has changed.
            shared_partition = place.shared_partition
            if isinstance(place, PartitionReader):
                place.count_back()
            processed = shared_partition.processed_position()
            if processed is not None:
                shared_partition.position = processed
            self.refetch(shared_partition)
        ring = self._ring
        for place in steps.touched:
            decoded = place.shared_partition.decoded
            if (
                isinstance(place, PartitionReader)
                and decoded is not None
                and decoded.left
                and place.partition not in ring
            ):
                self._line.pop(place.partition, None)
                ring[place.partition] = place
                ring.move_to_end(place.partition, last=False)
        steps.touched.clear()

    def refetch(self, shared_partition: SharedPartition) -> None:
        """Drop a partition's data, buffered or on its way, and fetch it again from its position."""
        at = shared_partition.current()
        if at is None:
            return
        self._reads_on(shared_partition, at, None)

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """The current poll returns a partition's records up to this offset; the next one returns the rest."""
        shared_partition = self.shared_state.shared_partitions.get(partition)
        at = None if shared_partition is None else shared_partition.current()
        if shared_partition is None or at is None:
            return
        processed = shared_partition.processed_position()
        self._reads_on(
            shared_partition,
            Origin(at.fetch_epoch, offset, None),
            None if processed is None else (processed.offset, processed.leader_epoch),
        )

    def _reads_on(
        self, shared_partition: SharedPartition, at: Origin, known: tuple[int, int | None] | None
    ) -> None:
        """Drop buffered data, and fetch from there; ``known``: the processed position, if that is lower."""
        self._void[shared_partition] = shared_partition.fetch_epoch
        # Remaining decoded records are fetched again, too.
        processed = shared_partition.processed_position()
        if processed is not None:
            shared_partition.processed = processed
        shared_partition.position = at
        reader = self._reader(shared_partition.partition)
        if reader is not None and reader.shared_partition is shared_partition:
            self._remove(reader)
        self.shared_state.send(Seek(0, 0, shared_partition, at.offset, at.leader_epoch, known))

    def buffered(self) -> bool:
        """Whether any data is held here or in the shared state, whether or not it may be returned now."""
        self.shared_state.take_arrivals()
        return bool(self._ring or self._line or self.shared_state.completed_fetches)

    def holds(self, partition: TopicPartition, fetch_epoch: int) -> bool:
        """Whether anything fetched of a partition under a fetch epoch is still to be returned."""
        reader = self._reader(partition)
        if reader is not None and reader.shared_partition.fetch_epoch == fetch_epoch and not reader.is_empty:
            return True
        self.shared_state.take_arrivals()
        return any(
            item.fetch_epoch == fetch_epoch and item.shared_partition.partition == partition
            for item in self.shared_state.completed_fetches
        )

    def drop_all(self) -> None:
        """The consumer is closing: give everything back."""
        self.steps.disarm()
        self.shared_state.take_arrivals()
        self._admit()
        for reader in self._readers():
            self._remove(reader)
            # Reference cycles with the network side may keep this object.
            reader.let_go()
        release_idle(everything=True)

    # ------------------------------------------------------------ shared by the readers

    def passed(self, shared_partition: SharedPartition) -> None:
        """Its position moves over records that are not returned: `moved` reports it."""
        self._passed[shared_partition] = shared_partition.fetch_epoch

    def ahead(self, limit: int) -> tuple[int, int]:
        """How many records to decode for a poll of ``limit``, and how many bytes more than ``limit`` of them may take.

        A small poll is followed by others of its kind.
        """
        if limit > _SMALL:
            return limit, 0
        room = min(
            self._decoded_bytes // max(len(self._ring), 1),
            self._decoded_bytes - self.shared_state.decoded_bytes,
        )
        return (_AHEAD, room) if room > 0 else (limit, 0)

    def has_room(self) -> bool:
        """Whether one more batch may be decompressed, and no other reader waits for that."""
        if self._is_short:
            return False
        return not self.shared_state.decompressed_bytes or self._fits()

    def make_room(self) -> bool:
        """Whether a reader that needs memory may exceed the bound.

        It waits as long as others have something left to read: a batch that they gave up would be decompressed again.
        After that, batches of paused partitions that were partly read are given up, as many as necessary.
        """
        if self._is_short:
            return False
        idle: list[PartitionReader] = []
        for reader in self._ring.values():
            if reader.retained:
                if not reader.shared_partition.gives_nothing:
                    self._is_short = True
                    return False
                idle.append(reader)
        while idle and not self._fits():
            idle.pop().close()
        return True

    def _fits(self) -> bool:
        """Whether there is memory for one more decompressed batch: for one there always is.

        A reader's last batch counts in addition to its next one: it is released when the next one has been
        decompressed.
        """
        shared_state = self.shared_state
        held = shared_state.decompressed_bytes
        return (
            not held
            or held + shared_state.largest_batch + (shared_state.largest_batch >> 3) <= self._unpack_bytes
        )

    def unpack_room(self) -> int:
        """How many more bytes may be decompressed for this poll."""
        return max(self._buffer_memory - self._unpacked, 0)

    def unpacked(self, size: int) -> None:
        """Count decompressed bytes."""
        self._unpacked += size

    def weighed(self, before: int, most: int) -> None:
        """For the metrics.

        The network thread looks at the memory held now and then, and a batch may be gone by then.
        """
        held, cap = self.shared_state.held_bytes(), self._buffer_memory
        poll_measures = self.shared_state.measures.poll_measures
        poll_measures.most_held = max(poll_measures.most_held, held + most)
        poll_measures.exceeded += held + most > cap >= held + before

    # ------------------------------------------------------------ the buffer

    def _relieve(self) -> None:
        """buffer.memory is used up, and some of it by partitions that may not be returned now.

        One of them can pin a whole response by a few of its bytes: these are copied out when nothing else needs the
        arena and that frees at least half of it. So nothing is fetched twice, and a resume finds its records. Only when
        nothing but paused data is left, the largest part of it is dropped, to be fetched again after its resume: it
        must not block other partitions.
        """
        shared_state = self.shared_state
        shared_state.pressed = False
        readers = self._readers()
        idle = [r for r in readers if r.shared_partition.gives_nothing]
        places: dict[int, list[CompletedFetch]] = {}
        freed = False
        for reader in idle:
            reader.relieved_at = reader.shared_partition.end if reader.shared_partition.is_finished else None
            freed = freed or reader.retained > 0
            reader.close()
            for fetched in reader.fetches:
                places.setdefault(id(fetched.arena), []).append(fetched)
        for items in places.values():
            arena = items[0].arena
            if arena.holds == len(items) and frees([len(item.data) for item in items], arena):
                for item in items:
                    item.data, item.arena = shared_state.copies.copy(item.data)
                    arena.release()
                freed = True
        if not freed and len(idle) == len(readers):
            paused = [
                r
                for r in idle
                if r.shared_partition.is_finished
                or (r.shared_partition.is_paused and r.shared_partition.current() is not None)
            ]
            if paused:
                self.refetch(max(paused, key=lambda reader: reader.size).shared_partition)
                return
        if freed:
            shared_state.wake()

    def _reader(self, partition: TopicPartition) -> PartitionReader | None:
        return self._ring.get(partition) or self._line.get(partition)

    def _readers(self) -> list[PartitionReader]:
        return list(chain(self._ring.values(), self._line.values()))

    def _remove(self, reader: PartitionReader) -> None:
        """Release all fetched data of it."""
        while reader.fetches:
            reader.finish()
        reader.hold(0)
        self._ring.pop(reader.partition, None)
        self._line.pop(reader.partition, None)

    def _pass_over(self, reader: PartitionReader) -> None:
        """It returns nothing now. Data of an old fetch epoch is dropped, and the reader leaves the line."""
        while reader.fetches and reader.fetches[0].fetch_epoch != reader.shared_partition.fetch_epoch:
            reader.finish()
        reader.waits = False
        self._end_turn(reader, has_given=False)

    def _admit(self) -> None:
        fetched = self.shared_state.completed_fetches
        ring = self._ring
        while fetched:
            # Removed last, after checking again that it is the first: an interruption loses no fetch.
            item = fetched[0]
            partition = item.shared_partition.partition
            if self._void and self._is_void(item):
                self._count_out(item)
                del fetched[0]
                item.arena.release()
                self.shared_state.made_room(item.shared_partition)
                continue
            reader = ring.get(partition) or self._line.get(partition)
            if reader is not None and reader.shared_partition is not item.shared_partition:
                # Lost and assigned again: the old shared partition's data can never be returned.
                self._remove(reader)
                reader = None
            if reader is None:
                polled = self.shared_state.measures.poll_measures
                measures = polled.topics.get(partition.topic) or polled.topic(partition.topic)
                reader = ring[partition] = PartitionReader(item.shared_partition, measures, self)
            if not reader.fetches or reader.fetches[len(reader.fetches) - 1] is not item:
                reader.fetches.append(item)
            fetched.popleft()

    def _is_void(self, item: CompletedFetch) -> bool:
        void = self._void.get(item.shared_partition)
        if void is None:
            return False
        if item.fetch_epoch != void:
            del self._void[item.shared_partition]  # a new fetch epoch: the network thread has gone back too
            return False
        return True

    def _count_out(self, item: CompletedFetch) -> None:
        item.shared_partition.drained_bytes += len(item.data)
        item.data = _NOTHING


def _has_ended(reader: PartitionReader) -> bool:
    """Whether its range was read to the end since its memory was last checked."""
    return reader.shared_partition.is_finished and reader.relieved_at != reader.shared_partition.end
