"""The frame of batches: what a broker and the network thread do without reading records."""

from __future__ import annotations

import pytest
from tests.records.batches import Row, batch, from_rows, marker, record

from kadence.errors import CorruptRecordError, UnsupportedRecordFormatError
from kadence.records import (
    BatchHeader,
    assign_offsets,
    encode_batch,
    iter_batches,
    scan,
    validate,
)

T0 = 1_700_000_000_000


def three(first: int = 0) -> bytes:
    return encode_batch([(T0 + i, b"k", b"v", ()) for i in range(3)], base_offset=first)


def test_assign_offsets_writes_in_place_and_keeps_the_checksums_true() -> None:
    data = bytearray(three() + three())
    assert assign_offsets(data, 100, 7) == 106
    headers = validate(data)
    assert [(one.base_offset, one.leader_epoch) for one in headers] == [(100, 7), (103, 7)]


def test_assign_offsets_through_a_view() -> None:
    data = bytearray(b"..." + three())
    assert assign_offsets(memoryview(data)[3:], 5, 0) == 8
    assert BatchHeader.parse(data, 3).base_offset == 5


def test_iter_batches_gives_views_and_leaves_out_a_tail() -> None:
    one, two = three(), three(3)
    got = list(iter_batches(one + two[:-1]))
    assert [(header.base_offset, bytes(view)) for header, view in got] == [(0, one)]
    assert [bytes(view) for _, view in iter_batches(memoryview(one + two))] == [one, two]


@pytest.mark.parametrize("cut", [1, 5, 16, 17, 60, 61])
def test_validate_refuses_a_tail(cut: int) -> None:
    with pytest.raises(CorruptRecordError, match="after the last whole batch, at byte"):
        validate(three() + three(3)[:cut])


def test_validate_refuses_a_wrong_checksum_and_says_where() -> None:
    damaged = bytearray(three() + three(3))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match=rf"at byte {len(three())}: .*checksum"):
        validate(damaged)


def test_validate_refuses_more_records_than_offsets() -> None:
    with pytest.raises(CorruptRecordError, match="5 records within 2 offsets"):
        validate(batch(b"x" * 100, 5, last_delta=1))


@pytest.mark.parametrize("magic", [0, 1, 7])
def test_other_formats(magic: int) -> None:
    with pytest.raises(UnsupportedRecordFormatError, match="at byte 0"):
        validate(from_rows([Row(0)], magic=magic))


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_lengths_that_lie(length: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"length of {length} bytes"):
        validate(batch(b"", 0, length=length))


def test_a_header_needs_its_bytes() -> None:
    with pytest.raises(CorruptRecordError, match="no room for a batch header at byte 4"):
        BatchHeader.parse(three()[:64], 4)


def test_last_sequence_wraps() -> None:
    header = BatchHeader.parse(
        encode_batch([(T0, None, None, ())] * 3, producer_id=1, base_sequence=2**31 - 2)
    )
    assert header.last_sequence == 0


def test_scan_counts_what_may_come_out() -> None:
    data = three() + marker(3, 9, commit=True) + three(4)
    assert scan(data, 0) == (7, 6, len(data))
    assert scan(data, 2) == (7, 4, len(data))
    assert scan(data, 5) == (7, 2, len(data))
    assert scan(b"", 5) == (5, 0, 0)


def test_scan_leaves_a_tail_for_the_next_fetch() -> None:
    whole, tail = three(), three(3)
    for cut in range(len(tail)):
        assert scan(whole + tail[:cut], 0) == (3, 3, len(whole))
        assert scan(tail[:cut], 3) == (3, 0, 0)


def test_scan_steps_to_the_end_of_compacted_batches() -> None:
    assert scan(from_rows([Row(4), Row(6)], last_delta=9), 0) == (14, 2, len(from_rows([Row(4), Row(6)])))


@pytest.mark.parametrize(
    "bad",
    [
        from_rows([Row(3)], magic=1),
        batch(record(0, 0, None, None), 1, base_offset=3, length=20),
        batch(record(0, 0, None, None), 1, base_offset=3, last_delta=-1),
        batch(record(0, 0, None, None), -1, base_offset=3, last_delta=0),
    ],
)
def test_scan_leaves_errors_to_the_reader_but_hands_it_the_bytes(bad: bytes) -> None:
    data = three() + bad + three(9)
    assert scan(data, 0) == (3, 3, len(data))
