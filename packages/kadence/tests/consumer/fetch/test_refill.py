"""Hands that a step refills by itself and the last record of a fetch, which is no step (C6, C9).

Whatever is a step and whatever a whole poll: the same records come in the same order, and positions never lie.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.fetch.test_fetch_collector import Arena, shared_partition, shared_state
from tests.luck import examples

from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch._steps import Steps
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.errors import CorruptRecordError
from kadence.records import OWN_COLUMNS, Record, encode_batch
from kadence_testing import FakeClock


@cache
def batch(start: int, count: int, compression: str = "none", size: int = 1) -> bytes:
    records = [(0, None, b"v" * (1 + n % size), ()) for n in range(count)]
    return encode_batch(records, base_offset=start, compression=compression)


class World:
    """Partitions whose bytes are buffered, under steps and small polls.

    ``fetches``: for each partition its fetches, for each fetch its batches as (records, compression, gap before it).
    """

    def __init__(
        self,
        fetches: list[list[list[tuple[int, str, int]]]],
        *,
        size: int = 1,
        decoded_bytes: int = 1 << 20,
        unpack_bytes: int = 1 << 20,
    ) -> None:
        self.shared_state = shared_state()
        self.clock = FakeClock()
        self.collector = FetchCollector(
            self.shared_state,
            check_crcs=True,
            max_batch_bytes=1 << 20,
            unpack_bytes=unpack_bytes,
            decoded_bytes=decoded_bytes,
            clock=self.clock,
        )
        self.shared_partitions = [shared_partition(number) for number in range(len(fetches))]
        self.expected: list[list[int]] = []
        self.arenas: list[Arena] = []
        self.polls = 0
        for each, of_partition in zip(self.shared_partitions, fetches, strict=True):
            offset = 0
            offsets: list[int] = []
            for batches in of_partition:
                data, begin = b"", offset
                for count, compression, gap in batches:
                    offset += gap
                    data += batch(offset, count, compression, size)
                    offsets += range(offset, offset + count)
                    offset += count
                self.arenas.append(Arena())
                self.shared_state.put(CompletedFetch(each, 1, begin, memoryview(data), self.arenas[-1], None))
            self.expected.append(offsets)
        self.given = [0] * len(fetches)

    @property
    def steps(self) -> Steps:
        return self.collector.steps

    def poll(self, limit: int) -> list[Record]:
        self.polls += 1
        self.collector.mark_processed()
        chunks = self.collector.take_records(limit)
        self.shared_state.attention.up = False
        self.collector.arm(self.clock.now_ms(), limit)
        return [record for _, records in chunks for record in records]

    def next(self) -> list[Record]:
        record = self.steps.step()
        return self.poll(1) if record is None else [record]

    def several(self, limit: int) -> list[Record]:
        records = self.steps.poll(limit)
        return self.poll(limit) if records is None else list(records)

    def take(self, records: list[Record]) -> None:
        """Each partition's records come in order, and its position stands right behind them."""
        for record in records:
            number = record.partition
            assert record.offset == self.expected[number][self.given[number]]
            self.given[number] += 1
        for number, each in enumerate(self.shared_partitions):
            position, processed = each.current(), each.processed_position()
            assert position is not None
            assert processed is not None
            given, offsets = self.given[number], self.expected[number]
            assert position.offset >= (offsets[given - 1] + 1 if given else 0)
            assert given == len(offsets) or position.offset <= offsets[given]
            back = sum(record.partition == number for record in records)
            assert processed.offset <= (offsets[given - back] if back else position.offset)
            if given > back:
                assert processed.offset > offsets[given - back - 1]

    def consumed(self) -> float:
        """records-consumed-total."""
        self.steps.settle()
        return self.shared_state.measures.poll_measures.topic("t").records.total

    def finish(self) -> None:
        while any(each.current() is not None for each in self.shared_partitions):
            records = self.next()
            self.take(records)
            if not records and not self.collector.advanced:
                break
        assert self.given == [len(offsets) for offsets in self.expected]
        assert not any(arena.holds for arena in self.arenas)
        assert self.shared_state.decoded_bytes == 0


sizes = st.sampled_from([1, 2, 3, 20, 63, 64, 65, 130, 255, 256, 257, 500])
batches = st.tuples(sizes, st.sampled_from(["none", "none", "gzip"]), st.sampled_from([0, 0, 3]))
partitions = st.lists(
    st.lists(st.lists(batches, min_size=1, max_size=4), min_size=1, max_size=2), min_size=1, max_size=3
)
scripts = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "next",
                "next",
                "next",
                "several",
                "many",
                "many",
                "poll",
                "put back",
                "attention",
                "columns",
                "pause",
            ]
        ),
        st.integers(1, 90),
    ),
    max_size=25,
)


