"""What compaction leaves of one batch: the latest record of each key, and tombstones for a while (KIP-58, KIP-534).

A batch that loses records keeps its header: base offset, last offset, producer, sequence and transaction, so that no
offset moves. A tombstone, and the marker of a transaction without records, stay until the *delete horizon*, which the
first pass that meets them writes into the header in the place of the base timestamp. After Apache Kafka 4.4's Cleaner
and MemoryRecords.filterTo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from kadence.records import MAX_BATCH_BYTES, BatchHeader, crc32c
from kadence.records.batch import CRC_FROM, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, TIMESTAMP_TYPE
from kadence.records.codecs import compress, decompress

__all__ = ["Keep", "Raw", "digest", "emptied", "horizon_of", "raw_records", "rewritten"]

_HORIZON: Final = 0x40
"""The attribute of a batch whose base timestamp is a delete horizon."""
_CRC: Final = 4
"""The place of the checksum among the fields of the header."""


class Raw(NamedTuple):
    """A record as it lies in its batch.

    Attributes:
        timestamp_delta: to the batch's base timestamp.
        rest: its bytes behind that, from the delta of its offset on.
    """

    offset: int
    key: memoryview | None
    has_value: bool
    attributes: int
    timestamp_delta: int
    rest: memoryview


Keep = Callable[[Raw], bool]


def digest(key: bytes | memoryview) -> bytes:
    """What stands for a key in the map of the latest offsets, whatever its length."""
    return blake2b(key, digest_size=16).digest()


def horizon_of(header: BatchHeader) -> int | None:
    """When the tombstones of a batch, or the marker in it, may go (ms since 1970); None: no pass has met them yet."""
    return header.base_timestamp if header.attributes & _HORIZON else None


def raw_records(batch: memoryview, header: BatchHeader) -> Iterator[Raw]:
    """The records of a batch that was checked when it was appended."""
    packed = batch[HEADER_SIZE : header.size]
    if header.compression:
        packed = memoryview(decompress(header.compression, packed, MAX_BATCH_BYTES))
    data = packed.cast("B")
    at = 0
    for _ in range(header.record_count):
        size, at = _varint(data, at)
        end = at + size
        attributes = data[at]
        timestamp_delta, rest = _varint(data, at + 1)
        offset_delta, at = _varint(data, rest)
        length, at = _varint(data, at)
        key = None if length < 0 else data[at : at + length]
        length, _ = _varint(data, at + max(length, 0))
        offset = header.base_offset + offset_delta
        yield Raw(offset, key, length >= 0, attributes, timestamp_delta, data[rest:end])
        at = end


def rewritten(header: BatchHeader, records: list[Raw], horizon: int | None) -> memoryview:
    """The batch with these of its records alone, and with a delete horizon if it has none yet."""
    base = header.base_timestamp
    attributes = header.attributes
    if horizon is not None:
        base, attributes = horizon, attributes | _HORIZON
    moved = header.base_timestamp - base
    body = bytearray()
    for each in records:
        delta = _encoded(each.timestamp_delta + moved)
        body += _encoded(1 + len(delta) + len(each.rest))
        body.append(each.attributes)
        body += delta
        body += each.rest
    newest = header.max_timestamp
    if not header.attributes & TIMESTAMP_TYPE:
        newest = max(header.base_timestamp + each.timestamp_delta for each in records)
    packed = compress(header.compression, bytes(body)) if header.compression else body
    return _framed(header, attributes, base, newest, len(records), packed)


def emptied(header: BatchHeader) -> memoryview:
    """The batch without records: its producer's last sequence, or last epoch, is known by it."""
    return _framed(header, header.attributes, header.base_timestamp, header.max_timestamp, 0, b"")


def _framed(
    header: BatchHeader, attributes: int, base: int, newest: int, count: int, body: bytes | bytearray
) -> memoryview:
    fields = [
        header.base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base,
        newest,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    ]
    batch = bytearray(HEADER.pack(*fields) + body)
    fields[_CRC] = crc32c(memoryview(batch)[CRC_FROM:])
    batch[:HEADER_SIZE] = HEADER.pack(*fields)
    return memoryview(batch)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A signed number at ``at``, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _encoded(number: int) -> bytes:
    """A number as a signed varint."""
    value = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
