"""Ranges on the application side (C11): exactly the records below the end, and what lies beyond it is kept."""

from __future__ import annotations

import pytest

from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.records import ALL_COLUMNS, Columns, encode_batch
from kadence.types import TopicPartition


class Arena:
    def __init__(self, size: int = 0) -> None:
        self.holds = 1
        self.size = size

    def retain(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


class Subject:
    """A collector and one partition, of which batches at given offsets are fetched."""

    def __init__(self, end: int | None, *batches: range) -> None:
        self.shared_state = SharedState(lambda: None)
        self.shared_partition = SharedPartition(TopicPartition("t", 0), 1)
        self.shared_partition.origin = Origin(1, 0, None)
        self.shared_partition.end = end
        self.shared_state.shared_partitions = {self.shared_partition.partition: self.shared_partition}
        self.collector = FetchCollector(self.shared_state, check_crcs=True, max_batch_bytes=1 << 20)
        self.arena = Arena()
        raw = b"".join(
            encode_batch([(0, None, None if n % 3 else b"v", ()) for n in each], base_offset=each.start)
            for each in batches
        )
        self.shared_state.put(CompletedFetch(self.shared_partition, 1, 0, memoryview(raw), self.arena, None))

    def take(self, limit: int = 100) -> list[int]:
        self.collector.mark_processed()
        return [record.offset for _, records in self.collector.take_records(limit) for record in records]

    def take_columns(self, limit: int = 100) -> list[Columns]:
        self.collector.mark_processed()
        return [
            part for _, parts in self.collector.take_columns(limit, columns=ALL_COLUMNS) for part in parts
        ]


def offsets(part: Columns) -> list[int]:
    return memoryview(part.offsets).cast("B").cast("q").tolist()[: part.count]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_c11_no_record_from_the_end_on_is_given(limit: int) -> None:
    subject = Subject(7, range(10))
    given: list[int] = []
    while more := subject.take(limit):
        assert subject.shared_partition.is_finished is (more[-1] == 6)
        given += more
    assert given == list(range(7))
    assert subject.shared_partition.is_finished
    assert subject.shared_partition.position == Origin(1, 7, None)
    assert subject.arena.holds == 1, "the next range may begin there"


@pytest.mark.parametrize("limit", [1, 100])
def test_c11_the_next_range_goes_on_in_what_is_buffered(limit: int) -> None:
    subject = Subject(7, range(10), range(10, 20))
    given: list[int] = []
    for end in (7, 12, 12, 20):
        subject.shared_partition.end = end
        while more := subject.take(limit):
            given += more
        assert subject.shared_partition.is_finished
        assert given == list(range(end))
    assert subject.arena.holds == 0


def test_c11_an_end_among_offsets_without_records_is_reached_by_stepping_over_them() -> None:
    """After 1 comes 10, as in a compacted log."""
    subject = Subject(5, range(2), range(10, 12))
    assert subject.take() == [0, 1]
    assert subject.take() == []
    assert subject.shared_partition.is_finished
    assert subject.shared_partition.position is not None
    assert subject.shared_partition.position.offset == 5
    subject.shared_partition.end = 12
    assert subject.take() == [10, 11]


def test_c11_columns_end_where_records_do() -> None:
    subject = Subject(7, range(10))
    (part,) = subject.take_columns()
    assert offsets(part) == list(range(7))
    assert part.value is not None
    assert part.value.null_count == 4
    assert subject.shared_partition.is_finished
    assert subject.take_columns() == []
    subject.shared_partition.end = 10
    (part,) = subject.take_columns()
    assert offsets(part) == [7, 8, 9]


def test_c11_columns_that_reach_beyond_a_gap_are_cut() -> None:
    subject = Subject(11, range(2), range(10, 16))
    (part,) = subject.take_columns()
    assert (offsets(part), part.count) == ([0, 1, 10], 3)
    assert part.key is not None
    assert part.value is not None
    assert (part.key.null_count, part.value.null_count) == (3, 2)
    assert part.headers is not None
    assert part.headers.null_count == 3
    assert subject.shared_partition.is_finished
    subject.shared_partition.end = 14
    (part,) = subject.take_columns()
    assert offsets(part) == [11, 12, 13]


def test_c11_what_is_put_back_comes_again_and_no_more() -> None:
    subject = Subject(7, range(10))
    assert subject.take(5) == [0, 1, 2, 3, 4]
    subject.collector.put_back()
    assert subject.take() == [0, 1, 2, 3, 4, 5, 6]


def test_c11_what_lies_beyond_an_end_gives_its_memory_to_those_that_wait_for_it() -> None:
    subject = Subject(7, range(10))
    assert len(subject.take()) == 7
    subject.shared_state.press()
    assert subject.take() == []
    assert subject.arena.holds == 0


def test_c11_a_range_that_ends_while_others_wait_for_its_memory_gives_it_up() -> None:
    """It was still being read when the network thread asked, and reading to its end is no event: a task stood still."""
    subject = Subject(7, range(10))
    subject.shared_state.press()
    assert subject.take(3) == [0, 1, 2]
    assert subject.take() == [3, 4, 5, 6]
    assert subject.take() == []
    assert subject.arena.holds == 0


def test_c11_memory_of_a_paused_partition_is_not_given_up_twice_for_one_request() -> None:
    """Beside a range that has ended: what is copied out once is not dropped before the network thread asks again."""
    subject = Subject(7, range(10))
    paused = SharedPartition(TopicPartition("t", 1), 1)
    paused.origin, paused.paused = Origin(1, 0, None), True
    arena = Arena(size=10_000)
    raw = encode_batch([(0, None, b"v", ())], base_offset=0)
    subject.shared_state.put(CompletedFetch(paused, 1, 0, memoryview(raw), arena, None))
    subject.shared_state.press()
    assert subject.take() == [0, 1, 2, 3, 4, 5, 6]
    for _ in range(3):
        assert subject.take() == []
    assert arena.holds == 0
    assert subject.shared_state.copied_bytes > len(raw), "it is still here"
