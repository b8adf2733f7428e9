"""Checks a producer's batch before it is appended: one batch, complete, undamaged, not too large.

The checks and their error codes are those of Apache Kafka 4.3.1 (LogValidator and ProduceRequest there). The bytes
are kept as they came, but for the header's largest timestamp and kind of timestamps, and for topics with a
``compression.type`` of their own.
"""

from __future__ import annotations

import struct
from typing import Final

from kadence.errors import LocalError, RecordTooLargeError
from kadence.protocol import error_codes as codes
from kadence.records import MAX_BATCH_BYTES, BatchHeader, FetchedRecords, crc32c, encode_batch
from kadence.records.batch import CRC_AT, CRC_FROM, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT, TIMESTAMP_TYPE
from kadence.records.codecs import decompress
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.errors import BatchError

__all__ = ["CODECS", "Allowance", "check_client_batch", "frame", "prepare"]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number that stands in a batch's attributes."""

_LENGTH: Final = struct.Struct(">i")
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">IH")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_SHORTEST_RECORD: Final = 14
"""Kafka's bound below which a length is damage, not a batch that is cut off."""
_NO_TIMESTAMP: Final = -1
_TOLD_RECORDS: Final = 50
_MICROS: Final = 1000
"""Columns have timestamps in microseconds."""


class Allowance:
    """The bytes to which the compressed batches of one request may still unpack."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def frame(data: memoryview) -> tuple[memoryview, BatchHeader]:
    """The one batch in the bytes of a partition of a Produce, and its header.

    Raises:
        BatchError: no batch, more than one, another format, a header or checksum that cannot be true.
    """
    size = _frame_size(data, 0)
    if size is None:
        raise BatchError(codes.INVALID_RECORD, "there is no whole batch for the partition", at_log=False)
    magic = data[MAGIC_AT]
    if magic != MAGIC:
        raise BatchError(
            codes.INVALID_RECORD,
            f"the batch has format {magic}; Produce from v3 on takes format {MAGIC}",
            at_log=False,
        )
    if size < HEADER_SIZE:
        raise BatchError(codes.CORRUPT_MESSAGE, f"a batch claims {size} bytes; its header has {HEADER_SIZE}")
    if _frame_size(data, size) is not None:
        raise BatchError(
            codes.INVALID_RECORD, "there is more than one batch for a partition; send one", at_log=False
        )
    # As Kafka: the beginning of another batch, at the end, is left out.
    batch = data[:size]
    return batch, BatchHeader.parse(batch)


def _frame_size(data: memoryview, at: int) -> int | None:
    """Bytes of the batch at ``at``; None if it is not complete."""
    left = len(data) - at
    if left <= MAGIC_AT:
        return None
    (length,) = _LENGTH.unpack_from(data, at + 8)
    if length < _SHORTEST_RECORD:
        raise BatchError(codes.CORRUPT_MESSAGE, f"a batch claims a length of {length} bytes")
    magic = data[at + MAGIC_AT]
    if magic > MAGIC:
        raise BatchError(codes.CORRUPT_MESSAGE, f"a batch has the unknown format {magic}")
    return None if length + LOG_OVERHEAD > left else int(length) + LOG_OVERHEAD


def check_client_batch(batch: memoryview, header: BatchHeader, config: LogConfig) -> None:
    """Check the header of a client's batch.

    Raises:
        BatchError: with the code that the producer gets.
    """
    if header.base_offset != 0:
        raise BatchError(
            codes.INVALID_RECORD, f"a producer's batch begins at offset 0, not {header.base_offset}"
        )
    _check_size(batch, config)
    if crc32c(batch[CRC_FROM:]) != header.crc:
        raise BatchError(codes.CORRUPT_MESSAGE, "the batch's checksum does not match its bytes")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise BatchError(
            codes.INVALID_RECORD,
            f"a batch of {header.record_count} records whose last has offset delta {header.last_offset_delta}",
        )
    if header.is_control:
        raise BatchError(codes.INVALID_RECORD, "clients write no control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise BatchError(
            codes.INVALID_RECORD,
            f"a batch of producer {header.producer_id} has the sequence number {header.base_sequence}",
        )


def _check_size(batch: memoryview, config: LogConfig) -> None:
    if len(batch) > config.max_message_bytes:
        raise BatchError(
            codes.MESSAGE_TOO_LARGE,
            f"the batch has {len(batch)} bytes; max.message.bytes is {config.max_message_bytes}",
        )


def prepare(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    wall_now: int,
    allowance: Allowance | None = None,
) -> tuple[memoryview, BatchHeader]:
    """Read the records, and give the batch the form in which the topic keeps it.

    Args:
        wall_now: milliseconds since 1970.
        allowance: reduced by the unpacked bytes of the batch; None: any batch may unpack to `MAX_BATCH_BYTES`.

    Raises:
        BatchError: records that cannot be read, that lack a key, or whose timestamp is out of range.
    """
    timestamps = _timestamps(batch, header, allowance or Allowance(MAX_BATCH_BYTES))
    if header.compression and config.max_decompressed_bytes < MAX_BATCH_BYTES:
        _check_record_sizes(batch, header, config.max_decompressed_bytes)
    if config.is_compacted:
        _check_keys(batch)
    if config.append_time:
        kind, newest = TIMESTAMP_TYPE, wall_now
    else:
        kind, newest = 0, max(timestamps) // _MICROS
        _check_dates(timestamps, newest, config, wall_now)
    if config.compression not in ("producer", CODECS[header.compression]):
        batch = _pack(batch, header, config.compression)
        _check_size(batch, config)
        header = BatchHeader.parse(batch)
    if header.attributes & TIMESTAMP_TYPE != kind or header.max_timestamp != newest:
        batch = _stamp(batch, kind, newest)
        header = BatchHeader.parse(batch)
    return batch, header


def _timestamps(batch: memoryview, header: BatchHeader, allowance: Allowance) -> memoryview:
    """Each record's, in microseconds; so every record is read once, its headers too: no reader may stumble later."""
    most = min(MAX_BATCH_BYTES, allowance.left)
    records = FetchedRecords(batch, "the batch", 0, 0, check_crcs=False, max_batch_bytes=most)
    try:
        found = records.take_columns(columns=("timestamp", "headers"))
        if not records.exhausted:
            records.take(1)
    except RecordTooLargeError as error:
        allowance.left -= most
        if most < MAX_BATCH_BYTES:
            # A producer splits such a batch, and sends the parts in requests of their own.
            raise BatchError(
                codes.MESSAGE_TOO_LARGE,
                "the batches of the request unpack to too many bytes; send smaller requests",
            ) from error
        raise BatchError(
            codes.INVALID_RECORD, f"the batch unpacks to more than {MAX_BATCH_BYTES} bytes"
        ) from error
    except LocalError as error:
        raise BatchError(
            codes.INVALID_RECORD, f"the batch's records cannot be read: {error.__cause__ or error}"
        ) from error
    finally:
        allowance.left -= records.tally()[1]
        records.close()
    offsets = memoryview(found[0].offsets).cast("B").cast("q")
    if len(offsets) != header.record_count or offsets[-1] != header.record_count - 1:
        raise BatchError(codes.INVALID_RECORD, "the offsets of the batch's records do not follow each other")
    assert found[0].timestamps is not None
    return memoryview(found[0].timestamps).cast("B").cast("q")


