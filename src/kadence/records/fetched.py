"""One partition's bytes of one fetch response, read lazily: the same walk feeds record objects and columns.

APPLICATION thread. The walk over batches is Python, the records of a batch are the cursor's (`_columns_c` or
its twin). Records and columns copy out of the bytes and never hold them: `close` gives them back at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from kadence.errors import (
    ClosedError,
    CorruptRecordError,
    LocalError,
    RecordTooLargeError,
    UnsupportedRecordFormatError,
)
from kadence.records._implementation import ColumnsBuilder, Cursor, Record
from kadence.records._shared import DATA_LIMIT, RecordFormatError
from kadence.records.aborted import AbortedTransactions
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
    frame_fault,
    old_format_message,
)
from kadence.records.codecs import CodecError, decompress
from kadence.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from kadence.records.columns import Columns

__all__ = ["MAX_BATCH_BYTES", "FetchedRecords"]

MAX_BATCH_BYTES: Final = 128 * 1024 * 1024
"""Default bound on what one batch may decompress to."""


class FetchedRecords:
    """The records of one partition in one fetch response.

    `take` and `take_columns` may be mixed. Records before a damaged one come first; the error is raised by the
    call that has nothing else to give, and again by every call after it.

    Args:
        data: the bytes as the response has them; not changed, and not held after `close` or the last record.
        topic: name of the topic. partition: its partition.
        fetch_offset: the offset that was asked for; records below it (a batch may begin earlier) are stepped over.
        check_crcs: whether checksums are verified (CRC-32C over the batch as it came).
        max_batch_bytes: bound on what one compressed batch may become.
        aborted: for read_committed, the response's aborted transactions as (producer id, first offset);
            None returns the records of aborted transactions too.

    Attributes:
        next_offset: offset after the last record handed out; control batches, aborted and compacted ones that
            follow it are stepped over.
        leader_epoch: epoch of the leader that wrote the batch opened last; None before the first, or unknown.
    """

    __slots__ = (
        "_aborted",
        "_at",
        "_batch_end",
        "_batch_next",
        "_check_crcs",
        "_cursor",
        "_data",
        "_end",
        "_error",
        "_fields",
        "_is_closed",
        "_max_batch_bytes",
        "_retained",
        "_size",
        "leader_epoch",
        "next_offset",
        "partition",
        "topic",
    )

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
        view = memoryview(data)
        self._data: memoryview | None = view
        self._size = view.nbytes
        self._end = view.nbytes
        self._at = 0
        self.topic = topic
        self.partition = partition
        self.next_offset = fetch_offset
        self.leader_epoch: int | None = None
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._aborted = AbortedTransactions(aborted) if aborted is not None else None
        self._cursor = Cursor(topic, partition)
        self._fields: tuple[int, ...] | None = None
        self._batch_end = 0
        self._batch_next = 0
        self._retained = 0
        self._error: LocalError | None = None
        self._is_closed = False
        self._step_over(has_given=True)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "failed" if self._error else f"at byte {self._at}"
        return (
            f"<FetchedRecords {self.topic}-{self.partition} next {self.next_offset}, {state} of {self._size}>"
        )

    # --- what there is

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will come: no record, and no error."""
        return self._is_closed or (
            self._error is None and self._fields is None and self._cursor.remaining == 0
        )

    @property
    def complete_bytes(self) -> int:
        """Bytes of complete batches walked over so far; 0 at the end means only the beginning of a batch came."""
        return self._batch_end

    @property
    def retained_bytes(self) -> int:
        """Decompressed bytes held at this moment."""
        return self._retained

    def close(self) -> None:
        """Let go of all bytes. Calls after it raise `ClosedError`."""
        self._is_closed = True
        self._release()

    def _release(self) -> None:
        self._cursor.close()
        self._fields = None
        self._retained = 0
        self._data = None

    # --- handing out

    def take(self, max_records: int = -1) -> list[Record]:
        """Up to ``max_records`` records (all that are left when negative); empty when there are none.

        Raises:
            CorruptRecordError: the bytes at `next_offset` are damaged. UnsupportedRecordFormatError: an old format.
            RecordTooLargeError: a batch would decompress beyond the bound.
            ClosedError: after `close`.
        """
        out: list[Record] = []
        limit = max_records if max_records >= 0 else sys.maxsize
        cursor = self._cursor
        while limit > len(out) and self._open(bool(out)):
            try:
                cursor.take(out, limit - len(out))
            except RecordFormatError as error:
                self._fail_in_batch(error, bool(out))
            else:
                self._settle(bool(out))
        return out

    def take_columns(
        self, max_records: int = -1, *, headers: bool = False, max_bytes: int | None = None
    ) -> list[Columns]:
        """Up to ``max_records`` records as columns: one `Columns`, unless 2 GiB of one column need more.

        Args:
            max_records: bound on the rows in all; all that are left when negative.
            headers: whether to make the column of headers.
            max_bytes: stop after the row with which keys and values reach this size.

        Raises:
            as `take`.
        """
        done: list[Columns] = []
        builder = ColumnsBuilder(headers)
        limit = max_records if max_records >= 0 else sys.maxsize
        room = DATA_LIMIT if max_bytes is None else max_bytes
        cursor = self._cursor
        is_full = False
        while limit > builder.rows and self._open(builder.rows > 0 or bool(done)):
            rows = builder.rows
            try:
                is_full = cursor.gather(builder, limit - rows, room)
            except RecordFormatError as error:
                self._fail_in_batch(error, builder.rows > 0 or bool(done))
            else:
                self._settle(builder.rows > 0 or bool(done))
            if is_full:
                limit -= builder.rows
                done.append(builder.finish(self.topic, self.partition))
                if max_bytes is not None:
                    return done
        if builder.rows:
            done.append(builder.finish(self.topic, self.partition))
        return done

    # --- the walk over batches

    def _settle(self, has_given: bool) -> None:
        """After the cursor gave records: move the offset, and past the batch when it is used up."""
        if self._cursor.remaining:
            self.next_offset = self._cursor.next_offset
            return
        self.next_offset = max(self._batch_next, self.next_offset)
        self._cursor.close()
        self._retained = 0
        self._step_over(has_given)

    def _fail(self, error: LocalError, has_given: bool) -> None:
        """Keep an error; raise it unless records go out first."""
        self._error = error
        self._release()
        if not has_given:
            raise error

    def _fail_in_batch(self, error: RecordFormatError, has_given: bool) -> None:
        self.next_offset = max(self._cursor.next_offset, self.next_offset)
        corrupt = self._corrupt(str(error))
        corrupt.__cause__ = error
        self._fail(corrupt, has_given)

    def _corrupt(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._text(reason))

    def _text(self, reason: str) -> str:
        return (
            f"{self.topic}-{self.partition} at offset {self.next_offset}: {reason}. "
            "The position stays here; to go on without these records, seek past them"
        )

    def _step_over(self, has_given: bool) -> None:
        """Walk to the next batch that has records to give; its header is kept, its records are not opened."""
        data = self._data
        if data is None or self._error is not None:
            return
        at, end = self._at, self._end
        self._fields = None
        while end - at > MAGIC_AT:
            if data[MAGIC_AT + at] != MAGIC:
                magic = data[MAGIC_AT + at]
                self._at = at
                return self._fail(
                    UnsupportedRecordFormatError(self._text(old_format_message(magic))), has_given
                )
            if end - at < HEADER_SIZE:
                break
            fields = HEADER.unpack_from(data, at)
            base, length, delta, count = fields[0], fields[1], fields[6], fields[12]
            fault = frame_fault(base, length, delta, count)
            if fault:
                self._at = at
                return self._fail(self._corrupt(fault), has_given)
            after = at + length + LOG_OVERHEAD
            if after > end:
                break
            if self._has_records(fields, at, after, has_given):
                self._at = at
                self._fields = fields
                self._batch_end = after
                self._batch_next = base + delta + 1
                return None
            if self._error is not None:
                self._at = at
                return None
            self.next_offset = max(self.next_offset, base + delta + 1)
            self._batch_end = at = after
        self._at = at
        self._release()
        return None

    def _has_records(self, fields: tuple[int, ...], at: int, after: int, has_given: bool) -> bool:
        """Whether a batch has records for the application, and what it means for open transactions."""
        attributes, producer_id = fields[5], fields[9]
        last_offset = fields[0] + fields[6]
        if attributes & CONTROL:
            if self._aborted is not None and producer_id >= 0 and self._checksum_holds(fields, at, after):
                assert self._data is not None
                self._aborted.enter(last_offset)
                self._aborted.marker(producer_id, self._data[at + HEADER_SIZE : after])
            elif self._aborted is not None and producer_id >= 0:
                self._fail(self._corrupt("the checksum of a control batch does not match"), has_given)
            return False
        if self._aborted is not None and producer_id >= 0:
            self._aborted.enter(last_offset)
            if attributes & TRANSACTIONAL and self._aborted.covers(producer_id):
                return False
        return fields[12] > 0 and last_offset >= self.next_offset

    def _checksum_holds(self, fields: tuple[int, ...], at: int, after: int) -> bool:
        assert self._data is not None
        return not self._check_crcs or crc32c(self._data[at + CRC_FROM : after]) == fields[4]

    def _open(self, has_given: bool) -> bool:
        """Make sure that the cursor has a batch to read; False when there is none."""
        if self._cursor.remaining:
            return True
        if self._error is not None:
            if has_given:
                return False
            raise self._error
        if self._is_closed:
            raise ClosedError(f"the fetched records of {self.topic}-{self.partition} are closed")
        fields, data = self._fields, self._data
        if fields is None or data is None:
            return False
        at, after, attributes = self._at, self._batch_end, fields[5]
        try:
            if not self._checksum_holds(fields, at, after):
                raise CodecError("the batch's checksum does not match its bytes")
            codec = attributes & COMPRESSION
            records: Buffer = data
            start, end = at + HEADER_SIZE, after
            if codec:
                records = decompress(codec, data[start:end], self._max_batch_bytes)
                start, end = 0, memoryview(records).nbytes
                self._retained = end
            is_append_time = attributes & TIMESTAMP_TYPE
            epoch = fields[2] if fields[2] >= 0 else None
            self._cursor.open(
                records,
                start,
                end,
                fields[12],
                fields[0],
                fields[0] + fields[6],
                self.next_offset,
                fields[7],
                1 if is_append_time else 0,
                fields[8],
                epoch,
            )
        except (CodecError, RecordFormatError) as error:
            corrupt = self._corrupt(str(error))
            corrupt.__cause__ = error
            self._fail(corrupt, has_given)
            return False
        except (RecordTooLargeError, UnsupportedRecordFormatError) as error:
            self._fail(type(error)(self._text(str(error))), has_given)
            return False
        self.leader_epoch = epoch
        self._at = after
        self._fields = None
        return True
