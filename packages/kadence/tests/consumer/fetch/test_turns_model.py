"""Steps among whole polls, under any order of caps, pauses, seeks, ranges and Ctrl-C, against a model.

Each record is returned once after each seek and in order, partitions take turns (A2), positions and metrics tell just
what was returned.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence.consumer.events import Seek
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.records import OWN_COLUMNS, encode_batch
from kadence.types import TopicPartition
from kadence_testing.clock import FakeClock

COUNT = 200
PARTITIONS = 3


class Arena:
    size = holds = 0

    def retain(self) -> None: ...

    def release(self) -> None: ...


class World:
    """Partitions whose records lie in the buffer, and what an application does above them.

    Attributes:
        due: the next offset of each partition. ends: of ranges.
        served: when each was served last, in polls; empty where that is forgotten.
    """

    def __init__(self, batch: int, fetch: int) -> None:
        self.batch, self.fetch = batch, fetch
        self.clock = FakeClock()
        self.shared = SharedState(lambda: None)
        self.collector = FetchCollector(
            self.shared, check_crcs=True, max_batch_bytes=1 << 20, clock=self.clock
        )
        self.steps = self.collector.steps
        self.partitions = [SharedPartition(TopicPartition("t", number), 1) for number in range(PARTITIONS)]
        self.shared.shared_partitions = {each.partition: each for each in self.partitions}
        self.due = [0] * PARTITIONS
        self.given = 0
        self.polls = 0
        self.served: dict[int, int] = {}
        for number in range(PARTITIONS):
            self.fetch_from(number, 0)

    def fetch_from(self, number: int, offset: int) -> None:
        """What the network thread does at a seek: a new fetch epoch, and the records from there on."""
        shared_partition = self.partitions[number]
        shared_partition.fetch_epoch += 1
        shared_partition.origin = Origin(shared_partition.fetch_epoch, offset, None)
        self.shared.attention.up = True
        for start in range(offset, COUNT, self.fetch * self.batch):
            stop = min(start + self.fetch * self.batch, COUNT)
            data = b"".join(
                encode_batch(
                    [(0, None, b"%d" % n, ()) for n in range(first, min(first + self.batch, stop))],
                    base_offset=first,
                )
                for first in range(start, stop, self.batch)
            )
            self.shared.put(
                CompletedFetch(
                    shared_partition, shared_partition.fetch_epoch, start, memoryview(data), Arena(), None
                )
            )

    def network(self) -> None:
        """Fetch again what was given up."""
        while self.shared.application_events:
            seek = self.shared.application_events.popleft()
            assert isinstance(seek, Seek)
            self.fetch_from(seek.shared_partition.partition.partition, seek.offset)
            self.served.clear()

    # ------------------------------------------------------------ what the application does

    def poll(self, limit: int, *, lets_go: bool = False, is_interrupted: bool = False) -> None:
        ready = {number for number in range(PARTITIONS) if self.is_ready(number)}
        chunks = self.stepped(limit)
        if not chunks:
            self.shared.attention.up = False
            self.collector.mark_processed()
            chunks = [
                (partition.partition, [record.offset for record in records])
                for partition, records in self.collector.take_records(limit)
            ]
            if chunks:
                self.collector.arm(self.clock.now_ms(), limit)
        if lets_go:
            self.steps.let_go()
        if is_interrupted:
            self.collector.put_back()
            self.network()
            self.served.clear()
            return
        assert sum(len(offsets) for _, offsets in chunks) <= limit
        assert bool(chunks) == bool(ready)
        self.polls += 1
        for number, offsets in chunks:
            assert number in ready
            assert offsets == list(range(self.due[number], self.due[number] + len(offsets)))
            self.due[number] += len(offsets)
            self.given += len(offsets)
        self.take_turns([number for number, _ in chunks], ready)

    def stepped(self, limit: int) -> list[tuple[int, list[int]]]:
        """A poll that is a step."""
        if limit == 1:
            record = self.steps.step()
            return [] if record is None else [(record.partition, [record.offset])]
        records = self.steps.poll(limit)
        by_partition = {} if records is None else records.by_partition()
        return [
            (partition.partition, [each.offset for each in got]) for partition, got in by_partition.items()
        ]

    def take_turns(self, numbers: list[int], ready: set[int]) -> None:
        """Whoever was passed over was served later than those who were served now."""
        assert len(set(numbers)) == len(numbers)
        for number in numbers:
            for other in ready - set(numbers):
                if number in self.served and other in self.served:
                    assert self.served[number] < self.served[other], (numbers, self.served)
        self.served |= {number: self.polls * PARTITIONS + at for at, number in enumerate(numbers)}

    def columns(self, limit: int) -> None:
        self.steps.disarm()
        self.collector.mark_processed()
        for partition, parts in self.collector.take_columns(limit, columns=OWN_COLUMNS):
            count = sum(map(len, parts))
            self.due[partition.partition] += count
            self.given += count
        self.network()
        self.served.clear()

    def seek(self, number: int, offset: int) -> None:
        self.due[number] = offset
        self.fetch_from(number, offset)
        self.served.clear()

    def pause(self, number: int, is_paused: bool) -> None:
        self.partitions[number].paused = is_paused
        self.shared.attention.up = True
        self.served.clear()

    def read_until(self, number: int, end: int | None) -> None:
        """Another range from the position on, as `assign` gives it.

        Where the one before was read to its end, reading just goes on. Else records beyond the end may be decoded
        already, and a new fetch epoch begins (`Subscription.continues`).
        """
        shared_partition, due = self.partitions[number], self.due[number]
        if end is None or shared_partition.end != due:
            self.fetch_from(number, due)
        shared_partition.end = None if end is None else max(end, due)
        self.shared.attention.up = True
        self.served.clear()

    # ------------------------------------------------------------ what is so

    def is_ready(self, number: int) -> bool:
        end = self.partitions[number].end
        return not self.partitions[number].paused and self.due[number] < (COUNT if end is None else end)

    def check(self) -> None:
        for number, shared_partition in enumerate(self.partitions):
            at = shared_partition.current()
            assert at is not None
            assert at.offset == self.due[number]
        self.steps.settle()
        assert self.shared.measures.poll_measures.topic("t").records.total == self.given


numbers = st.integers(0, PARTITIONS - 1)
caps = st.sampled_from([1, 1, 1, 2, 3, 5, 16, 17, 40, 64, 65, 300])
actions = st.one_of(
    st.tuples(st.just("poll"), caps, st.booleans()),
    st.tuples(st.just("poll"), st.just(1), st.just(False)),
    st.tuples(st.just("iterate"), st.integers(2, 60)),
    st.tuples(st.just("interrupted"), caps, st.booleans()),
    st.tuples(st.just("columns"), caps),
    st.tuples(st.just("pause"), numbers, st.booleans()),
    st.tuples(st.just("seek"), numbers, st.integers(0, COUNT)),
    st.tuples(st.just("end"), numbers, st.none() | st.integers(0, COUNT)),
    st.tuples(st.just("later"), st.integers(1, 9)),
)


@examples(75)
@given(
    batch=st.sampled_from([1, 3, 10, 40, 200]), fetch=st.integers(1, 4), script=st.lists(actions, max_size=25)
)
def test_each_record_once_in_order_and_in_turns(
    batch: int, fetch: int, script: list[tuple[Any, ...]]
) -> None:
    world = World(batch, fetch)
    for what, *arguments in script:
        if what == "poll":
            world.poll(arguments[0], lets_go=arguments[1])
        elif what == "iterate":
            for _ in range(arguments[0]):
                world.poll(1)
        elif what == "interrupted":
            world.poll(arguments[0], lets_go=arguments[1], is_interrupted=True)
        elif what == "columns":
            world.columns(arguments[0])
        elif what == "pause":
            world.pause(*arguments)
        elif what == "seek":
            world.seek(*arguments)
        elif what == "end":
            world.read_until(*arguments)
        else:
            world.clock.advance(arguments[0])
        world.check()
