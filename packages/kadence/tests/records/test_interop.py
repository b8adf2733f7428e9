"""Other clients' record code reads what we write, and we read what it writes, in every codec."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords

from kadence.records import FetchedRecords, encode_batch, validate

with warnings.catch_warnings():
    # It reads its schemas with a function that Python has deprecated, while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

T0 = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (T0, b"key", b"value", []),
    (T0 + 7, None, b"no key", [("trace", b"\x00\x01"), ("é", b"")]),
    (T0 - 5, b"", None, [("null", None)]),
    (T0 + 100_000, b"k" * 300, b"v" * 20_000, []),
    *((T0 + i, b"%d" % i, b"x" * i, []) for i in range(300)),
]


def ours(data: bytes) -> list[tuple[Any, ...]]:
    return [
        (one.offset, one.timestamp, one.key, one.value, list(one.headers))
        for one in FetchedRecords(data, "t", 0, 0).take()
    ]


EXPECTED = [(offset, *record) for offset, record in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_ours(codec: str) -> None:
    batches = MemoryRecords(encode_batch(RECORDS, compression=codec))
    got = []
    while batches.has_next():
        one = batches.next_batch()
        assert one.validate_crc()
        got += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in one]
    assert got == EXPECTED


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_ours(codec: str) -> None:
    batches = AiokafkaRecords(encode_batch(RECORDS, compression=codec))
    got = []
    while batches.has_next():
        one = batches.next_batch()
        assert one is not None
        assert one.validate_crc()
        got += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in one]
    assert got == EXPECTED


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_we_read_kafka_python(codec: int) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 30)
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp=timestamp, key=key, value=value, headers=headers)
    builder.close()
    data = bytes(builder.buffer())
    assert validate(data)[0].compression == codec
    assert ours(data) == EXPECTED


@pytest.mark.parametrize("codec", range(5), ids=CODECS)
def test_we_read_aiokafka(codec: int) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, timestamp, key, value, headers in EXPECTED:
        builder.append(offset, timestamp, key, value, headers)
    assert ours(bytes(builder.build())) == EXPECTED
