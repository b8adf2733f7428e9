"""One partition's bytes of one fetch response, read lazily: one walk serves record objects and columns.

Compiled as it stands; the types of the fields are in the .pxd file.

APPLICATION thread. It is a cursor (`_native/records.pyx`), which reads records and goes from one ordinary batch to
the next; the other things between batches are handled here. Records and columns copy out of the bytes and never hold
them: `close` gives them back at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import cython

from kadence._native import refuse
from kadence._native.columns import ColumnsBuilder
from kadence._native.shared import DATA_LIMIT, OWN_COLUMNS, RecordFormatError
from kadence.errors import (
    ClosedError,
    CorruptRecordError,
    LocalError,
    RecordTooLargeError,
    UnsupportedRecordFormatError,
)
from kadence.records.batch import (
    COMPRESSION,
    CONTROL,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    AbortedTransactions,
    crc32c,
    frame_fault,
    old_format_message,
)
from kadence.records.codecs import CodecError, decompress

if not cython.compiled:
    refuse(__name__)
    from kadence._native.records import Cursor, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from typing_extensions import Buffer

    from kadence._native.shared import Columns

__all__ = ["MAX_BATCH_BYTES", "FetchedRecords"]

MAX_BATCH_BYTES: Final = 128 * 1024 * 1024
"""Default bound on what one batch may decompress to."""


@cython.cclass
class FetchedRecords(Cursor):
    """The records of one partition in one fetch response.

    `take` and `take_columns` may be mixed. Records before a damaged one come first; the error is raised by the first
    call that has no record left to return, and by every later call.

    Args:
        data: the bytes as the response has them; not changed, and not held after `close` or the last record.
        topic: name of the topic. partition: its partition.
        fetch_offset: the offset that was asked for; records below it (a batch may begin earlier) are stepped over.
        check_crcs: whether checksums are verified (CRC-32C over the batch as it came).
        max_batch_bytes: bound on the decompressed size of one batch.
        aborted: for read_committed, the response's aborted transactions as (producer id, first offset);
            None returns the records of aborted transactions too.

    Attributes:
        next_offset: offset after the last record handed out; control batches, aborted and compacted ones that
            follow it are skipped.
        leader_epoch: epoch of the leader that wrote the last batch below `next_offset` that was opened or skipped; None
            before the first, or if unknown.
        after: bytes of the batches that were opened or skipped.
        unpackings: how many batches were decompressed since `tally`.
        unpack_room: once batches have been decompressed to this many bytes since `tally`, no further batch is: the
            records taken are returned first. One batch always is.
        taken_bytes: bytes that the records of the last `take` occupied in their batches.
    """

    def __init__(
        self,
        data: Buffer,
        topic: str,
        partition: int,
        fetch_offset: int,
        *,
        check_crcs: bool = True,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        aborted: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(topic, partition)
        view = memoryview(data).cast("B")
        self._bytes: memoryview | None = view
        self._size = len(view)
        self.next_offset = fetch_offset
        self.unpackings = 0
        self._unpacked = 0
        self.unpack_room = sys.maxsize
        self._largest = 0
        self.taken_bytes = 0
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._aborted = AbortedTransactions(aborted) if aborted is not None else None
        self._fields: tuple[int, ...] | None = None
        """The header of the next batch, at `after`, if it has records to return."""
        self._retained = 0
        self._error: LocalError | None = None
        self._is_closed = False
        self._step_over(has_given=True)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "failed" if self._error else f"at byte {self.after}"
        return (
            f"<FetchedRecords {self.topic}-{self.partition} next {self.next_offset}, {state} of {self._size}>"
        )

    # --- the state

    @property
    def exhausted(self) -> bool:
        """Whether neither a record nor an error is left."""
        return self._is_closed or (self._error is None and self._fields is None and self.remaining == 0)

    @property
    def is_packed(self) -> bool:
        """Whether the next record is in a batch that is not decompressed yet."""
        fields = self._fields
        return fields is not None and not self.remaining and bool(fields[5] & COMPRESSION)

    @property
    def retained_bytes(self) -> int:
        """Decompressed bytes held at this moment."""
        return self._retained

    def tally(self) -> tuple[int, int, int]:
        """Returns (batches, bytes, largest batch) decompressed since the last call."""
        told = self.unpackings, self._unpacked, self._largest
        self.unpackings = self._unpacked = self._largest = 0
        return told

    def close(self) -> None:
        """Release all bytes. Later calls raise `ClosedError`."""
        self._is_closed = True
        self._let_go()

    def _let_go(self) -> None:
        self.close_batch()
        self._fields = None
        self._retained = 0
        self._bytes = None

    # --- handing out

    def take(
        self, max_records: int = -1, *, max_bytes: int = sys.maxsize, unpacks: bool = True
    ) -> list[Record]:
        """Up to ``max_records`` records (all that are left when negative); empty when there are none.

        Args:
            max_bytes: stop after the record with which they reach this many bytes of their batches.
            unpacks: False: stop before a batch that must be decompressed.

        Raises:
            CorruptRecordError: the bytes at `next_offset` are damaged. UnsupportedRecordFormatError: an old format.
            RecordTooLargeError: a batch would decompress beyond the bound.
            ClosedError: after `close`.
        """
        out: list[Record] = []
        limit = max_records if max_records >= 0 else sys.maxsize
        self.taken_bytes = 0
        while limit > len(out) and self.taken_bytes < max_bytes and self._open(bool(out), unpacks):
            try:
                self.taken_bytes += self.read(out, limit - len(out), max_bytes - self.taken_bytes)
            except RecordFormatError as error:
                self.fail_in_batch(error, bool(out))
            else:
                self.settle(bool(out))
        return out

    def take_columns(
        self,
        max_records: int = -1,
        *,
        columns: Collection[str] = OWN_COLUMNS,
        max_bytes: int | None = None,
        unpacks: bool = True,
    ) -> list[Columns]:
        """Up to ``max_records`` records as columns: one `Columns`, unless 2 GiB of one column need more.

        Args:
            max_records: bound on the rows in all; all that are left when negative.
            columns: names of the columns to make, of `ALL_COLUMNS`.
            max_bytes: stop after the row with which keys and values (asked for or not) and the headers that are asked
                for reach this size.
            unpacks: as for `take`.

        Raises:
            as `take`.
        """
        done: list[Columns] = []
        builder = ColumnsBuilder(columns)
        limit = max_records if max_records >= 0 else sys.maxsize
        room = DATA_LIMIT if max_bytes is None else max_bytes
        is_full = False
        while limit > builder.rows and self._open(builder.rows > 0 or bool(done), unpacks):
            rows = builder.rows
            try:
                is_full = builder.gather(self, limit - rows, room)
            except RecordFormatError as error:
                self.fail_in_batch(error, builder.rows > 0 or bool(done))
            else:
                self.settle(builder.rows > 0 or bool(done))
            if is_full:
                limit -= builder.rows
                done.append(builder.finish(self.topic, self.partition))
                if max_bytes is not None:
                    return done
        if builder.rows:
            done.append(builder.finish(self.topic, self.partition))
        return done

    # --- the walk over batches

    def settle(self, has_given: bool) -> None:
        """After records were read: move past the batch if it is used up. With ``has_given`` a later error is kept."""
        if self.remaining:
            return
        self.next_offset = max(self.after_offset, self.next_offset)
        self.close_batch()
        self._retained = 0
        self._step_over(has_given)

    def _fail(self, error: LocalError, has_given: bool) -> None:
        """Keep an error for the next call if records are returned first, else raise it; nothing more is read."""
        self._error = error
        self._let_go()
        if not has_given:
            raise error

    def fail_in_batch(self, error: RecordFormatError, has_given: bool) -> None:
        """As `settle`, when the next record cannot be read."""
        self._fail(self._corrupt(error, self.after_offset), has_given)

    def _corrupt(self, reason: ValueError | str, resume: int | None = None) -> CorruptRecordError:
        error = CorruptRecordError(self._text(reason, resume))
        if isinstance(reason, ValueError):
            error.__cause__ = reason
        return error

    def _text(self, reason: object, resume: int | None = None) -> str:
        """The error: its cause, place and remedy; ``resume`` is the first offset after the damage, if known."""
        where = f"{self.topic}-{self.partition} at offset {self.next_offset}"
        past = f"seek to {resume}" if resume is not None else "seek past them"
        return f"{where}: {reason}. The position stays here; to go on without these records, {past}"

    def _step_over(self, has_given: bool) -> None:
        """Walk to the next batch that has records to return; its header is kept, its records are not opened."""
        self._fields = None
        try:
            if not self._walk():
                self._let_go()
        except LocalError as error:
            self._fail(error, has_given)

    def _walk(self) -> bool:
        """Skip batches without records for the application; False at the end of the complete ones."""
        data, end = self._bytes, self._size
        assert data is not None
        while end - self.after > MAGIC_AT:
            at = self.after
            magic = data[MAGIC_AT + at]
            if magic != MAGIC:
                raise UnsupportedRecordFormatError(self._text(old_format_message(magic)))
            if end - at < HEADER_SIZE:
                return False
            fields = HEADER.unpack_from(data, at)
            fault = frame_fault(fields[0], fields[1], fields[6], fields[12])
            if fault:
                raise self._corrupt(fault)
            after = self._end(fields)
            if after > end:
                return False
            if self._has_records(fields):
                self._fields = fields
                return True
            if _behind(fields) > self.next_offset:
                self.next_offset = _behind(fields)
                # Its offsets belong to this epoch, although they have no record.
                self.leader_epoch = fields[2] if fields[2] >= 0 else None
            self.after = after
        return False

    def _end(self, fields: tuple[int, ...]) -> int:
        """Where the batch that begins at `after` ends."""
        return self.after + fields[1] + LOG_OVERHEAD

    def _has_records(self, fields: tuple[int, ...]) -> bool:
        """Whether the batch at `after` has records for the application; tracks open transactions."""
        attributes, producer_id = fields[5], fields[9]
        last_offset = fields[0] + fields[6]
        aborted = self._aborted
        if aborted is not None and producer_id >= 0:
            aborted.enter(last_offset)
            if attributes & CONTROL:
                aborted.marker(producer_id, self._checked(fields)[HEADER_SIZE - CRC_FROM :])
            elif attributes & TRANSACTIONAL and aborted.covers(producer_id):
                return False
        return not attributes & CONTROL and fields[12] > 0 and last_offset >= self.next_offset

    def _checked(self, fields: tuple[int, ...]) -> memoryview:
        """The bytes that the checksum of the batch at `after` covers; verifies it first."""
        assert self._bytes is not None
        covered = self._bytes[self.after + CRC_FROM : self._end(fields)]
        if self._check_crcs and crc32c(covered) != fields[4]:
            raise self._corrupt("the batch's checksum does not match its bytes", _behind(fields))
        return covered

    def _open(self, has_given: bool, unpacks: bool) -> bool:
        """Open the next batch if none is open; False when there is none, or when an error is raised later."""
        if self.remaining:
            return True
        if self._error is not None:
            if has_given:
                return False
            raise self._error
        if self._is_closed:
            raise ClosedError(f"the fetched records of {self.topic}-{self.partition} are closed")
        if self._fields is None or (
            self._fields[5] & COMPRESSION
            and (not unpacks or (self.unpackings and self._unpacked >= self.unpack_room))
        ):
            return False
        try:
            self._open_next(self._fields)
        except LocalError as error:
            self._fail(error, has_given)
            return False
        self._fields = None
        return True

    def _open_next(self, fields: tuple[int, ...]) -> None:
        """Verify and decompress the batch at `after`, and open it."""
        base, attributes = fields[0], fields[5]
        codec, after = attributes & COMPRESSION, self._end(fields)
        covered = self._checked(fields)
        try:
            if codec:
                records = decompress(codec, covered[HEADER_SIZE - CRC_FROM :], self._max_batch_bytes)
                start, end = 0, memoryview(records).nbytes
                self._retained = end
                self.unpackings += 1
                self._unpacked += end
                self._largest = max(self._largest, end)
            else:
                assert self._bytes is not None
                records, start, end = self._bytes, self.after + HEADER_SIZE, after
            self.open_batch(
                records,
                start,
                end,
                fields[12],
                base,
                base + fields[6],
                self.next_offset,
                fields[7],
                1 if attributes & TIMESTAMP_TYPE else 0,
                fields[8],
                fields[2],
                after,
                not codec and self._aborted is None,
                self._check_crcs,
            )
        except (CodecError, RecordFormatError) as error:
            raise self._corrupt(error, _behind(fields)) from error
        except (RecordTooLargeError, UnsupportedRecordFormatError) as error:
            raise type(error)(self._text(error, _behind(fields))) from error


def _behind(fields: tuple[int, ...]) -> int:
    """The offset after a batch."""
    return fields[0] + fields[6] + 1
