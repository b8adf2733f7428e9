"""No batch is decompressed more than twice, however many partitions share the memory for it (A6, A2, A3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.consumer.fetch.test_fetch_collector import Arena, shared_partition, shared_state

from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_state import CompletedFetch
from kadence.records import OWN_COLUMNS, FetchedRecords, codecs, encode_batch
from kadence_testing import FakeClock

RECORDS = 10
"""In a batch."""
UNPACKED = 1_045
"""Bytes of a batch, about."""
BATCHES = 3
"""Of a partition: two in its first fetch and one in its second."""


class World:
    """Partitions with compressed batches, and memory for ``room`` of these; every decompression is counted."""

    def __init__(self, patch: pytest.MonkeyPatch, partitions: int, room: int) -> None:
        self.shared_state = shared_state()
        self.clock = FakeClock()
        self.room_bytes = room * UNPACKED * 9 // 8
        self.collector = FetchCollector(
            self.shared_state,
            check_crcs=True,
            max_batch_bytes=1 << 20,
            unpack_bytes=self.room_bytes,
            decoded_bytes=500 * partitions,
            clock=self.clock,
        )
        self.shared_partitions = [shared_partition(number) for number in range(partitions)]
        self.given = [0] * partitions
        self.unpackings: Counter[bytes] = Counter()
        self.most = self.unpacked_bytes = 0
        self.arenas: list[Arena] = []
        decompress = codecs.decompress

        def counted(codec: int, data: memoryview, limit: int) -> object:
            result = decompress(codec, data, limit)
            size = memoryview(result).nbytes
            self.unpackings[bytes(data)] += 1
            self.unpacked_bytes += size
            self.most = max(self.most, self.shared_state.decompressed_bytes + size)
            return result

        patch.setattr(f"{FetchedRecords.__module__}.decompress", counted)
        for number in range(partitions):
            self.put(number, 0, 2)
            self.put(number, 2, 1)

    def put(self, number: int, first: int, batches: int) -> None:
        data = b"".join(
            encode_batch(
                [(0, None, b"%d-%d" % (number, at) + bytes(90), ())] * RECORDS,
                base_offset=at * RECORDS,
                compression="lz4",
            )
            for at in range(first, first + batches)
        )
        self.arenas.append(Arena())
        where = first * RECORDS, memoryview(data), self.arenas[-1]
        self.shared_state.put(CompletedFetch(self.shared_partitions[number], 1, *where, None))

    def take(self, partition: int, offset: int, count: int) -> None:
        assert offset == self.given[partition], "each record once, and in order"
        self.given[partition] += count

    def next(self) -> bool:
        record = self.collector.steps.step()
        if record is None:
            return self.poll(1)
        self.take(record.partition, record.offset, 1)
        return True

    def poll(self, limit: int) -> bool:
        self.collector.mark_processed()
        chunks = self.collector.take_records(limit)
        self.shared_state.attention.up = False
        self.collector.arm(self.clock.now_ms(), limit)
        for partition, records in chunks:
            self.take(partition.partition, records[0].offset, len(records))
        return bool(chunks)

    def poll_arrow(self) -> bool:
        self.collector.mark_processed()
        chunks = self.collector.take_columns(
            -1 % (1 << 31), columns=OWN_COLUMNS, max_bytes=100 * len(self.shared_partitions)
        )
        for partition, parts in chunks:
            self.take(partition.partition, self.given[partition.partition], sum(map(len, parts)))
        return bool(chunks)


WAYS: dict[str, Callable[[World], bool]] = {
    "iteration": World.next,
    "polls of 7": lambda world: world.poll(7),
    "polls of 500": lambda world: world.poll(500),
    "poll_arrow": World.poll_arrow,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("partitions", "room"), [(1, 1), (3, 1), (20, 7), (60, 28), (200, 2), (1000, 90)])
def test_a6_no_batch_is_decompressed_more_than_twice(
    monkeypatch: pytest.MonkeyPatch, way: str, partitions: int, room: int
) -> None:
    world = World(monkeypatch, partitions, room)
    turn = WAYS[way]
    calls = 0
    while turn(world):
        calls += 1
        if calls % 20 == 0 and way in ("iteration", "polls of 7"):
            # A2: each has one batch decompressed before any has another one.
            assert max(world.given) - min(world.given) <= 2 * RECORDS + 7
    assert world.given == [BATCHES * RECORDS] * partitions
    assert len(world.unpackings) == partitions * BATCHES
    assert max(world.unpackings.values()) <= 2
    poll_measures = world.shared_state.measures.poll_measures
    assert poll_measures.unpackings == world.unpackings.total()
    assert poll_measures.unpacked_bytes == world.unpacked_bytes
    assert world.most <= max(world.room_bytes, UNPACKED)
    assert world.shared_state.decompressed_bytes == world.shared_state.decoded_bytes == 0


def test_a6_a_batch_of_a_paused_partition_is_given_up_only_when_nobody_else_has_one_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 4, 2)
    world.poll(1)
    assert world.given == [1, 0, 0, 0]
    world.shared_partitions[0].paused = True
    while world.poll(1):
        pass
    assert world.given == [1, 30, 30, 30]
    world.shared_partitions[0].paused = False
    while world.poll(1):
        pass
    assert world.given == [30] * 4
    assert sum(world.unpackings.values()) == 4 * BATCHES


def test_a6_who_is_paused_while_it_waits_for_memory_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 3, 1)
    world.poll(7)
    world.poll(1)
    world.shared_partitions[1].paused = True
    while world.poll(7):
        pass
    assert world.given == [30, 0, 30]
    world.shared_partitions[1].paused = False
    while world.next():
        pass
    assert world.given == [30] * 3


def test_a6_when_all_that_are_in_the_midst_of_a_batch_are_paused_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 5, 2)
    for number in range(5):
        while not world.given[number]:
            assert world.poll(7)
        world.shared_partitions[number].paused = True
        assert world.most <= world.room_bytes
    assert not world.poll(7)


def test_a6_a_reader_that_waits_gives_back_what_a_seek_or_the_end_makes_void(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, 3, 1)
    world.poll(1)
    world.poll(1)
    assert world.collector.holds(world.shared_partitions[2].partition, 1)
    world.collector.refetch(world.shared_partitions[2])
    assert not world.collector.holds(world.shared_partitions[2].partition, 1)
    world.collector.drop_all()
    assert not world.collector.buffered()
    assert not any(arena.holds for arena in world.arenas)
