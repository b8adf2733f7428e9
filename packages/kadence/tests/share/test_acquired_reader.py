"""Acquired fetches read by hand: only what was acquired, gaps as ranges, damaged batches rejected (KIP-932 §5, §11)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.records.batches import Row, from_rows, marker
from tests.worlds.share import Loan, tip

from kadence.errors import UnsupportedRecordFormatError
from kadence.records import encode_batch
from kadence.share import acquired_reader
from kadence.share.acknowledgements import GAP, Acknowledged, AcknowledgeType, Acquired
from kadence.share.acquired_reader import AcquiredReader
from kadence.share.share_state import AcquiredFetch


def rows(*offsets: int, **header: Any) -> bytes:
    return from_rows([Row(offset, value=b"%d" % offset) for offset in offsets], **header)


def reading(data: bytes, *acquired: tuple[int, int, int], **settings: Any) -> AcquiredReader:
    fetch = AcquiredFetch(tip(), 1, tuple(Acquired(*each) for each in acquired), memoryview(data), None, 10)
    return AcquiredReader(fetch, **{"check_crcs": True, "max_batch_bytes": 1 << 20, **settings})


def took(reader: AcquiredReader, limit: int = 1_000) -> list[tuple[int, int | None]]:
    records = reader.take(limit)
    reader.begun = None
    return [(record.offset, record.delivery_count) for record in records]


def settled(reader: AcquiredReader) -> list[Acknowledged]:
    """What is to be said since this was asked last."""
    reader.undo()
    found, reader.settled = reader.settled, []
    return found


def gaps(*ranges: tuple[int, int]) -> list[Acknowledged]:
    return [Acknowledged(first, last, GAP) for first, last in ranges]


def test_records_come_with_their_delivery_count_up_to_the_limit() -> None:
    reader = reading(rows(*range(10)), (0, 9, 2))
    assert took(reader, 3) == [(0, 2), (1, 2), (2, 2)]
    assert (reader.taken, reader.exhausted) == (3, False)
    assert took(reader) == [(offset, 2) for offset in range(3, 10)]
    assert (reader.taken, reader.exhausted, settled(reader)) == (7, True, [])


def test_11_5_what_was_not_acquired_is_skipped() -> None:
    reader = reading(rows(*range(20)), (3, 5, 1), (6, 6, 4), (10, 11, 2))
    assert took(reader) == [(3, 1), (4, 1), (5, 1), (6, 4), (10, 2), (11, 2)]
    assert (reader.taken, reader.exhausted, settled(reader)) == (6, True, [])


def test_ranges_are_gone_on_with_where_the_limit_cut_them() -> None:
    reader = reading(rows(*range(20)), (3, 6, 1), (10, 13, 2))
    assert took(reader, 2) == [(3, 1), (4, 1)]
    assert took(reader, 3) == [(5, 1), (6, 1), (10, 2)]
    assert took(reader, 9) == [(11, 2), (12, 2), (13, 2)]


def test_compaction_holes_at_the_start_in_the_middle_and_at_the_end_are_gaps() -> None:
    reader = reading(rows(2, 3, 7, base_offset=0, last_delta=9), (0, 9, 1))
    assert took(reader) == [(2, 1), (3, 1), (7, 1)]
    assert settled(reader) == gaps((0, 1), (4, 6), (8, 9))
    assert (reader.taken, reader.exhausted) == (10, True)


def test_a_hole_over_a_range_and_into_the_next() -> None:
    reader = reading(rows(0, 1, 9, base_offset=0, last_delta=9), (0, 3, 1), (5, 9, 3))
    assert took(reader) == [(0, 1), (1, 1), (9, 3)]
    assert settled(reader) == gaps((2, 3), (5, 8))


def test_a_batch_that_compaction_took_whole() -> None:
    reader = reading(rows(0, 1) + rows(6, 7), (0, 7, 1))
    assert took(reader, 2) == [(0, 1), (1, 1)]
    assert took(reader, 2) == [(6, 1), (7, 1)]
    assert settled(reader) == gaps((2, 5))


def test_control_batches_are_gaps() -> None:
    reader = reading(rows(0, 1, producer_id=5) + marker(2, 5, commit=True) + rows(3), (0, 3, 1))
    assert took(reader) == [(0, 1), (1, 1), (3, 1)]
    assert settled(reader) == gaps((2, 2))


def test_13_13_an_answer_with_only_a_marker_or_nothing_at_all() -> None:
    reader = reading(marker(0, 5, commit=True), (0, 0, 1))
    assert (took(reader), settled(reader), reader.exhausted) == ([], gaps((0, 0)), True)
    reader = reading(b"", (4, 7, 1))
    assert (took(reader), settled(reader), reader.taken) == ([], gaps((4, 7)), 4)


def test_many_gaps_are_few_ranges() -> None:
    """§11.19."""
    reader = reading(rows(0, 250, 499, base_offset=0, last_delta=499), (0, 499, 1))
    assert len(took(reader)) == 3
    assert settled(reader) == gaps((1, 249), (251, 498))


def test_a_batch_with_a_bad_checksum_is_rejected_and_the_others_are_read() -> None:
    damaged = bytearray(rows(2, 3))
    damaged[-1] ^= 1
    reader = reading(rows(0, 1) + bytes(damaged) + rows(4, 5), (0, 5, 1))
    assert took(reader) == [(0, 1), (1, 1), (4, 1), (5, 1)]
    assert settled(reader) == [Acknowledged(2, 3, AcknowledgeType.REJECT)]
    assert (reader.taken, reader.exhausted) == (6, True)


def test_of_a_damaged_batch_only_what_was_acquired_is_rejected() -> None:
    damaged = bytearray(rows(*range(10)))
    damaged[-1] ^= 1
    reader = reading(bytes(damaged) + rows(10, 11), (4, 6, 1), (11, 11, 2))
    assert took(reader) == [(11, 2)]
    assert settled(reader) == [Acknowledged(4, 6, AcknowledgeType.REJECT)]


def test_where_a_header_cannot_be_true_all_that_is_left_is_rejected() -> None:
    broken = bytearray(rows(2, 3))
    broken[8:12] = b"\0\0\0\1"
    reader = reading(rows(0, 1) + bytes(broken), (0, 3, 1))
    assert took(reader) == [(0, 1), (1, 1)]
    assert (took(reader), settled(reader)) == ([], [Acknowledged(2, 3, AcknowledgeType.REJECT)])
    assert reader.exhausted


def test_a_format_that_nobody_reads_is_raised_and_released() -> None:
    old = bytearray(rows(2, 3))
    old[16] = 1
    reader = reading(rows(0, 1) + bytes(old), (0, 3, 1))
    assert took(reader) == [(0, 1), (1, 1)]
    with pytest.raises(UnsupportedRecordFormatError):
        reader.take(10)
    assert settled(reader) == [Acknowledged(2, 3, AcknowledgeType.RELEASE)]
    assert (took(reader), reader.exhausted) == ([], True)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_compressed_batches(codec: str) -> None:
    data = encode_batch([(0, None, b"v" * 50, ())] * 100, base_offset=0, compression=codec)
    reader = reading(bytes(data), (20, 79, 3))
    assert took(reader, 30) == [(offset, 3) for offset in range(20, 50)]
    assert took(reader, 1_000) == [(offset, 3) for offset in range(50, 80)]
    assert settled(reader) == []


def test_the_loan_is_given_back_once() -> None:
    reader = reading(rows(0), (0, 0, 1))
    loan = reader.fetch.arena = Loan()
    took(reader)
    reader.close()
    reader.close()
    assert loan.holds == 0


def test_what_ctrl_c_interrupted_is_read_again_and_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reading(rows(*range(6)), (0, 1, 1), (3, 5, 1))
    assert took(reader, 1) == [(0, 1)]

    def interrupted(records: object, count: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(acquired_reader, "set_delivery_count", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.take(2)
    assert settled(reader) == []
    assert took(reader) == [(1, 1), (3, 1), (4, 1), (5, 1)]
    assert (settled(reader), reader.exhausted) == ([], True)
