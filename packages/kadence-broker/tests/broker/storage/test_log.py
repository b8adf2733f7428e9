"""A partition's log against a plain list of batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.records import BatchHeader, encode_batch, iter_batches
from kadence_broker.storage.log import Log


def batch(count: int, size: int = 10, timestamp: int = 0) -> memoryview:
    return memoryview(encode_batch([(timestamp + n, None, bytes(size), ()) for n in range(count)]))


def append(log: Log, data: memoryview, epoch: int = 0) -> int:
    return log.append(data, BatchHeader.parse(data), epoch)


def read_back(views: list[memoryview]) -> list[tuple[int, int, int]]:
    """(base offset, last offset, leader epoch) of each batch."""
    return [
        (header.base_offset, header.last_offset, header.leader_epoch)
        for header, _ in iter_batches(b"".join(views))
    ]


def test_batches_get_consecutive_offsets_and_come_back_whole() -> None:
    log = Log()
    assert [append(log, batch(3)), append(log, batch(1)), append(log, batch(2), epoch=4)] == [0, 3, 4]
    assert log.end_offset == 6
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 2, 0), (3, 3, 0), (4, 5, 4)]
    assert read_back(log.read(5, 1 << 20, at_least_one=True)) == [(4, 5, 4)]
    assert log.read(6, 1 << 20, at_least_one=True) == []


def test_kip_74_the_first_batch_comes_whatever_the_limit_but_only_if_asked_for() -> None:
    log = Log()
    for _ in range(3):
        append(log, batch(1, size=1000))
    assert len(read_back(log.read(0, 1, at_least_one=True))) == 1
    assert log.read(0, 1, at_least_one=False) == []
    one = log.size_bytes // 3
    assert len(read_back(log.read(0, 2 * one, at_least_one=False))) == 2
    assert len(read_back(log.read(0, 2 * one - 1, at_least_one=False))) == 1


def test_many_small_batches_are_few_buffers() -> None:
    log = Log()
    for _ in range(5_000):
        append(log, batch(1))
    assert len(log.read(0, 1 << 30, at_least_one=True)) <= 8


def test_views_stay_as_they_were_while_the_log_grows() -> None:
    log = Log()
    append(log, batch(2))
    views = log.read(0, 1 << 20, at_least_one=True)
    before = b"".join(views)
    for _ in range(2_000):
        append(log, batch(1))
    assert b"".join(views) == before


def test_available_counts_bytes_up_to_the_limit() -> None:
    log = Log()
    append(log, batch(5))
    first = log.size_bytes
    append(log, batch(5))
    assert log.available(0, 1 << 20) == log.size_bytes
    assert log.available(7, 1 << 20) == log.size_bytes - first
    assert log.available(0, 10) == 10
    assert log.available(10, 1 << 20) == 0


def test_timestamps_find_batches() -> None:
    log = Log()
    for timestamp in (100, 50, 200):
        append(log, batch(3, timestamp=timestamp))

    def bases(timestamp: int) -> list[int]:
        return [found.base_offset for _, found in log.since_timestamp(timestamp)]

    assert [bases(timestamp) for timestamp in (0, 102, 103, 203)] == [[0, 3, 6], [0, 6], [6], []]
    assert (log.newest(0), Log().newest(0)) == (202, -1)


def test_kip_320_epochs_have_ends() -> None:
    log = Log()
    for epoch, count in ((0, 2), (0, 1), (3, 4), (5, 1)):
        append(log, batch(count), epoch)
    assert [log.epochs.end_of(epoch, log.end_offset) for epoch in (-1, 0, 1, 3, 4, 5, 9)] == [
        (-1, -1), (0, 3), (0, 3), (3, 7), (3, 7), (5, 8), (5, 8),
    ]  # fmt: skip
    assert [log.epochs.of(offset) for offset in (0, 2, 3, 7)] == [0, 0, 3, 5]
    assert (log.epochs.at_end(), Log().epochs.at_end()) == (5, -1)


def test_deleted_records_free_whole_segments_and_the_rest_stays_readable() -> None:
    log = Log()
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


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9_000)), min_size=1, max_size=40),
    st.integers(0, 250),
    st.integers(0, 100_000),
    st.data(),
)
def test_reading_gives_what_a_list_would(
    batches: list[tuple[int, int]], offset: int, limit: int, data: st.DataObject
) -> None:
    log = Log()
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
    assert repr(log).startswith(f"<Log offsets {start}..{log.end_offset}")


def test_kip_320_a_truncated_log_ends_at_a_whole_batch_and_forgets_the_epochs_beyond() -> None:
    log = Log()
    for epoch in (0, 1, 2):
        append(log, batch(3), epoch)
    before = log.read(0, 1 << 20, at_least_one=True)
    log.truncate(7)
    assert (log.end_offset, log.epochs.end_of(2, log.end_offset), log.epochs.at_end()) == (6, (1, 6), 1)
    assert append(log, batch(1), epoch=3) == 6
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 2, 0), (3, 5, 1), (6, 6, 3)]
    assert read_back(before)[-1] == (6, 8, 2), "what is on its way to a reader is not written over"
    log.truncate(0)
    assert (log.end_offset, log.read(0, 1 << 20, at_least_one=True)) == (0, [])
    assert append(log, batch(2), epoch=4) == 0
    assert read_back(log.read(0, 1 << 20, at_least_one=True)) == [(0, 1, 4)]


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(0, 100))
def test_kip_320_truncation_against_a_list(counts: list[int], offset: int) -> None:
    log, kept = Log(), []
    for number, count in enumerate(counts):
        base = append(log, batch(count, size=3_000), epoch=number)
        if base + count <= offset:
            kept.append((base, base + count - 1, number))
    log.truncate(offset)
    assert log.end_offset == (kept[-1][1] + 1 if kept else 0)
    assert read_back(log.read(0, 1 << 30, at_least_one=True)) == kept
