"""Fetched bytes → records, a bounded number for each poll (A1, A2, A4). Application side.

Partitions with data stand in a ring. A poll takes greedily from the partition at its head until the cap is
reached; whoever was served last goes to the end. So a partition with a mountain of data is followed by all
others before it is served again, and one pass over the ring is enough (KIP-41).

Nothing is trusted to have been cancelled: data of an old lease is dropped here, data of a paused or revoking
partition stays where it is. Positions follow what is returned, never what was fetched.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeVar

from kadence.consumer.border.buffer import Border, Fetched
from kadence.consumer.border.cells import Cell, Origin
from kadence.consumer.border.measures import TopicIntake
from kadence.consumer.border.messages import Seek
from kadence.errors import KafkaError
from kadence.records import Columns, FetchedRecords, Record, release_idle
from kadence.types import TopicPartition

__all__ = ["Collector"]

T = TypeVar("T")

_NOTHING: Final = memoryview(b"")


class _Queue:
    """What lies in the buffer of one partition; ``reader`` is the fetch that is being read."""

    __slots__ = ("cell", "fetches", "given", "intake", "reader", "retained")

    def __init__(self, cell: Cell, intake: TopicIntake) -> None:
        self.cell = cell
        self.intake = intake
        self.fetches: deque[Fetched] = deque()
        self.reader: FetchedRecords | None = None
        self.retained = 0
        self.given = 0
        """Records of the first fetch that were handed out, where they are counted."""


class _Copy:
    """A lease of bytes copied out of an arena. Application thread only."""

    __slots__ = ("_border", "size")

    holds = 1

    def __init__(self, border: Border, size: int) -> None:
        self._border = border
        self.size = size
        border.copied_bytes += size

    def retain(self) -> None:
        raise NotImplementedError("nobody shares a copy")

    def release(self) -> None:
        self._border.copied_bytes -= self.size


class Collector:
    """See the head of this file.

    Attributes:
        advanced: whether a position moved without a record (control, aborted, compacted) in the last take.
        proofs: how often `prove` was called.
        returned: how many records the last take gave.
    """

    def __init__(
        self,
        border: Border,
        *,
        check_crcs: bool,
        max_batch_bytes: int,
        unpack_bytes: int = 1 << 62,
        counts: bool = False,
    ) -> None:
        self._border = border
        self._unpack_bytes = unpack_bytes
        self._counts = counts
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._ring: OrderedDict[TopicPartition, _Queue] = OrderedDict()
        self._unproved: list[Cell] = []
        self._void: dict[Cell, int] = {}
        """Leases of which no more is handed out, though the network thread has not ended them yet."""
        self.proofs = 0
        self.advanced = False
        self.returned = 0

    def prove(self) -> None:
        """The application polls again, so what it was given is processed: at least once (SYSTEM.md D)."""
        if self._unproved:
            for cell in self._unproved:
                # The lease may have changed since without a jump: what was given before it is processed, too.
                cell.proved = cell.current()
            self._unproved.clear()
        # Last: only what is taken after this may be put back.
        self.proofs += 1

    def take_records(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """At most ``limit`` records.

        Raises:
            CorruptRecordError: the next batch is not readable and no record came before it. The position
                stays at that batch: seek past it, or read it again with another setting.
        """
        return self._take(limit, FetchedRecords.take, len)

    def take_columns(self, limit: int, *, headers: bool) -> list[tuple[TopicPartition, list[Columns]]]:
        """As `take_records`, as columns; ``headers`` adds theirs."""
        take = _with_headers if headers else FetchedRecords.take_columns
        taken = self._take(limit, take, _rows)
        if not taken:
            # Nothing to read for two polls: the memory of large columns goes back to the system.
            release_idle()
        return taken

    def in_hand(self) -> dict[TopicPartition, range]:
        """Offsets that were returned and that nothing has proved processed. Any thread."""
        found: dict[TopicPartition, range] = {}
        for cell in tuple(self._unproved):
            position, start = cell.position, cell.proved_position()
            if position is not None and start is not None and start.lease == position.lease:
                offsets = range(start.offset, position.offset)
                if offsets:
                    found[cell.partition] = offsets
        return found

    def move(self, cell: Cell, origin: Origin) -> None:
        """Less than what was taken is returned now, or the rest of it is: the position follows what is returned."""
        cell.position = origin
        self._unproved.append(cell)

    def put_back(self) -> list[TopicPartition]:
        """What this poll has taken never reached the caller (Ctrl-C, a cancelled task): it will be fetched again.

        A poll begins by proving all that was returned before, so the proved positions are where it began, even where a
        truncation has begun another lease since.
        """
        cells = dict.fromkeys(self._unproved)
        self._unproved.clear()
        for cell in cells:
            cell.position = cell.proved_position()
            self.refetch(cell)
        return [cell.partition for cell in cells]

    def refetch(self, cell: Cell) -> None:
        """Drop what is buffered of a partition, now and on its way, and fetch it again from its position."""
        at = cell.current()
        if at is None:
            return
        self._void[cell] = cell.lease
        queue = self._ring.get(cell.partition)
        if queue is not None and queue.cell is cell:
            while queue.fetches:
                self._finish(queue)
            del self._ring[cell.partition]
        self._border.send(Seek(0, 0, cell.partition, at.offset, at.leader_epoch))

    def buffered(self) -> bool:
        """Whether anything lies here or in the border, handed out or not."""
        return bool(self._ring) or bool(self._border.fetched)

    def drop_all(self) -> None:
        """The consumer is closing: give everything back."""
        self._admit()
        for queue in self._ring.values():
            while queue.fetches:
                self._finish(queue)
        self._ring.clear()
        release_idle(everything=True)

    def _take(
        self,
        limit: int,
        take: Callable[[FetchedRecords, int], list[T]],
        size: Callable[[list[T]], int],
    ) -> list[tuple[TopicPartition, list[T]]]:
        border = self._border
        if border.fetched:
            self._admit()
        if border.pressed:
            self._relieve()
        self.advanced = False
        self.returned = 0
        taken: list[tuple[TopicPartition, list[T]]] = []
        for partition in list(self._ring):
            queue = self._ring[partition]
            cell = queue.cell
            if cell.paused or cell.revoking or cell.held:
                self._drop_stale(queue)
                continue
            count = 0
            try:
                items = self._take_from(queue, limit, take)
                count = size(items)
            except KafkaError:
                # To the end of the ring: one bad partition must not starve the others of their turn.
                self._ring.move_to_end(partition)
                if taken:
                    break
                raise
            if count:
                taken.append((partition, items))
                limit -= count
                self.returned += count
                queue.intake.records.total += count
                if self._counts and queue.reader is not None:
                    queue.given += count
                    self._drained(cell, count)
            if queue.fetches:
                if count:
                    self._ring.move_to_end(partition)
            else:
                del self._ring[partition]
            if limit <= 0:
                break
        return taken

    def _take_from(
        self, queue: _Queue, limit: int, take: Callable[[FetchedRecords, int], list[T]]
    ) -> list[T]:
        """From one partition's queue, in order. Stops at the first fetch that gives something.

        The rest of the cap goes to the next fetch of the same partition only when this one gave nothing
        (stale, or nothing but control records): two small lists cost more than one poll of a few less.
        """
        cell = queue.cell
        while queue.fetches:
            fetched = queue.fetches[0]
            if fetched.lease != cell.lease:
                self._finish(queue)
                continue
            if self._border.decompressed_bytes > queue.retained:
                self._fold_others(queue)
            reader = queue.reader
            before = fetched.offset if reader is None else reader.next_offset
            if reader is None:
                reader = queue.reader = FetchedRecords(
                    fetched.data,
                    cell.partition.topic,
                    cell.partition.partition,
                    fetched.offset,
                    check_crcs=self._check_crcs,
                    max_batch_bytes=self._max_batch_bytes,
                    aborted=fetched.aborted,
                )
            # Before anything moves: whatever interrupts us from here on can be put back.
            self._unproved.append(cell)
            try:
                items = take(reader, limit)
            finally:
                after = reader.next_offset
                if after != before:
                    cell.position = Origin(fetched.lease, after, reader.leader_epoch)
                retained = reader.retained_bytes
                if retained != queue.retained:
                    self._border.decompressed_bytes += retained - queue.retained
                    queue.retained = retained
                if reader.largest_batch:
                    border = self._border
                    border.largest_batch = max(border.largest_batch, reader.largest_batch)
            if reader.exhausted:
                queue.intake.bytes.total += len(fetched.data)
                self._finish(queue)
            if items:
                return items
            if after != before:
                self.advanced = True
        return []

    def _fold_others(self, queue: _Queue) -> None:
        """Make room for decompressing: partitions that were left in the middle of a batch give up what it became.

        Their turn may be many polls away, and a batch of each could be more than buffer.memory. It is decompressed
        again then, which costs time only where this many partitions share so little memory.
        """
        border = self._border
        next_one = border.largest_batch + (border.largest_batch >> 3)
        if border.decompressed_bytes - queue.retained + next_one > self._unpack_bytes:
            for other in self._ring.values():
                if other is not queue and other.retained:
                    self._fold(other)

    def _fold(self, queue: _Queue) -> None:
        """Close the reader; the next one begins where it stood."""
        reader = queue.reader
        if reader is not None:
            queue.fetches[0].offset = reader.next_offset
            reader.close()
            queue.reader = None
            self._border.decompressed_bytes -= queue.retained
            queue.retained = 0

    def _relieve(self) -> None:
        """buffer.memory is used up, and some of it by partitions that are not handed out now.

        One of them can pin a whole response by a few of its bytes: these are copied out when nobody else needs the
        arena and that frees at least half of it. So nothing is fetched twice, and a resume finds its records. Only
        when what is paused is all there is, the largest of it is dropped, to be fetched again after its resume: others
        must not stand still for it.
        """
        border = self._border
        border.pressed = False
        idle = [q for q in self._ring.values() if q.cell.paused or q.cell.revoking or q.cell.held]
        places: dict[int, list[Fetched]] = {}
        freed = False
        for queue in idle:
            freed = freed or queue.retained > 0
            self._fold(queue)
            for fetched in queue.fetches:
                places.setdefault(id(fetched.arena), []).append(fetched)
        for items in places.values():
            arena, size = items[0].arena, sum(len(item.data) for item in items)
            if arena.holds == len(items) and 2 * size <= arena.size:
                for item in items:
                    item.data = memoryview(bytes(item.data))
                    item.arena = _Copy(border, len(item.data))
                    arena.release()
                freed = True
        if not freed and len(idle) == len(self._ring):
            paused = [queue for queue in idle if queue.cell.paused and queue.cell.current() is not None]
            if paused:
                self.refetch(max(paused, key=_size).cell)
                return
        if freed:
            border.wake()

    def _drained(self, cell: Cell, count: int) -> None:
        """So many records less are buffered: tell the network thread when that is few enough (KIP-41)."""
        border = self._border
        cell.drained_records += count
        border.drained_records += count
        if border.starved and (
            border.drained_records >= border.wake_records or cell.drained_records >= cell.wake_records
        ):
            border.starved = False
            border.wake()

    def _drop_stale(self, queue: _Queue) -> None:
        while queue.fetches and queue.fetches[0].lease != queue.cell.lease:
            self._finish(queue)
        if not queue.fetches:
            del self._ring[queue.cell.partition]

    def _finish(self, queue: _Queue) -> None:
        """The first fetch of the queue is done with: give its bytes back, and say so if that is waited for.

        Taken out last, and what comes before may be done again: an interruption leaves the books right.
        """
        fetched = queue.fetches[0]
        if queue.reader is not None:
            queue.reader.close()
            queue.reader = None
            self._border.decompressed_bytes -= queue.retained
            queue.retained = 0
            # It fades, so that one large batch does not cost memory for good.
            self._border.largest_batch -= self._border.largest_batch >> 6
        queue.cell.drained_bytes += len(fetched.data)
        fetched.data = _NOTHING
        if self._counts:
            self._drained(queue.cell, fetched.records - queue.given)
            queue.given = 0
        del queue.fetches[0]
        fetched.arena.release()
        border = self._border
        if border.starved:
            border.starved = False
            border.wake()

    def _admit(self) -> None:
        fetched = self._border.fetched
        ring = self._ring
        while fetched:
            # Taken out last, and looked for when it stands first again: an interruption loses no fetch.
            item = fetched[0]
            partition = item.cell.partition
            if self._void and self._is_void(item):
                self._count_out(item)
                del fetched[0]
                item.arena.release()
                if self._border.starved:
                    self._border.starved = False
                    self._border.wake()
                continue
            queue = ring.get(partition)
            if queue is not None and queue.cell is not item.cell:
                # Lost and assigned again: the old cell's data can never be handed out.
                while queue.fetches:
                    self._finish(queue)
                queue = None
                del ring[partition]
            if queue is None:
                queue = ring[partition] = _Queue(
                    item.cell, self._border.measures.intake.topic(partition.topic)
                )
            if not queue.fetches or queue.fetches[-1] is not item:
                queue.fetches.append(item)
            fetched.popleft()

    def _is_void(self, item: Fetched) -> bool:
        void = self._void.get(item.cell)
        if void is None:
            return False
        if item.lease != void:
            del self._void[item.cell]  # a new lease: the network thread has gone back too
            return False
        return True

    def _count_out(self, item: Fetched) -> None:
        item.cell.drained_bytes += len(item.data)
        item.data = _NOTHING
        if self._counts:
            self._drained(item.cell, item.records)


def _with_headers(reader: FetchedRecords, limit: int) -> list[Columns]:
    return reader.take_columns(limit, headers=True)


def _rows(columns: list[Columns]) -> int:
    return sum(len(part) for part in columns)


def _size(queue: _Queue) -> int:
    return sum(len(fetched.data) for fetched in queue.fetches)
