"""What a transaction of `process` has, whatever happens in between: the outputs of each record once, and its offset."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.work.frontier import Run, Stretch, decode
from kadence.work.letters import ProducerRecord
from kadence.work.rounds import Round, Rounds
from kadence.work.scheduler import Limits, Order, Task

P = TopicPartition("t", 0)
KEYS = 3


def record(partition: TopicPartition, offset: int, key: bytes | None = b"k") -> Record:
    return Record(partition.topic, partition.partition, offset, key=key, value=b"v", leader_epoch=3)


def rounds(count: int, order: Order = "key", limits: Limits | None = None) -> tuple[Rounds, list[Task]]:
    """With records of one partition, which all run where they may."""
    scheduler = Rounds(order, limits or Limits(), None)
    assigned(scheduler, P)
    scheduler.add(P, [record(P, n) for n in range(count)], 0)
    return scheduler, taken(scheduler)


def assigned(scheduler: Rounds, partition: TopicPartition, done: Iterable[Run] = (), at: int = 0) -> None:
    """The partition is assigned, and read from there on."""
    scheduler.assign(partition)
    scheduler.read_from(partition, Stretch(1, at), done)


def taken(scheduler: Rounds) -> list[Task]:
    found = []
    while (task := scheduler.take(0)) is not None:
        found.append(task)
    return found


def offsets_of(this: Round) -> list[int]:
    return [task.record.offset for each in this.finished for task in each.tasks]


def begun(scheduler: Rounds, limit: int = 4096) -> Round:
    this = scheduler.begin(0, limit)
    assert this is not None
    return this


OUT = [ProducerRecord("out")]


def test_outputs_beyond_what_one_transaction_can_send_in_time_wait_for_the_next_one() -> None:
    scheduler, tasks = rounds(4, "none")
    for task in tasks:
        scheduler.finish([task], OUT * 6_000, 0)
    sizes = []
    while (this := begun(scheduler)).finished:
        sizes.append(len(this.finished))
        scheduler.committed(this)
    assert sizes == [1, 1, 1, 1]
    assert scheduler.frontiers()[P].at.offset == 4
    scheduler, tasks = rounds(4, "none")
    for task, count in zip(tasks, (4_000, 6_000, 1, 20_000), strict=True):
        scheduler.finish([task], OUT * count, 0)
    assert offsets_of(begun(scheduler)) == [0, 1]
    assert offsets_of(begun(scheduler)) == [2]
    assert offsets_of(begun(scheduler)) == [3]


def test_the_next_record_of_a_key_begins_before_the_transaction() -> None:
    scheduler, [first] = rounds(3)
    scheduler.finish([first], OUT, 0)
    [second] = taken(scheduler)
    scheduler.finish([second], OUT, 0)
    this = begun(scheduler)
    assert offsets_of(this) == [0, 1]
    assert this.offsets[P].at.offset == 2
    assert scheduler.frontiers()[P].at.offset == 0
    assert (scheduler.total, scheduler.finished) == (3, 2)
    scheduler.committed(this)
    assert scheduler.frontiers()[P].at.offset == 2
    assert (scheduler.total, scheduler.finished) == (1, 0)


def test_what_is_refused_is_handled_again_with_all_of_its_key_behind_it() -> None:
    scheduler, [first] = rounds(4)
    scheduler.finish([first], OUT, 0)
    [second] = taken(scheduler)
    scheduler.finish([second], OUT, 0)
    [third] = taken(scheduler)
    this = begun(scheduler)
    scheduler.aborted(this, [this.finished[0]], 0)
    assert (first.is_running, second.is_running, third.is_running) == (True, False, True)
    scheduler.again(first, 0, 0)
    assert taken(scheduler) == [], "the third one still runs"
    scheduler.finish([third], OUT, 0)
    assert taken(scheduler) == [first], "what overtook it counts for nothing"
    scheduler.finish([first], OUT, 0)
    for expected in (second, third):
        [task] = taken(scheduler)
        assert task is expected
        scheduler.finish([task], OUT, 0)
    assert offsets_of(begun(scheduler)) == [0, 1, 2]


def test_what_fails_through_no_fault_of_its_own_goes_into_the_next_round_in_its_order() -> None:
    scheduler, tasks = rounds(4, "none")
    for task in tasks[:2]:
        scheduler.finish([task], OUT, 0)
    this = begun(scheduler)
    scheduler.finish([tasks[3]], OUT, 0)
    scheduler.aborted(this, [], 0)
    this = begun(scheduler)
    assert offsets_of(this) == [0, 1, 3]
    at = this.offsets[P].at
    assert (at.offset, decode(at.offset, at.metadata)) == (2, [(3, 4)])


def test_a_round_has_no_more_than_the_metadata_can_tell() -> None:
    scheduler, tasks = rounds(400, "none")
    for task in tasks[1::2]:
        scheduler.finish([task], OUT, 0)
    this = begun(scheduler, limit=40)
    assert 0 < len(this.finished) < 200
    scheduler.committed(this)
    scheduler.finish([tasks[0]], OUT, 0)
    for task in tasks[2::2]:
        scheduler.finish([task], OUT, 0)
    this = begun(scheduler, limit=40)
    assert (this.offsets[P].at.offset, this.offsets[P].at.metadata) == (400, "")


def test_a_partition_that_is_lost_takes_batches_with_it_that_others_have_part_in() -> None:
    scheduler = Rounds("key", Limits(), None)
    other = TopicPartition("t", 1)
    for partition in (P, other):
        assigned(scheduler, partition)
        scheduler.add(partition, [record(partition, 0)], 0)
    batch = scheduler.take_batch(10, 0)
    scheduler.finish(batch, OUT, 0)
    scheduler.forget([P])
    assert begun(scheduler).finished == []
    [task] = taken(scheduler)
    assert task.record.partition == 1
    scheduler.finish([task], OUT, 0)
    assert offsets_of(begun(scheduler)) == [0]


def test_a_transaction_of_an_earlier_assignment_fails_and_takes_nothing_of_this_one_with_it() -> None:
    scheduler, [first] = rounds(1)
    scheduler.finish([first], OUT, 0)
    this = begun(scheduler)
    scheduler.forget([P])
    assigned(scheduler, P)
    scheduler.add(P, [record(P, n) for n in range(2)], 0)
    for offset in (0, 1):
        [task] = taken(scheduler)
        assert task.record.offset == offset
        scheduler.finish([task], OUT, 0)
    scheduler.aborted(this, [], 0)
    assert (taken(scheduler), scheduler.total) == ([], 2)
    assert offsets_of(begun(scheduler)) == [0, 1]


def test_it_presses_when_nothing_more_can_be_read_or_half_of_the_limit_waits() -> None:
    scheduler, tasks = rounds(8, "none", Limits(records=10))
    assert not scheduler.is_pressing
    scheduler.finish([tasks[0]], OUT, 0)
    assert (scheduler.room(), scheduler.is_pressing) == (0, False), "a commit would leave no room"
    scheduler.finish([tasks[1]], OUT, 0)
    assert (scheduler.room(), scheduler.is_pressing) == (0, True)
    scheduler.committed(begun(scheduler))
    assert not scheduler.is_pressing
    scheduler.finish([tasks[2]], [*OUT] * 5, 0)
    assert scheduler.is_pressing, "many outputs"


class Played:
    """A member that chance plays, and what its group and a reader of its outputs know."""

    ENDS = 30

    def __init__(self, seed: int, order: Order) -> None:
        self.chance = chance = random.Random(f"{seed} {order}")
        self.order = order
        self.partitions = [TopicPartition("t", n) for n in range(2)]
        self.logs = {
            p: [
                record(p, n, b"%d" % chance.randrange(KEYS) if chance.random() < 0.9 else None)
                for n in range(self.ENDS)
            ]
            for p in self.partitions
        }
        self.limit = chance.choice((4096, 4096, 40, 24))
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.outputs: list[tuple[TopicPartition, int]] = []
        self.scheduler = Rounds(order, Limits(records=20, near=chance.choice((5, 20)), enough=2), None)
        self.positions: dict[TopicPartition, int] = {}
        self.running: list[list[Task]] = []
        self.round: Round | None = None
        for partition in self.partitions:
            self.assign(partition)

    @property
    def is_done(self) -> bool:
        return all(p in self.group and self.group[p].offset == self.ENDS for p in self.partitions)

    def step(self, now: int) -> None:
        steps = [self.read, self.take, self.end, self.begin, self.decide, self.come_or_go]
        [step] = self.chance.choices(steps, [20, 30, 30, 10, 8, 1])
        step(now)

    def read(self, now: int) -> None:
        partition = self.chance.choice(self.partitions)
        if partition in self.positions and self.scheduler.room():
            at = self.positions[partition]
            part = self.logs[partition][at : at + self.chance.randint(1, 5)]
            self.scheduler.add(partition, part, now)
            self.positions[partition] += len(part)

    def take(self, now: int) -> None:
        if len(self.running) == 4:
            return
        if self.chance.random() < 0.5:
            batch = self.scheduler.take_batch(3, now)
        else:
            task = self.scheduler.take(now)
            batch = [] if task is None else [task]
        if batch:
            self.running.append(batch)

    def end(self, now: int) -> None:
        """A handler ends, or has failed."""
        if not self.running:
            return
        batch = self.running.pop(self.chance.randrange(len(self.running)))
        if self.chance.random() < 0.1:
            for task in batch:
                self.scheduler.again(task, now + self.chance.randint(0, 20), now)
        else:
            given = [ProducerRecord("out", (t.work.partition, t.record.offset)) for t in batch]
            self.scheduler.finish(batch, given, now)

    def begin(self, now: int) -> None:
        if self.round is None:
            self.round = self.scheduler.begin(now, self.limit)

    def decide(self, now: int) -> None:
        """A transaction ends, well or not; of what fails, some may be refused."""
        this = self.round
        if this is None:
            return
        if self.may_commit(this) and self.chance.random() < 0.7:
            self.commit(this)
            return
        refused = [each for each in this.finished if self.chance.random() < 0.1]
        self.scheduler.aborted(this, refused, now)
        again = [[task for task in each.tasks if task.is_running] for each in refused]
        self.running += [tasks for tasks in again if tasks]
        self.round = None

    def come_or_go(self, now: int) -> None:
        partition = self.chance.choice(self.partitions)
        if partition not in self.positions:
            if self.round is not None and partition in self.round.offsets:
                self.scheduler.aborted(self.round, [], now)
                self.round = None
            self.assign(partition)
            return
        # It is lost, or it is revoked and what is finished of it is committed before.
        self.scheduler.revoke([partition])
        if self.chance.random() < 0.5:
            self.begin(now)
            if self.round is not None and self.may_commit(self.round):
                self.commit(self.round)
        self.scheduler.forget([partition])
        del self.positions[partition]

    def assign(self, partition: TopicPartition) -> None:
        at = self.group.get(partition)
        done = () if at is None else decode(at.offset, at.metadata)
        self.positions[partition] = 0 if at is None else at.offset
        assigned(self.scheduler, partition, done, self.positions[partition])

    def may_commit(self, this: Round) -> bool:
        """Whether the coordinator would not fence it."""
        return all(p in self.scheduler.partitions for p in this.offsets)

    def commit(self, this: Round) -> None:
        self.group.update({p: read.at for p, read in this.offsets.items()})
        self.outputs.extend(output.value for each in this.finished for output in each.outputs)
        self.scheduler.committed(this)
        self.round = None
        for partition, at in self.group.items():
            told = {*range(at.offset)}
            told.update(n for run in decode(at.offset, at.metadata) for n in range(*run))
            assert told == {offset for p, offset in self.outputs if p == partition}

    def check(self) -> None:
        """Each record has one output, and those of a lane are in their order."""
        assert sorted(self.outputs) == [(p, n) for p in self.partitions for n in range(self.ENDS)]
        lanes: dict[tuple[TopicPartition, bytes | None], list[int]] = {}
        for partition, offset in self.outputs:
            key = self.logs[partition][offset].key if self.order == "key" else None
            lanes.setdefault((partition, key), []).append(offset)
        assert self.order == "none" or all(offsets == sorted(offsets) for offsets in lanes.values())
        assert self.scheduler.finished == 0


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("seed", range(40))
def test_any_schedule_commits_each_record_once_with_its_offset(seed: int, order: Order) -> None:
    """Handlers end in any order, transactions fail, outputs are refused, partitions go and come back."""
    member = Played(seed, order)
    for now in range(20_000):
        if member.is_done:
            break
        member.step(now)
    assert member.is_done
    member.check()
