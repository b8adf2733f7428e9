"""A partition's log against a plain list of batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.broker.log import PartitionLog
from kadence.records import BatchHeader, encode_batch, iter_batches


def batch(count: int, size: int = 10, timestamp: int = 0) -> memoryview:
    return memoryview(encode_batch([(timestamp + n, None, bytes(size), ()) for n in range(count)]))


def append(log: PartitionLog, data: memoryview, epoch: int = 0) -> int:
    return log.append(data, BatchHeader.parse(data), epoch)


def read_back(views: list[memoryview]) -> list[tuple[int, int, int]]:
    """(base offset, last offset, leader epoch) of each batch."""
    return [
        (header.base_offset, header.last_offset, header.leader_epoch)
        for header, _ in iter_batches(b"".join(views))
    ]


def test_batches_get_consecutive_offsets_and_come_back_whole() -> None:
    log = PartitionLog()
    assert [append(log, batch(3)), append(log, batch(1)), append(log, batch(2), epoch=4)] == [0, 3, 4]
    assert log.end_offset == 6
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 2, 0), (3, 3, 0), (4, 5, 4)]
    assert read_back(log.read(5, 1 << 20, at_least_one=True)) == [(4, 5, 4)]
    assert log.read(6, 1 << 20, at_least_one=True) == []


def test_kip_74_the_first_batch_comes_whatever_the_limit_but_only_if_asked_for() -> None:
    log = PartitionLog()
    for _ in range(3):
        append(log, batch(1, size=1000))
    assert len(read_back(log.read(0, 1, at_least_one=True))) == 1
    assert log.read(0, 1, at_least_one=False) == []
    one = log.size_bytes // 3
    assert len(read_back(log.read(0, 2 * one, at_least_one=False))) == 2
    assert len(read_back(log.read(0, 2 * one - 1, at_least_one=False))) == 1


def test_many_small_batches_are_few_buffers() -> None:
    log = PartitionLog()
    for _ in range(5_000):
        append(log, batch(1))
    assert len(log.read(0, 1 << 30, at_least_one=True)) <= 8


def test_views_stay_as_they_were_while_the_log_grows() -> None:
    log = PartitionLog()
    append(log, batch(2))
    views = log.read(0, 1 << 20, at_least_one=True)
    before = b"".join(views)
    for _ in range(2_000):
        append(log, batch(1))
    assert b"".join(views) == before


def test_available_counts_bytes_up_to_the_limit() -> None:
    log = PartitionLog()
    append(log, batch(5))
    first = log.size_bytes
    append(log, batch(5))
    assert log.available(0, 1 << 20) == log.size_bytes
    assert log.available(7, 1 << 20) == log.size_bytes - first
    assert log.available(0, 10) == 10
    assert log.available(10, 1 << 20) == 0


def test_timestamps_find_batches() -> None:
    log = PartitionLog()
    for timestamp in (100, 50, 200):
        append(log, batch(3, timestamp=timestamp))

    def base(found: memoryview | None) -> int | None:
        return None if found is None else BatchHeader.parse(found).base_offset

    assert base(log.batch_for_timestamp(0)) == 0
    assert base(log.batch_for_timestamp(102)) == 0
    assert base(log.batch_for_timestamp(103)) == 6
    assert log.batch_for_timestamp(203) is None
    assert base(log.batch_of_max_timestamp()) == 6
    assert PartitionLog().batch_of_max_timestamp() is None


def test_kip_320_epochs_have_ends() -> None:
    log = PartitionLog()
    for epoch, count in ((0, 2), (0, 1), (3, 4), (5, 1)):
        append(log, batch(count), epoch)
    assert [log.epoch_end(epoch) for epoch in (-1, 0, 1, 3, 4, 5, 9)] == [
        (-1, -1), (0, 3), (0, 3), (3, 7), (3, 7), (5, 8), (5, 8),
    ]  # fmt: skip
    assert [log.epoch_of(offset) for offset in (0, 2, 3, 7)] == [0, 0, 3, 5]
    assert (log.epoch_at_end(), PartitionLog().epoch_at_end()) == (5, -1)


def test_deleted_records_free_whole_segments_and_the_rest_stays_readable() -> None:
    log = PartitionLog()
    for _ in range(3_000):
        append(log, batch(1, size=100))
    size = log.size_bytes
    log.delete_before(2_500)
    assert (log.start_offset, log.end_offset) == (2_500, 3_000)
    assert log.size_bytes < size
    views = log.read(2_500, 1 << 30, at_least_one=True)
    assert read_back(views)[0][0] == 2_500
    assert append(log, batch(1)) == 3_000
    log.delete_before(10)
    assert log.start_offset == 2_500
    with pytest.raises(ValueError, match="ends at 3001"):
        log.delete_before(4_000)


def test_retention_lets_whole_segments_go_and_keeps_what_was_asked() -> None:
    log = PartitionLog()
    for _ in range(4_000):
        append(log, batch(1, size=100))
        log.retain(100_000)
    assert log.start_offset > 0
    assert 100_000 <= log.size_bytes < 300_000
    assert read_back(log.read(log.start_offset, 1 << 30, at_least_one=True))[0][0] == log.start_offset
    log.retain(0)
    assert log.end_offset == 4_000
    assert log.size_bytes > 0, "the newest segment stays"


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9_000)), min_size=1, max_size=40),
    st.integers(0, 250),
    st.integers(0, 100_000),
    st.data(),
)
def test_reading_gives_what_a_list_would(
    batches: list[tuple[int, int]], offset: int, limit: int, data: st.DataObject
) -> None:
    log = PartitionLog()
    kept: list[tuple[int, int, int]] = []
    for count, size in batches:
        stored = batch(count, size)
        base = append(log, stored)
        kept.append((base, base + count - 1, len(stored)))
    start = data.draw(st.integers(0, log.end_offset))
    log.delete_before(start)
    offset = min(max(offset, start), log.end_offset)
    expected: list[tuple[int, int, int]] = []
    left = limit
    for base, last, size in kept:
        if last < offset:
            continue
        if size > left and expected:
            break
        expected.append((base, last, 0))
        left -= size
        if left < 0:
            break
    assert read_back(log.read(offset, limit, at_least_one=True)) == expected
    assert repr(log).startswith(f"<PartitionLog offsets {start}..{log.end_offset}")


def test_kip_320_a_truncated_log_ends_at_a_whole_batch_and_forgets_the_epochs_beyond() -> None:
    log = PartitionLog()
    for epoch in (0, 1, 2):
        append(log, batch(3), epoch)
    before = log.read(0, 1 << 20, at_least_one=True)
    log.truncate(7)
    assert (log.end_offset, log.epoch_end(2), log.epoch_at_end()) == (6, (1, 6), 1)
    assert append(log, batch(1), epoch=3) == 6
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 2, 0), (3, 5, 1), (6, 6, 3)]
    assert read_back(before)[-1] == (6, 8, 2), "what is on its way to a reader is not written over"
    log.truncate(0)
    assert (log.end_offset, log.read(0, 1 << 20, at_least_one=True)) == (0, [])
    assert append(log, batch(2), epoch=4) == 0
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 1, 4)]


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(0, 100))
def test_kip_320_truncation_against_a_list(counts: list[int], offset: int) -> None:
    log, kept = PartitionLog(), []
    for number, count in enumerate(counts):
        base = append(log, batch(count, size=3_000), epoch=number)
        if base + count <= offset:
            kept.append((base, base + count - 1, number))
    log.truncate(offset)
    assert log.end_offset == (kept[-1][1] + 1 if kept else 0)
    assert read_back(log.read(0, 1 << 30, at_least_one=True)) == kept
