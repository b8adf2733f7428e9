"""Bytes of Kafka's index files: ``.index``, ``.timeindex``, ``.txnindex``, ``.snapshot``, and the leader epochs.

None: it cannot be read. All of these files follow from the log, and can be rebuilt.
"""

from __future__ import annotations

import struct
from typing import Final

from kadence.records import crc32c
from kadence.records.batch import HEADER_SIZE
from kadence_broker.storage.aborted import Aborted
from kadence_broker.storage.producers import Appended, Producer
from kadence_broker.storage.segment import Segment

__all__ = [
    "decode_aborted",
    "decode_epochs",
    "decode_producers",
    "encode_aborted",
    "encode_epochs",
    "encode_offsets",
    "encode_producers",
    "encode_times",
    "load_indexes",
]

_OFFSET: Final = struct.Struct(">ii")
_TIME: Final = struct.Struct(">qi")
_ABORTED: Final = struct.Struct(">hqqqq")
_SNAPSHOT: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION: Final = 1
_SEQUENCES: Final = 2**31
_LARGEST_EPOCH: Final = 2**31 - 1
_LARGEST_OFFSET: Final = 2**63 - 1


def encode_offsets(segment: Segment) -> bytes:
    """Last offset of a batch, relative to the segment's first, and where the batch begins."""
    base = segment.base_offset
    return b"".join(
        _OFFSET.pack(offset - base, position)
        for offset, position in zip(segment.index_offsets, segment.index_positions, strict=True)
    )


def encode_times(segment: Segment) -> bytes:
    """The largest timestamp so far, and the last offset of the batch that has it."""
    base = segment.base_offset
    return b"".join(
        _TIME.pack(timestamp, offset - base)
        for timestamp, offset in zip(segment.timestamps, segment.time_offsets, strict=True)
    )


def load_indexes(segment: Segment, offsets: bytes, times: bytes, size: int) -> bool:
    """Fill a segment's indexes; False if they cannot be those of a file of ``size`` bytes."""
    if len(offsets) % _OFFSET.size or len(times) % _TIME.size:
        return False
    last_offset = last_position = -1
    for relative, position in _OFFSET.iter_unpack(offsets):
        if relative <= last_offset or position <= last_position or position > size - HEADER_SIZE:
            return False
        last_offset, last_position = relative, position
        segment.index_offsets.append(segment.base_offset + relative)
        segment.index_positions.append(position)
    newest = -1
    for timestamp, relative in _TIME.iter_unpack(times):
        if timestamp <= newest:
            return False
        newest = timestamp
        segment.timestamps.append(timestamp)
        segment.time_offsets.append(segment.base_offset + relative)
    if segment.timestamps:
        segment.max_timestamp, segment.max_timestamp_offset = newest, segment.time_offsets[-1]
    return True


def encode_aborted(entries: list[Aborted]) -> bytes:
    """Kafka's index of aborted transactions."""
    return b"".join(_ABORTED.pack(0, *entry) for entry in entries)


def decode_aborted(data: bytes) -> list[Aborted] | None:
    """The aborted transactions of a file; None if it was cut off."""
    if len(data) % _ABORTED.size:
        return None
    return [Aborted(*fields[1:]) for fields in _ABORTED.iter_unpack(data)]


def encode_producers(producers: list[Producer]) -> bytes:
    """Kafka's snapshot: of each producer the newest batch alone."""
    parts = [_COUNT.pack(len(producers))]
    for each in producers:
        newest = each.batches[-1] if each.batches else Appended(-1, -1, -1, -1)
        parts.append(
            _PRODUCER.pack(
                each.producer_id,
                each.epoch,
                newest.last_sequence,
                newest.last_offset,
                newest.last_offset - newest.base_offset,
                each.used_at,
                each.coordinator_epoch,
                -1 if each.transaction_from is None else each.transaction_from,
            )
        )
    body = b"".join(parts)
    return _SNAPSHOT.pack(_SNAPSHOT_VERSION, crc32c(body)) + body


def decode_producers(data: bytes) -> list[Producer] | None:
    """The producers of a snapshot; None if it is damaged, or of another version."""
    body = data[_SNAPSHOT.size :]
    if len(body) < _COUNT.size:
        return None
    version, crc = _SNAPSHOT.unpack_from(data)
    (count,) = _COUNT.unpack_from(body)
    if (
        version != _SNAPSHOT_VERSION
        or crc != crc32c(body)
        or len(body) != _COUNT.size + count * _PRODUCER.size
    ):
        return None
    producers: list[Producer] = []
    for producer_id, epoch, sequence, offset, delta, used_at, coordinator, first in _PRODUCER.iter_unpack(
        body[_COUNT.size :]
    ):
        producer = Producer(producer_id, epoch, coordinator_epoch=coordinator, used_at=used_at)
        producer.transaction_from = None if first < 0 else first
        if sequence >= 0:
            producer.batches.append(
                Appended((sequence - delta) % _SEQUENCES, sequence, offset - delta, offset)
            )
        producers.append(producer)
    return producers


def encode_epochs(entries: list[tuple[int, int]]) -> bytes:
    """Version, number of entries, then epoch and offset in each line."""
    lines = ["0", str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries)]
    return ("\n".join(lines) + "\n").encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]] | None:
    """The leader epochs of a checkpoint; None if it is damaged."""
    try:
        version, count, *lines = data.decode().splitlines()
        entries = [(int(epoch), int(offset)) for epoch, offset in (line.split() for line in lines)]
    except ValueError:
        return None
    if version != "0" or count != str(len(entries)):
        return None
    last_epoch = last_offset = -1
    for epoch, offset in entries:
        if not (last_epoch < epoch <= _LARGEST_EPOCH and last_offset < offset <= _LARGEST_OFFSET):
            return None
        last_epoch, last_offset = epoch, offset
    return entries
