"""The record batch's frame: a 61-byte header (magic 2, KIP-98), and the operations that do not read records.

Offsets are relative to the header's base offset, timestamps to its base timestamp. The checksum covers
everything from the attributes on; base offset and leader epoch lie before it, so that a broker can stamp them
in place.

Leader epochs reveal a truncation (KIP-320). A leader writes its epoch into every batch it appends, and epochs never go
back along a log. So when the first batch of a fetch has the newest epoch, all have it, and the others need not be
looked at.

For read_committed (KIP-98) a response lists the aborted transactions as (producer id, first offset). One is entered
when the walk reaches its first offset, and left at the producer's abort marker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kadence._native.records import crc32c, crc32c_kernel, scan
from kadence.errors import CorruptRecordError, UnsupportedRecordFormatError
from kadence.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "CONTROL",
    "CRC_FROM",
    "HEADER",
    "HEADER_SIZE",
    "KERNEL",
    "LOG_OVERHEAD",
    "MAGIC",
    "TIMESTAMP_TYPE",
    "TRANSACTIONAL",
    "AbortedTransactions",
    "BatchHeader",
    "assign_offsets",
    "crc32c",
    "first_epoch",
    "frame_fault",
    "iter_batches",
    "leader_epochs",
    "old_format_message",
    "scan",
    "validate",
]

KERNEL: Final = crc32c_kernel()
"""How this processor computes `crc32c(data, crc=0)`, which continues from ``crc``."""


HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp,
producer id and epoch, base sequence, record count."""

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and length; the length counts what follows them."""

MAGIC: Final = 2
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_FROM: Final = 21
ATTRIBUTES_AT: Final = 22
"""The byte of the attributes that says the codec."""

COMPRESSION: Final = 0x07
TIMESTAMP_TYPE: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_FRAME: Final = struct.Struct(">qi4xb")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_LARGEST_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header's fields, in the order of the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def parse(cls, data: Buffer, pos: int = 0) -> BatchHeader:
        """Read the header at ``pos``; its numbers are not checked.

        Raises:
            CorruptRecordError: fewer than 61 bytes are left.
        """
        try:
            return cls(*HEADER.unpack_from(data, pos))
        except struct.error as error:
            raise CorruptRecordError(f"no room for a batch header at byte {pos}: {error}") from error

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also when compaction removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; it wraps from 2**31 - 1 to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION

    @property
    def timestamp_type(self) -> int:
        """0: timestamps of the producer; 1: every record has the broker's, which is ``max_timestamp``."""
        return 1 if self.attributes & TIMESTAMP_TYPE else 0

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """The batch holds a transaction's end marker, not a user's records."""
        return bool(self.attributes & CONTROL)


def old_format_message(magic: int) -> str:
    """The error text for a batch that is not magic 2."""
    if magic in (0, 1):
        return (
            f"message format {magic} (before Kafka 0.11) is not supported: Kafka 4 cannot write it any more; "
            "copy the topic with an older client, or let its retention remove the old segments"
        )
    return f"unknown record format (magic {magic}); a newer Kadence may read it"


def frame_fault(base_offset: int, length: int, last_offset_delta: int, count: int) -> str | None:
    """Why a header's numbers are impossible, or None."""
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return f"a batch claims a length of {length} bytes"
    if base_offset < 0 or last_offset_delta < 0 or base_offset + last_offset_delta >= _LARGEST_OFFSET:
        return f"a batch claims the offsets {base_offset} to {base_offset + last_offset_delta}"
    if count < 0:
        return f"a batch claims {count} records"
    return None


