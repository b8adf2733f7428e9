"""Records to batches: the bytes of the format, as they are written by hand in batches.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.records.batches import Row, from_rows, record

from kadence._native.builder import RecordEncoder
from kadence.errors import ConfigError, IllegalStateError
from kadence.records import (
    BatchBuilder,
    BatchHeader,
    FetchedRecords,
    encode_batch,
    largest_record_size,
    validate,
)

T0 = 1_700_000_000_000

data = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
times = st.integers(-(2**63), 2**63 - 1) | st.integers(T0 - 1000, T0 + 1000)
records = st.lists(st.tuples(times, data, data, headers), min_size=1, max_size=80)


@given(records)
@examples(75)
def test_records_are_the_bytes_that_one_writes_by_hand(given_records: list[tuple[Any, ...]]) -> None:
    encoder = RecordEncoder()
    base = given_records[0][0]
    written = b""
    for number, (timestamp, key, value, headers) in enumerate(given_records):
        # A difference that does not fit 64 bits wraps, as in every reader that adds it back.
        delta = (timestamp - base + 2**63) % 2**64 - 2**63
        written += record(number, delta, key, value, [(name.encode(), data) for name, data in headers])
        assert encoder.append(timestamp, key, value, headers) == encoder.size == 61 + len(written)
    assert (encoder.count, encoder.base_timestamp) == (len(given_records), base)
    assert encoder.max_timestamp == max(each[0] for each in given_records)
    assert encoder.records() == written
    sealed = encoder.seal(bytes(61), None)
    assert sealed[:17] == bytes(17)
    assert int.from_bytes(sealed[17:21]) == crc32c.crc32c(sealed[21:])
    assert sealed[21:] == bytes(40) + written
    assert encoder.seal(bytes(61), b"other")[61:] == b"other"
    assert bytes(encoder.seal_in_place(bytes(61))) == sealed
    assert encoder.records() == written


def test_the_bytes_are_those_of_the_format() -> None:
    rows = [
        Row(0, T0, b"k", b"v" * 300, (("é".encode(), b"1"), (b"n", None))),
        Row(1, T0 - 70_000, None, None),
        Row(2, T0 + 9, b"", b""),
    ]
    ours = encode_batch(
        [
            (T0, b"k", b"v" * 300, [("é", b"1"), ("n", None)]),
            (T0 - 70_000, None, None, ()),
            (T0 + 9, b"", b"", ()),
        ],
        base_offset=77,
        producer_id=5,
        leader_epoch=2,
    )
    assert ours[61:] == from_rows(rows)[61:]
    header = BatchHeader.parse(ours)
    assert (header.base_offset, header.last_offset, header.next_offset, header.size) == (
        77,
        79,
        80,
        len(ours),
    )
    assert (header.base_timestamp, header.max_timestamp) == (T0, T0 + 9)
    assert (header.producer_id, header.leader_epoch, header.record_count) == (5, 2, 3)
    assert validate(ours) == [header]


@pytest.mark.parametrize("wrap", [bytearray, memoryview])
def test_keys_and_values_may_be_any_buffer(wrap: Any) -> None:
    one, other = RecordEncoder(), RecordEncoder()
    one.append(T0, wrap(b"key"), wrap(b"value"), [("h", wrap(b"x"))])
    other.append(T0, b"key", b"value", [("h", b"x")])
    assert one.records() == other.records()


def test_a_buffer_is_not_held_after_the_append() -> None:
    value = bytearray(b"value")
    RecordEncoder().append(T0, None, value)
    value.extend(b"more")


@pytest.mark.parametrize(
    ("key", "value", "pairs", "error"),
    [
        ("text", b"v", (), TypeError),
        (b"k", 5, (), TypeError),
        (b"k", b"v", [(b"name", b"v")], TypeError),
        (b"k", b"v", [("name", "v")], TypeError),
        (b"k", b"v", [("\ud800", b"v")], UnicodeEncodeError),
        (b"k", b"v", [("name",)], ValueError),
    ],
)
def test_an_append_that_raises_leaves_nothing_behind(
    key: Any, value: Any, pairs: Any, error: type[Exception]
) -> None:
    one = RecordEncoder()
    one.append(T0, b"a", b"b")
    before = one.records(), one.size, one.count
    with pytest.raises(error):
        one.append(T0, key, value, pairs)
    assert (one.records(), one.size, one.count) == before


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1])
def test_timestamps_beyond_64_bits(timestamp: int) -> None:
    with pytest.raises(OverflowError):
        RecordEncoder().append(timestamp, None, None)


def test_seal_wants_a_whole_header() -> None:
    with pytest.raises(ValueError, match="61 bytes"):
        RecordEncoder().seal(b"short", None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_build_again_for_a_retry(codec: str) -> None:
    builder = BatchBuilder()
    for i in range(100):
        builder.append(T0 + i, b"k", b"v" * 20)
    first = builder.build(compression=codec, producer_id=1, producer_epoch=0, base_sequence=10)
    again = builder.build(compression=codec, producer_id=1, producer_epoch=1, base_sequence=0)
    assert first[61:] == again[61:]
    assert BatchHeader.parse(again).base_sequence == 0
    assert BatchHeader.parse(again).producer_epoch == 1
    assert validate(again)[0].last_sequence == 99
    builder.append(T0, None, b"one more")
    longer = builder.build(compression=codec)
    assert len(FetchedRecords(longer, "t", 0, 0).take()) == 101


def test_flags() -> None:
    header = BatchHeader.parse(
        encode_batch(
            [(T0, b"k", b"v", ())], transactional=True, control=True, append_time=9, compression="lz4"
        )
    )
    assert (header.is_transactional, header.is_control, header.timestamp_type) == (True, True, 1)
    assert (header.max_timestamp, header.compression) == (9, 3)
    plain = BatchHeader.parse(encode_batch([(T0, b"k", b"v", ())]))
    assert (plain.is_transactional, plain.is_control, plain.timestamp_type, plain.last_sequence) == (
        False,
        False,
        0,
        -1,
    )


def test_nothing_to_build_and_unknown_codecs() -> None:
    with pytest.raises(IllegalStateError, match="at least one"):
        BatchBuilder().build()
    with pytest.raises(ConfigError, match="none, gzip, snappy, lz4, zstd, not 'lzo'"):
        encode_batch([(T0, None, None, ())], compression="lzo")


@given(data, data, headers)
@examples(30)
def test_the_bound_of_a_record_holds_and_is_tight(
    key: bytes | None, value: bytes | None, pairs: list[tuple[str, bytes | None]]
) -> None:
    builder = BatchBuilder()
    builder.append(0, None, None)
    before = builder.size
    added = builder.append(2**62, key, value, pairs) - before
    bound = largest_record_size(key, value, pairs)
    assert added <= bound <= added + 31 + 10 * len(pairs)


def test_a_batch_sealed_in_place_is_what_a_copy_is_and_takes_no_more() -> None:
    built = RecordEncoder()
    with pytest.raises(ValueError, match="and records"):
        built.seal_in_place(bytes(61))
    for number in range(100):
        built.append(T0 + number, b"key", b"v" * 100)
    header = bytes(range(61))
    batch = built.seal_in_place(header)
    assert batch == built.seal(header, None)
    with pytest.raises(IllegalStateError, match="takes no more records"):
        built.append(T0, b"key", b"value")
    assert built.seal_in_place(bytes(61)) == built.seal(bytes(61), None), "with another header"
    del built
    assert len(batch) > 100 * 100, "who has the bytes keeps the memory"


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_producer_builds_what_build_does(compression: str) -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(T0 + number, b"key", b"v" * 100)
    fields: dict[str, Any] = {
        "compression": compression,
        "level": None,
        "producer_id": 7,
        "producer_epoch": 2,
        "base_sequence": 40,
        "transactional": True,
    }
    assert builder.build_in_place(**fields) == builder.build(**fields)


class Meddling:
    """Headers that append a record of their own when they are read."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        self._encoder.append(T0, bytearray(b"other key"), bytearray(b"other value" * 50))
        return iter([("h", b"1")])


def test_headers_that_append_a_record_leave_key_and_value_as_they_are() -> None:
    made, expected = RecordEncoder(), RecordEncoder()
    made.append(T0, bytearray(b"key"), bytearray(b"value"), Meddling(made))
    expected.append(T0, b"other key", b"other value" * 50)
    expected.append(T0, b"key", b"value", [("h", b"1")])
    assert made.records() == expected.records()


def test_a_batch_that_was_sealed_in_place_stays_where_it_is() -> None:
    made = RecordEncoder()
    made.append(T0, None, b"value")
    batch = made.seal_in_place(bytes(61))
    before = bytes(batch)
    with pytest.raises(IllegalStateError):
        made.reserve(1 << 20)
    assert bytes(batch) == before
