"""One partition's reader: the bytes that were fetched, a cursor in them, and decoded records (C9). Application side.

Records are decoded (`decoded_records`), some ahead for a small poll, and returned by an index. The records of a poll
are put back by that index, so they are neither fetched nor decoded a second time.

The bytes of a fetch are released when its last record has been returned. Until then a reader can open them again: after
the decoded records, if Ctrl-C interrupted decoding, or after the returned ones, if columns are wanted.

A partition may be read for a range (C11). Before its end there are at most as many records as offsets, so this many
records are decoded. Where some offsets have no record (compaction, aborted transactions, control records), the last of
these records lie beyond the end and are cut off again.

It is compiled; the C types of the fields are in the .pxd file.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import cython

from kadence._native import refuse
from kadence.errors import KafkaError

if not cython.compiled:
    refuse(__name__)
    from kadence.consumer.decoded_records import DecodedRecords
    from kadence.consumer.fetch._steps import ReaderState, Steps
    from kadence.records import FetchedRecords, Record

if TYPE_CHECKING:
    from kadence.consumer.measures import TopicPollMeasures
    from kadence.consumer.shared_partition import SharedPartition
    from kadence.consumer.shared_state import CompletedFetch, SharedState
    from kadence.records import Columns

    class ReaderContext(Protocol):
        """State shared by the readers of one consumer.

        Attributes:
            shared_state: the shared state. check_crcs, max_batch_bytes: see `FetchedRecords`.
            advanced: whether a position moved without a record in the current poll. steps: numbers the polls.
        """

        shared_state: SharedState
        steps: Steps
        check_crcs: bool
        max_batch_bytes: int
        advanced: bool

        def ahead(self, limit: int) -> tuple[int, int]:
            """How many records to decode for a poll of ``limit``, and how many bytes more of them may take."""
            ...

        def has_room(self) -> bool:
            """Whether there is memory for another decompressed batch, and no other reader waits for it."""
            ...

        def make_room(self) -> bool:
            """Whether a reader that can only continue by decompressing a batch may do so.

            If not, it waits for the others.
            """
            ...

        def unpack_room(self) -> int:
            """How many more bytes may be decompressed for the current poll."""
            ...

        def unpacked(self, size: int) -> None:
            """Count decompressed bytes."""
            ...

        def weighed(self, before: int, most: int) -> None:
            """A batch was decompressed: count the memory held before and at most, beyond the current count."""
            ...

        def refetch(self, shared_partition: SharedPartition) -> None:
            """Fetch again from the position."""
            ...

        def passed(self, shared_partition: SharedPartition) -> None:
            """The position moves over records that are not returned."""
            ...


__all__ = ["PartitionReader"]

_NOTHING = memoryview(b"")

_offset = attrgetter("offset")


@cython.cfunc
def before_end(count: cython.Py_ssize_t, offset: cython.longlong, end: Any) -> cython.Py_ssize_t:
    """How many of ``count`` records from an offset on can lie before the end (None: no end)."""
    return count if end is None else min(count, cython.cast(cython.longlong, end) - offset)


@cython.cfunc
def position_at(offset: cython.longlong, end: Any) -> cython.longlong:
    """The position after reading all below ``offset``: at most the end."""
    return offset if end is None else min(offset, cython.cast(cython.longlong, end))


@cython.cfunc
def cut_records(items: list[Any], end: Any) -> list[Any]:
    """Those before the end."""
    if end is None or not items or items[len(items) - 1].offset < end:
        return items
    return items[: bisect_left(items, end, key=_offset)]


@cython.cfunc
def cut_columns(parts: list[Any], end: Any) -> list[Any]:
    """Their rows before the end."""
    return parts if end is None else [part for each in parts if len(part := each.before(end))]


@cython.nonecheck(True)
@cython.cclass
class PartitionReader(ReaderState):
    """Reads the fetched records of one partition in order.

    Attributes:
        shared_partition: the partition's. fetches: its fetches, the one being read first.
        retained: decompressed bytes of the batch being read.
        waits: it has no decoded records, and no memory to decompress its next batch.
        relieved_at: the end of its range when its memory was last checked, if the range had been read to it.
    """

    def __init__(
        self, shared_partition: SharedPartition, poll_measures: TopicPollMeasures, context: ReaderContext
    ) -> None:
        super().__init__(shared_partition, shared_partition.partition, poll_measures.records)
        self.poll_measures = poll_measures
        self.fetches: deque[CompletedFetch] = deque()
        self.retained = 0
        self.waits = False
        self.relieved_at: int | None = None
        self._context = context

    def __repr__(self) -> str:
        decoded = self.decoded
        return f"<Reader {self.partition} fetches={len(self.fetches)} decoded={0 if decoded is None else decoded.left}>"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to return."""
        return not self.fetches and not self.left

    @property
    def size(self) -> int:
        """Fetched bytes that are held."""
        return sum(len(fetched.data) for fetched in self.fetches)

    # ------------------------------------------------------------ returning records

    def look(self, limit: int) -> list[Record]:
        """The next records, at most ``limit``, in a list that must not be changed; `give` marks them as returned.

        Raises:
            KafkaError: the next record cannot be read.
        """
        if self.left < limit:
            self._decode(limit)
        decoded: DecodedRecords | None = self.decoded
        if decoded is None:
            return []
        index = decoded.index
        # Kept while a slice of it is made.
        records: list[Record] = decoded.records
        if index == 0 and limit >= decoded.count:
            return records
        return records[index : min(index + limit, decoded.count)]

    def fill(self, limit: int) -> None:
        """Decode records, if there are none, for the next poll of ``limit``.

        Not if the current poll took the last: if it is interrupted, its records are put back.
        """
        shared_partition = self.shared_partition
        decoded: DecodedRecords | None = self.decoded
        is_empty = decoded is None or (not decoded.left and decoded.began == decoded.index)
        if is_empty and not (
            shared_partition.paused
            or shared_partition.work_paused
            or shared_partition.revoking
            or shared_partition.held
        ):
            # The poll that asks for unreadable data raises the error.
            with contextlib.suppress(KafkaError):
                self._decode(limit)

    def give(self, touched: list[ReaderState], count: int) -> bool:
        """Mark the first ``count`` of the records of `look` as returned; False if their fetch epoch is over."""
        decoded: DecodedRecords | None = self.decoded
        if decoded is None:
            return False
        # Before anything moves: an interruption from here on can be undone by putting back.
        touched.append(self)
        decoded.index += count
        self.count()
        if not decoded.left:
            if decoded.count and decoded.end != decoded.records[decoded.count - 1].offset + 1:
                self._context.passed(self.shared_partition)
            self._end_fetch()
        return True

    def give_columns(
        self,
        touched: list[ReaderState],
        limit: int,
        take: Callable[[FetchedRecords, int, bool], list[Columns]],
    ) -> list[Columns]:
        """At most ``limit`` records as columns; marks them as returned.

        Raises:
            KafkaError: as `look`.
        """
        if not self._lay_down():
            return []
        context = self._context
        while (fetched := self._next_fetch()) is not None:
            reader = self._reader(fetched)
            unpacks = context.has_room() or (reader.is_packed and context.make_room())
            self.waits = not unpacks and reader.is_packed
            if self.waits:
                return []
            before = self._resume_at(fetched)
            touched.append(self)
            self.opened = None
            items: list[Columns] = []
            error: KafkaError | None = None
            try:
                items = cut_columns(
                    take(reader, before_end(limit, before, self.shared_partition.end), unpacks),
                    self.shared_partition.end,
                )
            except KafkaError as raised:
                error = raised
            finally:
                self.keep_books(reader)
            if items:
                self.replace(self._behind(reader, began=0))
            elif reader.next_offset != before:
                self.replace(self._behind(reader, began=1))
                context.advanced = True
            self._stays_open(reader)
            if error is not None and not self._is_beyond_end(reader):
                raise error
            self._end_fetch()
            if items:
                self._count_gone(sum(len(part) for part in items))
                return items
        return []

    def _count_gone(self, count: int) -> None:
        """Count records that were returned and are not kept."""
        calls = self._context.steps.calls
        before = self.gone if self.gone_in == calls else 0
        self.records.total += count
        self.gone, self.gone_in = before + count, calls

    def count_back(self) -> None:
        """Uncount the records of the current poll: they are fetched again, and counted again."""
        decoded = self.shared_partition.decoded
        count = self.gone if self.gone_in == self._context.steps.calls else 0
        self.gone = 0
        if decoded is not None and decoded.count and decoded.counted > decoded.began:
            count += decoded.counted - decoded.began
            decoded.counted = decoded.began
        self.records.total -= count

    def count(self) -> None:
        """Count the records returned since the last call."""
        decoded = self.shared_partition.decoded
        if decoded is not None and decoded.count:
            self.records.total += decoded.index - decoded.counted
            decoded.counted = decoded.index

    # ------------------------------------------------------------ decoding

    def _decode(self, limit: int) -> None:
        """Decode ``limit`` records, or as many as the first fetch with records contains.

        The rest of a poll's cap goes to the next fetch of the same partition only when this one gave nothing (stale, or
        nothing but control records): two small lists cost more than one poll of slightly fewer records.
        """
        context = self._context
        while (fetched := self._next_fetch()) is not None:
            reader = self._reader(fetched)
            decoded = self.decoded
            left = 0 if decoded is None else decoded.left
            if left and reader.exhausted:
                return
            unpacks = context.has_room() or (reader.is_packed and context.make_room())
            if not unpacks and reader.is_packed:
                self.waits = not left
                return
            self.waits = False
            if decoded is not None and decoded.count and decoded.began == decoded.count:
                # Its records now belong to the application alone, so its memory can be reused for the next ones.
                decoded = self._emptied(decoded)
                self.replace(decoded)
            before = self._resume_at(fetched)
            self.opened = None
            items: list[Record] = []
            size = 0
            error: KafkaError | None = None
            try:
                items, size = self._read(
                    reader, before_end(limit - left, before, self.shared_partition.end), unpacks
                )
            except KafkaError as raised:
                error = raised
            finally:
                self.keep_books(reader)
            if decoded is not None and left:
                self.replace(self._extended(decoded, reader, items))
                self.hold(self.held + size)
            elif items:
                self.replace(self._filled(reader, items, before))
                self.hold(size)
            elif reader.next_offset != before:
                self._context.passed(self.shared_partition)
                self.replace(self._behind(reader, began=1))
                context.advanced = True
            self._stays_open(reader)
            if items or left:
                return
            if error is not None and not self._is_beyond_end(reader):
                raise error
            self._end_fetch()

    def _is_beyond_end(self, reader: FetchedRecords) -> bool:
        return position_at(reader.next_offset, self.shared_partition.end) == self.shared_partition.end

    def _stays_open(self, reader: FetchedRecords) -> None:
        """The decoded records end at its position. Beyond the range it is closed: another range may begin there."""
        self.opened = reader
        if self._stands_at(reader) != reader.next_offset:
            self.close()

    def _stands_at(self, reader: FetchedRecords) -> int:
        """The position after the records read."""
        return position_at(reader.next_offset, self.shared_partition.end)

    def _read(self, reader: FetchedRecords, limit: int, unpacks: bool) -> tuple[list[Record], int]:
        """The next records, and how many bytes they take if there are more than ``limit``."""
        count, room = self._context.ahead(limit)
        count = before_end(count, reader.next_offset, self.shared_partition.end)
        if count <= limit:
            return cut_records(reader.take(limit, unpacks=unpacks), self.shared_partition.end), 0
        items = cut_records(reader.take(count, max_bytes=room, unpacks=unpacks), self.shared_partition.end)
        if len(items) >= limit:
            return items, reader.taken_bytes
        # They are large, or the last ones. The requested records are returned whatever their size.
        if not reader.exhausted and not self._is_beyond_end(reader):
            items += self._rest(reader, limit - len(items), unpacks)
        return items, 0

    def _rest(self, reader: FetchedRecords, limit: int, unpacks: bool) -> list[Record]:
        try:
            return cut_records(reader.take(limit, unpacks=unpacks), self.shared_partition.end)
        except KafkaError:
            # The poll that finds no record before it raises it again.
            return []

    def _filled(self, reader: FetchedRecords, items: list[Record], start: int) -> DecodedRecords:
        """New decoded records, after the previous ones."""
        at = self._processed_through()
        offset, epoch = (start, None) if at is None else at
        decoded = DecodedRecords(
            self._fetch_epoch, items, offset, epoch, self._stands_at(reader), reader.leader_epoch
        )
        decoded.is_last = reader.exhausted
        return decoded

    def _extended(
        self, decoded: DecodedRecords, reader: FetchedRecords, items: list[Record]
    ) -> DecodedRecords:
        """The decoded records followed by new ones, without those that are known to be processed."""
        began = decoded.began
        self._processed_through()
        offset, epoch = decoded.processed() or (decoded.start, decoded.start_epoch)
        records: list[Record] = decoded.records
        extended = DecodedRecords(
            decoded.fetch_epoch,
            records[began:] + items,
            offset,
            epoch,
            self._stands_at(reader),
            reader.leader_epoch if items else decoded.end_epoch,
        )
        extended.index, extended.counted = decoded.index - began, decoded.counted - began
        extended.is_last = reader.exhausted
        return extended

    def _behind(self, reader: FetchedRecords, *, began: int) -> DecodedRecords:
        """A position after the records read, without records. ``began`` 0: it can be put back to before them."""
        offset, epoch = self._processed_through() or (reader.next_offset, None)
        decoded = DecodedRecords(
            self._fetch_epoch, [], offset, epoch, self._stands_at(reader), reader.leader_epoch
        )
        decoded.index, decoded.began = 1, began
        return decoded

    @property
    def _fetch_epoch(self) -> int:
        return self.fetches[0].fetch_epoch

    def _processed_through(self) -> tuple[int, int | None] | None:
        """Before decoded records are replaced: record in the shared partition how far they are processed.

        Returns the position.
        """
        shared_partition = self.shared_partition
        decoded = self.decoded
        if decoded is None:
            origin = shared_partition.origin
            return None if origin is None else (origin.offset, origin.leader_epoch)
        if (
            decoded.processed() is not None
            and (processed := shared_partition.processed_position()) is not None
        ):
            shared_partition.processed = processed
        return decoded.position()

    def _lay_down(self) -> bool:
        """Columns are wanted: prepare to read decoded records again from their bytes. False: these are gone."""
        decoded = self.decoded
        if decoded is None or not decoded.left:
            return True
        offset, _ = decoded.position()
        if self._next_fetch() is None or self.fetches[0].offset > offset:
            self._context.refetch(self.shared_partition)
            return False
        # First: its position is after the old records.
        self.close()
        self.replace(self._emptied(decoded))
        self.hold(0)
        return True

    def let_go(self) -> None:
        """No more records are returned: release them, and keep the position."""
        decoded = self.decoded
        if decoded is not None:
            self.replace(self._emptied(decoded))

    def _emptied(self, decoded: DecodedRecords) -> DecodedRecords:
        """Their position without the records; all before it is known to be processed."""
        self._processed_through()
        offset, epoch = decoded.position()
        emptied = DecodedRecords(decoded.fetch_epoch, [], offset, epoch, offset, epoch)
        emptied.index = emptied.began = 1
        return emptied

    # ------------------------------------------------------------ fetches

    def _next_fetch(self) -> CompletedFetch | None:
        """The fetch to read, after releasing used-up fetches and those of an old fetch epoch."""
        while self.fetches:
            fetched = self.fetches[0]
            if fetched.fetch_epoch != self.shared_partition.fetch_epoch:
                self.finish()
            elif not self._end_fetch():
                end = self.shared_partition.end
                # Data beyond the end of the range is kept: the next range may begin there.
                return fetched if end is None or self._resume_at(fetched) < end else None
        return None

    def _end_fetch(self) -> bool:
        """Release the first fetch if it has no records left and all decoded records have been returned."""
        if self.opened is None or not self.opened.exhausted:
            return False
        decoded = self.decoded
        if decoded is not None and decoded.left:
            return False
        self.poll_measures.bytes.total += len(self.fetches[0].data)
        self.finish()
        return True

    def _reader(self, fetched: CompletedFetch) -> FetchedRecords:
        """The fetch, opened after the decoded records."""
        if self.opened is None:
            shared_partition, context = self.shared_partition, self._context
            self.opened = FetchedRecords(
                fetched.data,
                shared_partition.partition.topic,
                shared_partition.partition.partition,
                self._resume_at(fetched),
                check_crcs=context.check_crcs,
                max_batch_bytes=context.max_batch_bytes,
                aborted=fetched.aborted,
            )
        self.opened.unpack_room = self._context.unpack_room()
        return self.opened

    def _resume_at(self, fetched: CompletedFetch) -> int:
        """The position at which reading continues: after the decoded records."""
        decoded = self.decoded
        return fetched.offset if decoded is None else max(fetched.offset, decoded.end)

    def close(self) -> None:
        """Close the open fetch and give up its decompressed batch; it is opened again after the decoded records."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.close()
        self._context.shared_state.decompressed_bytes -= self.retained
        self.retained = 0

    def finish(self) -> None:
        """The first fetch is finished: release its bytes, and report that if the network thread waits for it.

        Removed last, and the steps before it can be repeated: an interruption leaves the accounts right.
        """
        shared_state = self._context.shared_state
        fetched = self.fetches[0]
        self.close()
        decoded = self.decoded
        if decoded is None or not decoded.left:
            self.hold(0)
        self.shared_partition.drained_bytes += len(fetched.data)
        fetched.data = _NOTHING
        del self.fetches[0]
        fetched.arena.release()
        shared_state.made_room(self.shared_partition)

    # ------------------------------------------------------------ accounting

    def keep_books(self, reader: FetchedRecords) -> None:
        """Account for the memory held and the bytes decompressed since the last call."""
        shared_state = self._context.shared_state
        before, retained = self.retained, reader.retained_bytes
        if retained != before:
            shared_state.decompressed_bytes += retained - before
            self.retained = retained
        if reader.unpackings:
            count, size, largest = reader.tally()
            # It decays, so that one large batch does not cost memory for good.
            shared_state.largest_batch = max(
                shared_state.largest_batch - (shared_state.largest_batch >> 6), largest
            )
            shared_state.measures.poll_measures.unpacked(count, size)
            self._context.unpacked(size)
            self._context.weighed(before - retained, largest - retained)

    def hold(self, size: int) -> None:
        """Account for this many bytes of decoded records."""
        if size != self.held:
            self._context.shared_state.decoded_bytes += size - self.held
            self.held = size
