"""The part of a record batch that a broker must look at: its 61-byte header (magic 2, KIP-98).

A broker reads no records: it checks the frame, the checksum and the counts, writes the base offset and
the leader epoch (both outside the checksum), and keeps the bytes as they came.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from kadence.protocol import error_codes as codes

__all__ = ["HEADER_BYTES", "BatchError", "BatchHeader", "stamp", "validate"]

HEADER_BYTES: Final = 61
MAGIC: Final = 2

_HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")
_LENGTH_FROM: Final = 12
"""Bytes before what the batch's own length counts: base offset and the length itself."""
_EPOCH_AT: Final = 12
CRC_FROM: Final = 21


class BatchError(Exception):
    """Not a batch that may be appended. ``code`` is Kafka's error code for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The fields in the order of the wire."""

    base_offset: int
    length: int
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
    def parse(cls, data: memoryview) -> BatchHeader:
        """Read a header; ``data`` holds at least `HEADER_BYTES`."""
        return cls(*_HEADER.unpack_from(data))

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + _LENGTH_FROM

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; it wraps as an int32 does."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def stamp(data: bytearray | memoryview, at: int, base_offset: int, leader_epoch: int) -> None:
    """Write where the batch at ``at`` stands in the log, in place."""
    _STAMP_OFFSET.pack_into(data, at, base_offset)
    _STAMP_EPOCH.pack_into(data, at + _EPOCH_AT, leader_epoch)


def validate(batch: memoryview, max_bytes: int) -> BatchHeader:
    """Check what a producer sent: exactly one batch, whole, unharmed, not too large.

    Raises:
        BatchError: with the code that the producer gets.
    """
    if len(batch) < HEADER_BYTES:
        raise BatchError(
            codes.INVALID_RECORD if len(batch) == 0 else codes.CORRUPT_MESSAGE,
            f"{len(batch)} bytes are no record batch",
        )
    header = BatchHeader.parse(batch)
    if header.magic != MAGIC:
        raise BatchError(
            codes.INVALID_RECORD,
            f"a batch of magic {header.magic}; produce v3 and above take magic {MAGIC} only",
        )
    if header.size > len(batch) or header.size < HEADER_BYTES:
        raise BatchError(
            codes.CORRUPT_MESSAGE, f"the batch says it has {header.size} bytes; {len(batch)} came"
        )
    if header.size < len(batch):
        raise BatchError(codes.INVALID_RECORD, "more than one batch for a partition in one request")
    if header.size > max_bytes:
        raise BatchError(
            codes.MESSAGE_TOO_LARGE, f"the batch has {header.size} bytes; max.message.bytes is {max_bytes}"
        )
    if crc32c(batch[CRC_FROM:]) != header.crc:
        raise BatchError(codes.CORRUPT_MESSAGE, "the batch's checksum does not match its bytes")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise BatchError(
            codes.INVALID_RECORD,
            f"a batch of {header.record_count} records whose last has offset delta {header.last_offset_delta}",
        )
    if header.is_control or header.is_transactional:
        raise BatchError(codes.INVALID_RECORD, "the embedded broker has no transactions")
    return header