@examples(60)
@given(
    fetches=partitions,
    script=scripts,
    size=st.sampled_from([1, 40]),
    decoded=st.sampled_from([1 << 20, 900]),
    unpack=st.sampled_from([1 << 20, 900]),
)
def test_c9_each_record_comes_once_and_positions_never_lie(
    fetches: list[list[list[tuple[int, str, int]]]],
    script: list[tuple[str, int]],
    size: int,
    decoded: int,
    unpack: int,
) -> None:
    world = World(fetches, size=size, decoded_bytes=decoded, unpack_bytes=unpack)
    for what, count in script:
        if what == "next":
            for _ in range(count):
                world.take(world.next())
        elif what == "several":
            world.take(world.several(count % 10 + 1))
        elif what == "many":
            for _ in range(3):
                world.take(world.several(count))
        elif what == "poll":
            world.take(world.poll(count))
        elif what == "put back":
            for record in world.next():
                assert record.offset == world.expected[record.partition][world.given[record.partition]]
            world.collector.put_back()
            world.take([])
        elif what == "pause":
            paused = world.shared_partitions[count % len(world.shared_partitions)]
            paused.paused = not paused.paused
        elif what == "attention":
            world.shared_state.attention.up = True
        else:
            world.polls += 1
            world.collector.mark_processed()
            for partition, parts in world.collector.take_columns(count, columns=OWN_COLUMNS):
                world.given[partition.partition] += sum(len(part) for part in parts)
    for each in world.shared_partitions:
        each.paused = False
    world.finish()


def test_c7_a_record_that_ended_a_hand_is_put_back_when_its_poll_is_interrupted_at_the_end() -> None:
    world = World([[[(1, "none", 0)], [(5, "none", 0)]]])
    (record,) = world.poll(1)
    world.collector.put_back()
    assert world.poll(1) == [record]


def test_c6_a_hand_is_refilled_by_a_step() -> None:
    world = World([[[(2000, "none", 0)]], [[(20, "none", 0)] * 100]])
    world.finish()
    # The first poll, one at each end; and the one that finds nothing.
    assert world.polls <= 6


def test_c6_polls_of_many_are_steps() -> None:
    """Within a fetch, over the ends of its batches."""
    world = World([[[(2000, "none", 0)]], [[(20, "none", 0)] * 100]])
    taken = 0
    while taken < 3000:
        records = world.several(150)
        world.take(records)
        taken += len(records)
        assert world.collector.given() == len(records)
        assert world.consumed() == taken
    # The first of each partition.
    assert world.polls == 2
    world.finish()


def test_c7_a_step_of_many_that_did_not_reach_the_caller_is_fetched_again() -> None:
    world = World([[[(500, "none", 0)]]])
    one = world.shared_partitions[0]
    world.take(world.several(100))
    assert [record.offset for record in world.several(100)] == list(range(100, 200))
    world.collector.put_back()
    assert world.consumed() == 100
    at = one.current()
    assert at is not None
    assert at.offset == 100


@pytest.mark.parametrize("damaged", [None, 1, 2])
def test_a_step_of_many_goes_on_to_large_batches_that_are_sound(damaged: int | None) -> None:
    """They were verified when the fetch was opened, outside the interpreter."""
    data = bytearray()
    ends = []
    for number in range(4):
        data += encode_batch([(0, None, b"v" * 1024, ())] * 100, base_offset=100 * number)
        ends.append(len(data))
    if damaged is not None:
        data[ends[damaged] - 1] ^= 1
    world = World([])
    one = shared_partition(0)
    world.shared_partitions = [one]
    world.shared_state.put(CompletedFetch(one, 1, 0, memoryview(data), Arena(), None))
    offsets: list[int] = []
    sound = 100 * (4 if damaged is None else damaged)
    while len(offsets) < sound:
        offsets += [record.offset for record in world.several(70)]
    assert offsets == list(range(sound))
    if damaged is None:
        # The first and the last.
        assert world.polls == 2
    if damaged is not None:
        with pytest.raises(CorruptRecordError):
            world.several(70)
    at = one.current()
    assert at is not None
    assert at.offset == sound


def test_records_that_cannot_be_read_are_found_by_a_poll_behind_those_before_them() -> None:
    shared, one = shared_state(), shared_partition(0)
    data = bytearray(batch(0, 600))
    size = (len(data) - 61) // 600
    at = 61 + size * 64 + (size + 1) * 336  # deltas from 64 on take one byte more
    data[at] = 0x7F
    shared.put(CompletedFetch(one, 1, 0, memoryview(data), Arena(), None))
    subject = FetchCollector(shared, check_crcs=False, max_batch_bytes=1 << 20, clock=FakeClock())

    def next_offset() -> int:
        record: Record | None = subject.steps.step()
        if record is None:
            subject.mark_processed()
            ((_, (record,)),) = subject.take_records(1)
            shared.attention.up = False
            subject.arm(FakeClock().now_ms(), 1)
        return record.offset

    assert [next_offset() for _ in range(400)] == list(range(400))
    with pytest.raises(CorruptRecordError):
        next_offset()
    at_error = one.current()
    assert at_error is not None
    assert at_error.offset == 400


def woken(shared: SharedState, each: SharedPartition) -> bool:
    return each in shared.changed


@pytest.mark.parametrize("count", [3, 256, 300])
def test_c6_the_network_thread_is_woken_when_the_last_record_of_a_fetch_is_given_out(count: int) -> None:
    world = World([[[(count, "none", 0)]], [[(count + 10, "none", 0)]]])
    one = world.shared_partitions[0]
    one.wake_bytes = len(batch(0, count))
    while world.given[0] < count:
        assert world.arenas[0].holds == 1
        assert not woken(world.shared_state, one)
        world.take(world.next())
    # Not one poll late.
    assert world.arenas[0].holds == 0
    assert woken(world.shared_state, one)


def test_c6_so_is_it_by_small_polls() -> None:
    world = World([[[(40, "none", 0)]], [[(50, "none", 0)]]])
    one = world.shared_partitions[0]
    one.wake_bytes = len(batch(0, 40))
    while world.given[0] < 40:
        assert not woken(world.shared_state, one)
        world.take(world.several(10))
    assert woken(world.shared_state, one)
