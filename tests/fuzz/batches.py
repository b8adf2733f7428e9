"""Record batches: what a consumer fetches, what a producer sends to the broker, and compressed bytes alone.

Checksums are no protection against whoever writes them, so each input is read as it is and with a true checksum.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from tests.fuzz.target import Target
from tests.records.batches import Row, from_rows, marker
from tests.records.parity import both

from kadence.errors import KafkaError, LocalError
from kadence.records import FetchedRecords, crc32c, encode_batch, iter_batches, validate
from kadence.records.batch import CRC_FROM, HEADER_SIZE, LOG_OVERHEAD
from kadence.records.codecs import CodecError, compress, decompress
from kadence_broker.cluster import Topic
from kadence_broker.storage import BatchError, Isolation, LogConfig, Partition

__all__ = ["COMPRESSED", "FETCHED", "PRODUCED", "sealed"]

_NOW: Final = 1_700_000_000_000
_LIMIT: Final = 1 << 20
"""Bytes that a batch may decompress to here."""
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_ROWS: Final = tuple(
    (_NOW + number, key, value, headers)
    for number, (key, value, headers) in enumerate(
        [
            (b"key", b"value" * 20, (("h", b"x"), ("n", None))),
            (None, b"", ()),
            (b"", None, (("", b""),)),
            (b"k" * 130, b"\xff" * 70, ()),
        ]
    )
)


def sealed(data: bytes) -> bytes:
    """With the length and the checksum that the bytes have, where there is room for a header."""
    if len(data) < HEADER_SIZE:
        return data
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - LOG_OVERHEAD)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[CRC_FROM:])))
    return bytes(made)


def _batch_seeds() -> list[bytes]:
    return [encode_batch(_ROWS, compression=codec) for codec in _CODECS] + [
        encode_batch(_ROWS, producer_id=5, producer_epoch=1, base_sequence=3),
        encode_batch(_ROWS, producer_id=5, producer_epoch=1, base_sequence=0, transactional=True),
        from_rows([Row(7), Row(9, _NOW, b"k", None, ((b"h", None),))], last_delta=4, attributes=8),
    ]


# Fetched


def _fetched_seeds() -> list[bytes]:
    transaction = from_rows([Row(3)], producer_id=5, attributes=0x10)
    return [
        *_batch_seeds(),
        transaction + marker(4, 5, commit=False) + from_rows([Row(5)]),
        from_rows([Row(0), Row(1)]) + from_rows([Row(2)], leader_epoch=3),
    ]


def _read_fetched(data: bytes) -> object:
    offset = int.from_bytes(data[:8], "big", signed=True)
    for each in {data, sealed(data)}:
        for options in ({}, {"aborted": [(5, offset)]}):
            found = both(each, offset, [3, 1], strict=False, max_batch_bytes=_LIMIT, **options)
        reader = FetchedRecords(each, "t", 0, offset, max_batch_bytes=_LIMIT)
        try:
            while reader.take(2):
                pass
        except KafkaError:
            pass
        assert reader.tally()[2] <= _LIMIT
        _judge(each)
    return found.records or None


def _judge(data: bytes) -> None:
    for judge in (validate, lambda each: list(iter_batches(each))):
        try:
            judge(data)
        except LocalError:
            continue


# Produced


def _partition(**config: str) -> Partition:
    topic = Topic("t", b"t" * 16)
    topic.log_config = LogConfig().changed_by(config)
    return Partition(topic, 0, leader_id=1)


_CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"cleanup.policy": "compact", "compression.type": "gzip"},
    {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"},
)


def _append(data: bytes) -> object:
    taken = 0
    for each in {data, sealed(data)}:
        for config in _CONFIGS:
            partition = _partition(**config)
            try:
                appended = partition.append(_NOW, memoryview(each), transactional_id="x")
            except BatchError as error:
                assert error.code  # noqa: PT017 - a refusal says why
                assert (partition.end_offset, partition.log.size_bytes) == (0, 0)
                continue
            assert appended.base_offset == 0
            taken += 1
            _is_readable(partition)
    return taken or None


def _is_readable(partition: Partition) -> None:
    """Whoever fetches what was taken in gets every record, from the compiled decoder and from the plain one."""
    stored = b"".join(partition.read(0, 1 << 30, Isolation.LOG_END))
    found = both(stored, 0, [1_000], strict=True)
    assert not found.errors
    offsets = [fields[2] for fields in found.records[: partition.end_offset]]
    assert offsets == list(range(partition.end_offset))


# Compressed bytes alone


def _compressed_seeds() -> list[bytes]:
    content = b"".join(b"%d," % number for number in range(300))
    made = [bytes([codec]) + bytes(compress(codec, content)) for codec in range(1, 5)]
    bombs = [bytes([codec]) + bytes(compress(codec, bytes(4 * _LIMIT))) for codec in range(1, 5)]
    return made + [bomb for bomb in bombs if len(bomb) < 10_000]


def _decompress(data: bytes) -> object:
    try:
        found: Any = decompress(data[0] & 7 if data else 0, memoryview(data)[1:], _LIMIT)
    except (CodecError, LocalError) as error:
        return error
    assert memoryview(found).nbytes <= _LIMIT
    return found


FETCHED: Final = Target("fetched", _fetched_seeds, _read_fetched, share=4_000)
PRODUCED: Final = Target("produced", _batch_seeds, _append, share=8_000)
COMPRESSED: Final = Target(
    "compressed", _compressed_seeds, _decompress, allocation=(0, 5 * _LIMIT), share=8_000
)