def _check_record_sizes(batch: memoryview, header: BatchHeader, most: int) -> None:
    """Check each record of a compressed batch that was read before. Its length field does not count, as in Kafka."""
    records = memoryview(decompress(header.compression, batch[HEADER_SIZE:], MAX_BATCH_BYTES)).cast("B")
    at = 0
    while at < len(records):
        size, at = _varint(records, at)
        if size > most:
            raise BatchError(
                codes.INVALID_RECORD,
                f"a record has {size} bytes; max.decompressed.message.bytes is {most}",
            )
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A length at ``at``, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1, at
        shift += 7


def _check_dates(timestamps: memoryview, newest: int, config: LogConfig, wall_now: int) -> None:
    earliest, latest = wall_now - config.timestamp_before_max_ms, wall_now + config.timestamp_after_max_ms
    if newest <= latest and (
        config.timestamp_before_max_ms == 2**63 - 1 or min(timestamps) // _MICROS >= earliest
    ):
        return
    wrong = [
        (index, f"the timestamp {each} is out of range; it should be within {earliest} to {latest}")
        for index, each in enumerate(micros // _MICROS for micros in timestamps)
        if each != _NO_TIMESTAMP and not earliest <= each <= latest
    ]
    if wrong:
        raise BatchError(
            codes.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            tuple(wrong[:_TOLD_RECORDS]),
        )


def _check_keys(batch: memoryview) -> None:
    records = FetchedRecords(batch, "the batch", 0, 0, check_crcs=False).take()
    wrong = [
        (index, "a record without a key cannot be kept by a compacted topic")
        for index, each in enumerate(records)
        if each.key is None
    ]
    if wrong:
        raise BatchError(
            codes.INVALID_RECORD, "One or more records have no key", tuple(wrong[:_TOLD_RECORDS])
        )


def _pack(batch: memoryview, header: BatchHeader, compression: str) -> memoryview:
    """The same batch with its records compressed in another way."""
    records = FetchedRecords(batch, "the batch", 0, 0, check_crcs=False).take()
    return memoryview(
        encode_batch(
            [(each.timestamp, each.key, each.value, each.headers) for each in records],
            compression=compression,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )


def _stamp(batch: memoryview, kind: int, newest: int) -> memoryview:
    """A copy with another kind of timestamps and another largest one, under a true checksum."""
    stamped = bytearray(batch)
    _, attributes = _CRC_AND_ATTRIBUTES.unpack_from(stamped, CRC_AT)
    attributes = attributes & ~TIMESTAMP_TYPE | kind
    _CRC_AND_ATTRIBUTES.pack_into(stamped, CRC_AT, 0, attributes)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, newest)
    crc = crc32c(memoryview(stamped)[CRC_FROM:])
    _CRC_AND_ATTRIBUTES.pack_into(stamped, CRC_AT, crc, attributes)
    return memoryview(stamped)
