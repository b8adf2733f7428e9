"""One partition's reader: the bytes that were fetched, a cursor in them, and the hand (C9). Application side.

Records are decoded into the hand (`border.hand`), for a small poll some ahead of what it asked for, and given out of it
by an index. What a poll took is put back by that index, so it is neither fetched nor decoded a second time.

The bytes of a fetch are given back when the last of its records was given out. Until then a reader can open them again
behind the hand, which it does after Ctrl-C in the midst of decoding, or behind what was given out, which it does when
rows are wanted as columns.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from kadence.consumer.application.reading import ranges
from kadence.consumer.application.reading.steps import Place, Steps
from kadence.consumer.border.buffer import Border, Fetched
from kadence.consumer.border.cells import Cell
from kadence.consumer.border.hand import Hand
from kadence.consumer.border.measures import TopicIntake
from kadence.errors import KafkaError
from kadence.records import Columns, FetchedRecords, Record

__all__ = ["Reader", "Shelf"]

_NOTHING: Final = memoryview(b"")


class Shelf(Protocol):
    """What the readers of one consumer share.

    Attributes:
        border: the border. check_crcs, max_batch_bytes: see `FetchedRecords`.
        advanced: whether a position moved without a record in the poll under way. steps: which poll that is.
    """

    border: Border
    steps: Steps
    check_crcs: bool
    max_batch_bytes: int
    advanced: bool

    def ahead(self, limit: int) -> tuple[int, int]:
        """How many records to decode for a poll of ``limit``, and how many bytes they may take if that is more."""
        ...

    def has_room(self) -> bool:
        """Whether there is memory for another decompressed batch, and nobody waits for it."""
        ...

    def make_room(self) -> bool:
        """A reader can go on only by decompressing a batch: whether it may. If not, it waits for the others."""
        ...

    def weighed(self, before: int, most: int) -> None:
        """A batch was decompressed: how much more was held before, and at most, than the border's books say now."""
        ...

    def drained(self, cell: Cell, count: int) -> None:
        """So many records less are buffered."""
        ...

    def refetch(self, cell: Cell) -> None:
        """Fetch again from the position."""
        ...

    def passed(self, cell: Cell) -> None:
        """The position moves over what is not returned."""
        ...