def iter_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each complete batch; a batch that is cut off at the end is left out.

    Raises:
        CorruptRecordError: an impossible header. UnsupportedRecordFormatError: magic 0 or 1.
    """
    view = memoryview(data).cast("B")
    pos, end = 0, len(view)
    while end - pos > MAGIC_AT:
        base, length, magic = _FRAME.unpack_from(view, pos)
        if magic != MAGIC:
            raise UnsupportedRecordFormatError(f"at byte {pos}: {old_format_message(magic)}")
        if end - pos < max(length + LOG_OVERHEAD, HEADER_SIZE):
            if length >= HEADER_SIZE - LOG_OVERHEAD:
                return
            raise CorruptRecordError(f"at byte {pos}: {frame_fault(base, length, 0, 0)}")
        header = BatchHeader.parse(view, pos)
        fault = frame_fault(base, length, header.last_offset_delta, header.record_count)
        if fault:
            raise CorruptRecordError(f"at byte {pos}: {fault}")
        yield header, view[pos : pos + header.size]
        pos += header.size


def validate(data: Buffer) -> list[BatchHeader]:
    """Check everything that can be checked without reading records, as a broker does before it appends.

    Returns:
        the headers of the batches, which fill ``data`` exactly.

    Raises:
        CorruptRecordError: a wrong checksum, an impossible header, or bytes that are left over.
        UnsupportedRecordFormatError: magic 0 or 1.
    """
    headers = []
    complete = 0
    for header, batch in iter_batches(data):
        if crc32c(batch[CRC_FROM:]) != header.crc:
            raise CorruptRecordError(f"at byte {complete}: the batch's checksum does not match its bytes")
        if header.record_count > header.last_offset_delta + 1:
            raise CorruptRecordError(
                f"at byte {complete}: the batch claims {header.record_count} records "
                f"within {header.last_offset_delta + 1} offsets"
            )
        headers.append(header)
        complete += header.size
    size = memoryview(data).nbytes
    if complete != size:
        raise CorruptRecordError(f"{size - complete} bytes after the last whole batch, at byte {complete}")
    return headers


def assign_offsets(data: bytearray | memoryview, base_offset: int, leader_epoch: int) -> int:
    """Write offsets and leader epoch into the batches in place; the checksums stay valid.

    Returns:
        the offset after the last batch.
    """
    view = memoryview(data)
    pos = 0
    for header, _ in iter_batches(view):
        _OFFSET.pack_into(view, pos, base_offset)
        _EPOCH.pack_into(view, pos + LOG_OVERHEAD, leader_epoch)
        base_offset += header.last_offset_delta + 1
        pos += header.size
    return base_offset


_FRAME_AND_EPOCH: Final = struct.Struct(">qii")


def first_epoch(data: memoryview | bytes) -> int:
    """Leader epoch of the first batch; -1 when it has none. ``data`` holds a whole batch."""
    epoch: int = _EPOCH.unpack_from(data, LOG_OVERHEAD)[0]
    return max(epoch, -1)


def leader_epochs(data: memoryview | bytes) -> list[tuple[int, int]]:
    """Each epoch with the base offset of its first batch, in the order of the log.

    ``data`` holds the batches that `scan` found complete; the walk ends at an impossible header, as it does there.
    """
    found: list[tuple[int, int]] = []
    at, end = 0, len(data)
    while end - at >= HEADER_SIZE:
        base, length, epoch = _FRAME_AND_EPOCH.unpack_from(data, at)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            break
        if epoch >= 0 and (not found or epoch > found[-1][0]):
            found.append((epoch, base))
        at += length + LOG_OVERHEAD
    return found


_MARKER: Final = struct.Struct(">hh")
_ABORT: Final = 0


def _skip_varint(data: memoryview, pos: int) -> int:
    while data[pos] & 0x80:
        pos += 1
    return pos + 1


def _is_abort(records: memoryview) -> bool:
    """Whether a control batch's record is an abort marker: its key is (version, type), type 0.

    An unreadable marker ends no transaction.
    """
    try:
        pos = _skip_varint(records, 0) + 1
        pos = _skip_varint(records, pos)
        pos = _skip_varint(records, pos)
        pos = _skip_varint(records, pos)
        _, kind = _MARKER.unpack_from(records, pos)
    except (IndexError, struct.error):
        return False
    return bool(kind == _ABORT)


class AbortedTransactions:
    """The aborted transactions ahead, and those that are open at the current offset."""

    __slots__ = ("_ahead", "_open")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._ahead = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def enter(self, last_offset: int) -> None:
        """A batch that ends at ``last_offset`` is next: open the transactions that begin in it or before."""
        while self._ahead and self._ahead[-1][0] <= last_offset:
            self._open.add(self._ahead.pop()[1])

    def covers(self, producer_id: int) -> bool:
        """Whether the producer's transaction at the current offset is aborted."""
        return producer_id in self._open

    def marker(self, producer_id: int, records: memoryview) -> None:
        """A producer's control batch: an abort marker ends its aborted transaction."""
        if _is_abort(records):
            self._open.discard(producer_id)
