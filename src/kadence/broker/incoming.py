"""What a producer sends, before it is appended: exactly one batch, whole, unharmed, not too large.

A broker reads no records: frame, checksum and counts are checked, and the bytes are kept as they came. The
one thing written into them is the broker's time, for topics with LogAppendTime.
"""

from __future__ import annotations

import struct
from typing import Final

from kadence.errors import CorruptRecordError, UnsupportedRecordFormatError
from kadence.protocol import error_codes as codes
from kadence.records import BatchHeader, crc32c, validate
from kadence.records.batch import CRC_FROM, HEADER_SIZE, TIMESTAMP_TYPE

__all__ = ["BatchError", "stamp_append_time", "validate_produced"]

_CRC_AND_ATTRIBUTES: Final = struct.Struct(">IH")
_CRC_AT: Final = 17
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class BatchError(Exception):
    """Not a batch that may be appended. ``code`` is Kafka's error code for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def validate_produced(batch: memoryview, max_bytes: int) -> BatchHeader:
    """Check the bytes of one partition of a produce request.

    Raises:
        BatchError: with the code that the producer gets.
    """
    if not len(batch):
        raise BatchError(codes.INVALID_RECORD, "no batch for the partition")
    if len(batch) > max_bytes:
        raise BatchError(
            codes.MESSAGE_TOO_LARGE, f"the batch has {len(batch)} bytes; max.message.bytes is {max_bytes}"
        )
    try:
        headers = validate(batch)
    except UnsupportedRecordFormatError as error:
        raise BatchError(codes.INVALID_RECORD, str(error)) from error
    except CorruptRecordError as error:
        raise BatchError(codes.CORRUPT_MESSAGE, str(error)) from error
    if len(headers) != 1:
        raise BatchError(
            codes.INVALID_RECORD, f"{len(headers)} batches for a partition in one request; send one"
        )
    header = headers[0]
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise BatchError(
            codes.INVALID_RECORD,
            f"a batch of {header.record_count} records whose last has offset delta {header.last_offset_delta}",
        )
    if header.is_control or header.is_transactional:
        raise BatchError(codes.INVALID_RECORD, "the embedded broker has no transactions")
    return header


def stamp_append_time(batch: memoryview, now_wall: int) -> memoryview:
    """A copy of the batch whose records all have the broker's time (milliseconds since 1970)."""
    stamped = bytearray(batch)
    assert len(stamped) >= HEADER_SIZE
    _, attributes = _CRC_AND_ATTRIBUTES.unpack_from(stamped, _CRC_AT)
    _CRC_AND_ATTRIBUTES.pack_into(stamped, _CRC_AT, 0, attributes | TIMESTAMP_TYPE)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, now_wall)
    crc = crc32c(memoryview(stamped)[CRC_FROM:])
    _CRC_AND_ATTRIBUTES.pack_into(stamped, _CRC_AT, crc, attributes | TIMESTAMP_TYPE)
    return memoryview(stamped)