class Reader(Place):
    """Reads the fetched records of one partition in order.

    Attributes:
        cell: the partition's. fetches: what was fetched of it, the one that is being read first.
        retained: bytes that the batch being read was decompressed to.
        waits: there is no memory to decompress its next batch, and its hand is empty.
        relieved_at: the end of its range when its memory was looked at last, if the range was read to it by then.
    """

    __slots__ = ("_given", "_open", "_shelf", "fetches", "intake", "relieved_at", "retained", "waits")

    def __init__(self, cell: Cell, intake: TopicIntake, shelf: Shelf) -> None:
        super().__init__(cell, cell.partition, intake.records)
        self.intake = intake
        self.fetches: deque[Fetched] = deque()
        self.retained = 0
        self.waits = False
        self.relieved_at: int | None = None
        self._shelf = shelf
        self._open: FetchedRecords | None = None
        self._given = 0
        """Records of the first fetch that were given out, as far as `Shelf.drained` was told."""

    def __repr__(self) -> str:
        hand = self.hand
        return f"<Reader {self.partition} fetches={len(self.fetches)} in hand={0 if hand is None else hand.left}>"

    @property
    def hand(self) -> Hand | None:
        """The hand, if it is of the present lease."""
        cell = self.cell
        hand = cell.hand
        return hand if hand is not None and hand.lease == cell.lease else None

    @property
    def left(self) -> int:
        """How many records are left in the hand."""
        hand = self.hand
        return 0 if hand is None else hand.left

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to give out."""
        return not self.fetches and not self.left

    @property
    def size(self) -> int:
        """Fetched bytes that are held."""
        return sum(len(fetched.data) for fetched in self.fetches)

    # ------------------------------------------------------------ giving out

    def look(self, limit: int) -> list[Record]:
        """The next records, at most ``limit``, in a list that nobody changes; `give` says that they are given out.

        Raises:
            KafkaError: what comes next cannot be read, and nothing comes before it.
        """
        if self.left < limit:
            self._decode(limit)
        hand = self.hand
        if hand is None:
            return []
        index = hand.index
        if index == 0 and limit >= hand.count:
            return hand.records
        return hand.records[index : index + limit]

    def fill(self, limit: int) -> None:
        """Have records in the hand, if it is empty, for a poll of ``limit`` to come.

        Not if the poll under way emptied it: should that be interrupted, what it took is put back into this hand.
        """
        cell, hand = self.cell, self.hand
        is_empty = hand is None or (not hand.left and hand.began == hand.index)
        if is_empty and not (cell.paused or cell.revoking or cell.held):
            # What cannot be read is raised by the poll that asks for it.
            with contextlib.suppress(KafkaError):
                self._decode(limit)

    def give(self, touched: list[Place], count: int) -> bool:
        """The first ``count`` of the records that `look` returned are given out; False if their lease is over."""
        hand = self.hand
        if hand is None:
            return False
        # Before anything moves: whatever interrupts us from here on can be put back.
        touched.append(self)
        hand.index += count
        self.count()
        self._drained(count)
        if not hand.left:
            if hand.end != hand.records[-1].offset + 1:
                self._shelf.passed(self.cell)
            self._end_fetch()
        return True

    def give_columns(
        self, touched: list[Place], limit: int, take: Callable[[FetchedRecords, int, bool], list[Columns]]
    ) -> list[Columns]:
        """At most ``limit`` records as columns; they are given out.

        Raises:
            KafkaError: as `look`.
        """
        if not self._lay_down():
            return []
        shelf = self._shelf
        while (fetched := self._next_fetch()) is not None:
            reader = self._reader(fetched)
            unpacks = shelf.has_room() or (reader.is_packed and shelf.make_room())
            self.waits = not unpacks and reader.is_packed
            if self.waits:
                return []
            before = self._resume_at(fetched)
            touched.append(self)
            self.is_torn = True
            items: list[Columns] = []
            error: KafkaError | None = None
            try:
                items = ranges.columns(
                    take(reader, ranges.limit(limit, before, self.cell.end), unpacks), self.cell.end
                )
            except KafkaError as raised:
                error = raised
            finally:
                self._keep_books(reader)
            if items:
                self.cell.hand = self._behind(reader, began=0)
            elif reader.next_offset != before:
                self.cell.hand = self._behind(reader, began=1)
                shelf.advanced = True
            self._is_sound(reader)
            if error is not None and not self._is_beyond_end(reader):
                raise error
            self._end_fetch()
            if items:
                count = sum(len(part) for part in items)
                self._count_gone(count)
                self._drained(count)
                return items
        return []

    def _count_gone(self, count: int) -> None:
        """Tell the metrics what was given out and is not in the hand."""
        calls = self._shelf.steps.calls
        before = self.gone if self.gone_in == calls else 0
        self.records.total += count
        self.gone, self.gone_in = before + count, calls

    def count_back(self) -> None:
        """Take from the metrics what the poll under way was counted for: it is fetched again, and counted again."""
        hand = self.cell.hand
        count = self.gone if self.gone_in == self._shelf.steps.calls else 0
        self.gone = 0
        if hand is not None and hand.count and hand.counted > hand.began:
            count += hand.counted - hand.began
            hand.counted = hand.began
        self.records.total -= count

    def count(self) -> None:
        """Tell the metrics what was given out of the hand since they were told last."""
        hand = self.cell.hand
        if hand is not None and hand.count:
            self.records.total += hand.index - hand.counted
            hand.counted = hand.index

    # ------------------------------------------------------------ decoding

    def _decode(self, limit: int) -> None:
        """Have ``limit`` records in the hand, or as many as the first fetch has that gives any.

        The rest of a poll's cap goes to the next fetch of the same partition only when this one gave nothing (stale, or
        nothing but control records): two small lists cost more than one poll of a few less.
        """
        shelf = self._shelf
        while (fetched := self._next_fetch()) is not None:
            reader = self._reader(fetched)
            hand = self.hand
            left = 0 if hand is None else hand.left
            if left and reader.exhausted:
                return
            unpacks = shelf.has_room() or (reader.is_packed and shelf.make_room())
            if not unpacks and reader.is_packed:
                self.waits = not left
                return
            self.waits = False
            if hand is not None and hand.count and hand.began == hand.count:
                # Its records are the application's alone now: their memory is used for the next ones.
                self.cell.hand = hand = self._emptied(hand)
            before = self._resume_at(fetched)
            self.is_torn = True
            items: list[Record] = []
            size = 0
            error: KafkaError | None = None
            try:
                items, size = self._read(reader, ranges.limit(limit - left, before, self.cell.end), unpacks)
            except KafkaError as raised:
                error = raised
            finally:
                self._keep_books(reader)
            if hand is not None and left:
                self.cell.hand = self._extended(hand, reader, items)
                self._hold(self.held + size)
            elif items:
                self.cell.hand = self._filled(reader, items, before)
                self._hold(size)
            elif reader.next_offset != before:
                self._shelf.passed(self.cell)
                self.cell.hand = self._behind(reader, began=1)
                shelf.advanced = True
            self._is_sound(reader)
            if items or left:
                return
            if error is not None and not self._is_beyond_end(reader):
                raise error
            self._end_fetch()

    def _is_beyond_end(self, reader: FetchedRecords) -> bool:
        return ranges.position(reader.next_offset, self.cell.end) == self.cell.end

    def _is_sound(self, reader: FetchedRecords) -> None:
        """The cursor stands behind the hand. Beyond the end of the range it is closed: another one may begin there."""
        if self._stands_at(reader) != reader.next_offset:
            self.fold()
        self.is_torn = False

    def _stands_at(self, reader: FetchedRecords) -> int:
        """The position behind what was read."""
        return ranges.position(reader.next_offset, self.cell.end)

    def _read(self, reader: FetchedRecords, limit: int, unpacks: bool) -> tuple[list[Record], int]:
        """The next records, and how many bytes they take if there are more than ``limit``."""
        count, room = self._shelf.ahead(limit)
        count = ranges.limit(count, reader.next_offset, self.cell.end)
        if count <= limit:
            return ranges.records(reader.take(limit, unpacks=unpacks), self.cell.end), 0
        items = ranges.records(reader.take(count, max_bytes=room, unpacks=unpacks), self.cell.end)
        if len(items) >= limit:
            return items, reader.taken_bytes
        # They are large, or the last ones. What was asked for is given whatever its size.
        if not reader.exhausted and not self._is_beyond_end(reader):
            items += self._rest(reader, limit - len(items), unpacks)
        return items, 0

    def _rest(self, reader: FetchedRecords, limit: int, unpacks: bool) -> list[Record]:
        try:
            return ranges.records(reader.take(limit, unpacks=unpacks), self.cell.end)
        except KafkaError:
            # It is raised again by the poll that finds nothing before it.
            return []

    def _filled(self, reader: FetchedRecords, items: list[Record], start: int) -> Hand:
        """A hand of new records, behind the one before."""
        at = self._proved_through()
        offset, epoch = (start, None) if at is None else at
        hand = Hand(self._lease, items, offset, epoch, self._stands_at(reader), reader.leader_epoch)
        hand.is_last = reader.exhausted
        return hand

    def _extended(self, hand: Hand, reader: FetchedRecords, items: list[Record]) -> Hand:
        """The hand and new records behind it, without those that are proved processed."""
        began = hand.began
        self._proved_through()
        offset, epoch = hand.proved() or (hand.start, hand.start_epoch)
        extended = Hand(
            hand.lease,
            hand.records[began:] + items,
            offset,
            epoch,
            self._stands_at(reader),
            reader.leader_epoch if items else hand.end_epoch,
        )
        extended.index, extended.counted = hand.index - began, hand.counted - began
        extended.is_last = reader.exhausted
        return extended

    def _behind(self, reader: FetchedRecords, *, began: int) -> Hand:
        """A hand without records that stands behind what was read. ``began`` 0: it can be put back before that."""
        offset, epoch = self._proved_through() or (reader.next_offset, None)
        hand = Hand(self._lease, [], offset, epoch, self._stands_at(reader), reader.leader_epoch)
        hand.index, hand.began = 1, began
        return hand

    @property
    def _lease(self) -> int:
        return self.fetches[0].lease

    def _proved_through(self) -> tuple[int, int | None] | None:
        """Before the hand is replaced: what it proves goes to the cell. Returns the position."""
        cell = self.cell
        hand = self.hand
        if hand is None:
            origin = cell.origin
            return None if origin is None else (origin.offset, origin.leader_epoch)
        if hand.proved() is not None and (proved := cell.proved_position()) is not None:
            cell.proved = proved
        return hand.position()

    def _lay_down(self) -> bool:
        """Columns are wanted: what is left in the hand is read again from its bytes. False when these are gone."""
        hand = self.hand
        if hand is None or not hand.left:
            return True
        offset, _ = hand.position()
        if self._next_fetch() is None or self.fetches[0].offset > offset:
            self._shelf.refetch(self.cell)
            return False
        # First: the cursor stands behind the old hand.
        self.is_torn = True
        self.cell.hand = self._emptied(hand)
        self._hold(0)
        return True

    def _emptied(self, hand: Hand) -> Hand:
        """A hand without records that stands where this one stands, all of which is proved processed."""
        self._proved_through()
        offset, epoch = hand.position()
        emptied = Hand(hand.lease, [], offset, epoch, offset, epoch)
        emptied.index = emptied.began = 1
        return emptied

    # ------------------------------------------------------------ fetches

    def _next_fetch(self) -> Fetched | None:
        """The fetch to read, once those of an old lease and those that are used up were given back."""
        while self.fetches:
            fetched = self.fetches[0]
            if fetched.lease != self.cell.lease:
                self.finish()
            elif not self._end_fetch():
                end = self.cell.end
                # What lies beyond the end of the range is kept: the next one may begin there.
                return fetched if end is None or self._resume_at(fetched) < end else None
        return None

    def _end_fetch(self) -> bool:
        """Give the first fetch back if it has no more to give, and the hand neither."""
        reader = self._open
        if reader is None or self.is_torn or not reader.exhausted:
            return False
        hand = self.hand
        if hand is not None and hand.left:
            return False
        self.intake.bytes.total += len(self.fetches[0].data)
        self.finish()
        return True

    def _reader(self, fetched: Fetched) -> FetchedRecords:
        """The open cursor of a fetch, which stands behind the hand."""
        if self.is_torn:
            self.fold()
        reader = self._open
        if reader is not None:
            reader.catch_up()
        else:
            cell, shelf = self.cell, self._shelf
            reader = self._open = FetchedRecords(
                fetched.data,
                cell.partition.topic,
                cell.partition.partition,
                self._resume_at(fetched),
                check_crcs=shelf.check_crcs,
                max_batch_bytes=shelf.max_batch_bytes,
                aborted=fetched.aborted,
            )
            self.cursor = reader.cursor
            self.is_torn = False
        return reader

    def _resume_at(self, fetched: Fetched) -> int:
        """Where the cursor has to stand: behind the hand."""
        hand = self.hand
        return fetched.offset if hand is None else max(fetched.offset, hand.end)

    def fold(self) -> None:
        """Close the cursor, and give up what its batch was decompressed to; it is opened again behind the hand."""
        reader = self._open
        if reader is not None:
            reader.close()
            self._shelf.border.decompressed_bytes -= self.retained
            self.retained = 0
            self._open = self.cursor = None

    def finish(self) -> None:
        """The first fetch is done with: give its bytes back, and say so if that is waited for.

        Taken out last, and what comes before may be done again: an interruption leaves the books right.
        """
        border = self._shelf.border
        fetched = self.fetches[0]
        if self._open is not None:
            self.fold()
        hand = self.hand
        if hand is None or not hand.left:
            self._hold(0)
        self.cell.drained_bytes += len(fetched.data)
        fetched.data = _NOTHING
        self._shelf.drained(self.cell, fetched.records - self._given)
        self._given = 0
        del self.fetches[0]
        fetched.arena.release()
        border.made_room(self.cell)

    # ------------------------------------------------------------ the books

    def _keep_books(self, reader: FetchedRecords) -> None:
        border = self._shelf.border
        before, retained = self.retained, reader.retained_bytes
        if retained != before:
            border.decompressed_bytes += retained - before
            self.retained = retained
        if reader.unpackings:
            count, size, largest = reader.tally()
            # It fades, so that one large batch does not cost memory for good.
            border.largest_batch = max(border.largest_batch - (border.largest_batch >> 6), largest)
            border.measures.intake.unpacked(count, size)
            self._shelf.weighed(before - retained, largest - retained)

    def _hold(self, size: int) -> None:
        if size != self.held:
            self._shelf.border.hand_bytes += size - self.held
            self.held = size

    def _drained(self, count: int) -> None:
        if self.fetches:
            self._given += count
            self._shelf.drained(self.cell, count)
