"""Lanes, limits and frontiers, driven by hand and by random schedules."""

from __future__ import annotations

import binascii
import random
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.work.frontier import METADATA_BYTES, Frontier, Run, Stretch, decode, encode
from kadence.work.scheduler import Earlier, Limits, Order, Scheduler, Task

P = TopicPartition("orders", 0)
Q = TopicPartition("orders", 1)


def record(offset: int, key: bytes | None = None, partition: TopicPartition = P) -> Record:
    return Record(partition.topic, partition.partition, offset, key=key, value=b"v", leader_epoch=3)


def records(*keys: bytes | None, start: int = 0, partition: TopicPartition = P) -> list[Record]:
    return [record(start + n, key, partition) for n, key in enumerate(keys)]


def taken(scheduler: Scheduler, now: int = 0) -> list[Task]:
    found = []
    while (task := scheduler.take(now)) is not None:
        found.append(task)
    return found


def assigned(
    scheduler: Scheduler, partition: TopicPartition = P, done: Iterable[Run] = (), at: int = 0
) -> None:
    """The partition is assigned, and read from there on."""
    scheduler.assign(partition)
    scheduler.read_from(partition, Stretch(1, at), done)


def committable(scheduler: Scheduler, partition: TopicPartition = P) -> OffsetAndMetadata:
    return scheduler.frontiers((partition,))[partition].at


def offsets(tasks: Iterable[Task]) -> list[int]:
    return [task.record.offset for task in tasks]


# ---------------------------------------------------------------- the order of records: H2


def test_records_of_a_key_run_one_after_the_other_and_keys_beside_each_other() -> None:
    scheduler = Scheduler("key", Limits())
    scheduler.add(P, records(b"a", b"b", b"a", b"a"), 0)
    first = taken(scheduler)
    assert offsets(first) == [0, 1]
    scheduler.done([first[0]], 0)
    assert offsets(taken(scheduler)) == [2]


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_a_piece_has_one_record_of_each_lane(order: Order) -> None:
    scheduler = Scheduler(order, Limits())
    for partition in (P, Q):
        assigned(scheduler, partition)
        scheduler.add(partition, records(b"a", b"b", b"a", partition=partition), 0)
    piece = scheduler.take_each(5, 0)
    expected = {"key": [0, 1, 0, 1], "partition": [0, 0], "none": [0, 1, 2, 0, 1]}
    assert offsets(piece) == expected[order]
    assert list(scheduler.running) == piece
    scheduler.done(piece, 0)
    left = {"key": [2, 2], "partition": [1, 1], "none": [2]}
    assert offsets(scheduler.take_each(5, 0)) == left[order]
    assert scheduler.total == 6 - len(piece)


def test_a_lane_that_is_queued_twice_gives_a_piece_one_record() -> None:
    scheduler = Scheduler("key", Limits())
    assigned(scheduler)
    scheduler.add(P, records(b"a", b"a", b"b"), 0)
    scheduler._ready.append(scheduler._ready[0])
    assert offsets(scheduler.take_each(5, 0)) == [0, 2]


def test_records_without_a_key_keep_the_order_of_their_partition() -> None:
    scheduler = Scheduler("key", Limits())
    scheduler.add(P, records(None, b"a", None), 0)
    scheduler.add(Q, records(None, partition=Q), 0)
    assert [(t.record.partition, t.record.offset) for t in taken(scheduler)] == [(0, 0), (0, 1), (1, 0)]


def test_by_partition_and_without_order() -> None:
    by_partition = Scheduler("partition", Limits())
    by_partition.add(P, records(b"a", b"b"), 0)
    assert offsets(taken(by_partition)) == [0]
    without = Scheduler("none", Limits())
    without.add(P, records(b"a", b"a", None, None), 0)
    assert offsets(taken(without)) == [0, 1, 2, 3]


def test_a_record_that_failed_holds_up_its_key_alone_until_it_is_due() -> None:
    scheduler = Scheduler("key", Limits())
    scheduler.add(P, records(b"a", b"b", b"a"), 0)
    a, b = taken(scheduler)
    scheduler.again(a, due=1000, now=0)
    scheduler.done([b], 0)
    assert taken(scheduler, 999) == []
    assert scheduler.next_due() == 1000
    assert taken(scheduler, 1000) == [a]
    assert a.attempts == 1
    scheduler.done([a], 1000)
    assert offsets(taken(scheduler, 1000)) == [2]


def test_a_key_that_still_runs_after_its_partition_came_back_is_not_begun_again() -> None:
    scheduler = Scheduler("key", Limits())
    scheduler.add(P, records(b"a"), 0)
    [late] = taken(scheduler)
    scheduler.forget([P])
    assert late.is_lost
    assigned(scheduler)
    scheduler.add(P, records(b"a"), 0)
    assert taken(scheduler) == []
    scheduler.done([late], 5)
    [again] = taken(scheduler)
    assert again is not late
    assert committable(scheduler).offset == 0, "the late one is not of this assignment"


def test_a_batch_keeps_the_order_of_keys() -> None:
    scheduler = Scheduler("key", Limits())
    scheduler.add(P, records(b"a", b"b", b"a", b"c"), 0)
    batch = scheduler.take_batch(3, 0)
    assert offsets(batch) == [0, 2, 1]
    assert offsets(scheduler.take_batch(3, 0)) == [3]
    for task in batch:
        scheduler.again(task, due=0, now=0)
    assert offsets(scheduler.take_batch(10, 0)) == [0, 2, 1]


# ---------------------------------------------------------------- the frontier (H3)


def test_what_is_committed_is_the_lowest_that_is_not_done() -> None:
    scheduler = Scheduler("none", Limits())
    assigned(scheduler)
    assert (committable(scheduler).offset, committable(scheduler).metadata) == (0, "")
    scheduler.add(P, records(b"a", b"b", b"c", b"d"), 0)
    tasks = taken(scheduler)
    scheduler.done([tasks[1]], 0)
    scheduler.done([tasks[3]], 0)
    at = committable(scheduler)
    assert (at.offset, at.leader_epoch) == (0, 3)
    assert decode(0, at.metadata) == [(1, 2), (3, 4)]
    scheduler.done([tasks[0]], 0)
    assert decode(2, committable(scheduler).metadata) == [(3, 4)]
    scheduler.done([tasks[2]], 0)
    assert (committable(scheduler).offset, committable(scheduler).metadata) == (4, "")


def test_after_a_restart_what_was_done_is_skipped_and_stays_done() -> None:
    scheduler = Scheduler("none", Limits())
    assigned(scheduler, done=[(1, 2), (3, 6)])
    scheduler.add(P, records(b"a", b"b", b"c", b"d"), 0)
    assert (scheduler.total, scheduler.already_done) == (2, 2)
    at = committable(scheduler)
    assert (at.offset, decode(0, at.metadata)) == (0, [(1, 2), (3, 6)])
    for task in taken(scheduler):
        scheduler.done([task], 0)
    at = committable(scheduler)
    assert (at.offset, at.metadata) == (6, "")


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=4),
    st.none() | st.integers(0, 80),
)
def test_records_that_are_given_together_count_as_if_each_was_given_alone(
    pieces: list[tuple[int, int]], skips: list[tuple[int, int]], position: int | None
) -> None:
    """A piece may begin below the highest one that was read: its records were read before."""
    runs: list[Run] = []
    for gap, length in skips:
        first = gap + (runs[-1][1] if runs else 0)
        runs.append((first, first + length))
    together, alone = Frontier(runs, position), Frontier(runs, position)
    for epoch, (first, count) in enumerate(pieces):
        piece = [
            Record("orders", 0, offset, leader_epoch=epoch) for offset in range(first, first + 2 * count, 2)
        ]
        needed = [each for each in piece if alone.give(each.offset, each.leader_epoch)]
        assert list(together.give_all(piece)) == needed
        for frontier in (together, alone):
            for each in needed[1::2]:
                frontier.done(each.offset)
        assert (together.offset, together.position, together.epoch, together.window, together.metadata()) == (
            alone.offset,
            alone.position,
            alone.epoch,
            alone.window,
            alone.metadata(),
        )


def test_records_that_need_no_work_move_the_frontier() -> None:
    frontier = Frontier()
    offsets = [frontier.offset]
    frontier.passed(7, 1)
    offsets.append(frontier.offset)
    frontier.give(9, 1)
    frontier.passed(12, 2)
    offsets.append(frontier.offset)
    frontier.done(9)
    offsets.append(frontier.offset)
    assert offsets == [None, 7, 9, 12]
    assert frontier.epoch == 2


@pytest.mark.parametrize("done", [2_000, 6_000])
def test_what_was_done_before_and_now_is_one_run_and_all_of_it_is_held(done: int) -> None:
    """With transactions a commit waits for metadata that holds all."""
    frontier = Frontier([(done, done + 5)])
    for offset in range(done):
        frontier.give(offset, None)
    for offset in range(1, done, 2):
        frontier.done(offset)
    assert list(frontier.runs())[-1] == (done - 1, done + 5)
    metadata = frontier.metadata()
    assert metadata.startswith("kadence-work:1:" if done < 3_000 else "kadence-work:2:")
    assert frontier.holds_all(metadata)
    assert not frontier.holds_all(frontier.metadata(200))


@given(
    st.integers(0, 2**62),
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**40)), max_size=40),
    st.integers(0, 300),
)
def test_metadata_says_what_was_done_and_leaves_out_what_does_not_fit(
    offset: int, steps: list[tuple[int, int]], limit: int
) -> None:
    # The offset itself is not done.
    runs, at = [], offset + 1
    for gap, length in steps:
        runs.append((at + gap, at + gap + length))
        at += gap + length
    assert decode(offset, encode(offset, runs, 10_000)) == runs
    text = encode(offset, runs, limit)
    assert len(text) <= limit
    found = decode(offset, text)
    end = found[-1][1] if found else offset
    # Nothing is left out below what it says, and nothing is in it that is not done.
    assert _joined(found) == _joined((first, min(last, end)) for first, last in runs if first < end)


def _joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs that touch each other are one."""
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


@pytest.mark.parametrize(("chance", "mark"), [(0.5, "kadence-work:2:"), (0.999, "kadence-work:1:")])
def test_metadata_says_all_that_is_done_among_20_000_records(chance: float, mark: str) -> None:
    """All of one partition, with records that wait for their keys everywhere."""
    chances = random.Random(7)
    done = [offset for offset in range(101, 20_100) if chances.random() < chance]
    runs = _joined((offset, offset + 1) for offset in done)
    text = encode(100, runs)
    assert text.startswith(mark)
    assert len(text) <= METADATA_BYTES
    assert decode(100, text) == runs


@given(st.text(max_size=60), st.integers(0, 100))
def test_metadata_of_others_is_ignored(text: str, offset: int) -> None:
    assert decode(offset, text) == []
    assert decode(offset, "kadence-work:1:" + text) == []
    assert decode(offset, "kadence-work:2:" + text) == []


@pytest.mark.parametrize(
    "runs", [[(6, 9)], [(offset, offset + 1) for offset in range(6, 6_000, 2)]], ids=["runs", "bits"]
)
@pytest.mark.parametrize("place", range(15, 23))
def test_damaged_metadata_is_ignored(runs: list[tuple[int, int]], place: int) -> None:
    text = encode(5, runs)
    assert decode(5, text) == runs
    assert decode(6, text) == [], "it is of another offset"
    changed = "A" if text[place] != "A" else "B"
    assert decode(5, text[:place] + changed + text[place + 1 :]) == []
    assert decode(5, text[:place]) == []


def said(offset: int, body: bytes, mark: str = "kadence-work:1:") -> str:
    """Metadata with a right mark and a right checksum."""
    check = binascii.crc32(body, binascii.crc32(offset.to_bytes(8, "big")))
    return mark + b64encode(check.to_bytes(4, "big") + body).decode()


@pytest.mark.parametrize(
    "body",
    [
        b"\x80",
        b"\x01",
        b"\x01\x01\x02",
        b"\x01\x01\x80",
        b"\x81" * 10 + b"\x01\x01",
        b"\x01" + b"\x81" * 4_000,
        b"\x01" + b"\xff" * 9 + b"\x01",
        b"\x00\x05",
    ],
    ids=["open", "half", "odd", "open later", "11 bytes", "long", "past all offsets", "the offset itself"],
)
def test_metadata_that_cannot_be_read_whole_says_nothing(body: bytes) -> None:
    assert decode(5, said(5, b"\x01\x01")) == [(6, 7)]
    assert decode(5, said(5, body)) == []


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_an_offset_that_is_none_says_nothing(offset: int) -> None:
    assert decode(offset, said(0, b"\x01\x01")) == []


def test_bits_past_all_offsets_say_nothing() -> None:
    offset = 2**63 - 3
    assert decode(offset, said(offset, b"\x06", "kadence-work:2:")) == []
    assert decode(offset, said(offset, b"\x02", "kadence-work:2:")) == [(offset + 1, offset + 2)]


@given(st.integers(0, 2**63 - 1), st.binary(max_size=40), st.sampled_from("12"))
def test_metadata_with_a_right_checksum_is_read_or_says_nothing(offset: int, body: bytes, kind: str) -> None:
    runs = decode(offset, said(offset, body, f"kadence-work:{kind}:"))
    at = offset
    for start, end in runs:
        assert offset < start
        assert at <= start <= end < 2**63
        at = end


class Walked(list[Any]):
    """Counts how often somebody has gone through it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_a_revocation_of_many_partitions_is_one_walk(order: Order) -> None:
    """Records that wait for another attempt stay where they are, and so do those of other partitions."""
    partitions = [TopicPartition("orders", n) for n in range(100)]
    scheduler = Scheduler(order, Limits())
    for each in partitions:
        scheduler.assign(each)
        scheduler.add(each, records(b"a", b"b", b"c", partition=each), 0)
    for task in taken(scheduler):
        if task.record.key != b"c":
            scheduler.again(task, 1_000, 0)
    late = scheduler._late = Walked(scheduler._late)
    running = len(scheduler.running)
    assert running == {"key": 100, "partition": 0, "none": 100}[order]
    scheduler.revoke(partitions[:99])
    assert late.walks <= 1
    assert scheduler.total == 3 + 99 * (order != "partition")
    for task in list(scheduler.running):
        scheduler.done([task], 0)
    assert {task.record.partition for task in taken(scheduler, 1_000)} == {99}


# ---------------------------------------------------------------- back-pressure, H4


def test_a_partition_beyond_its_share_is_paused_and_resumed_an_eighth_below() -> None:
    scheduler = Scheduler("none", Limits(records=100))
    for partition in (P, Q, TopicPartition("orders", 2), TopicPartition("orders", 3)):
        scheduler.assign(partition)
    scheduler.add(P, [record(n) for n in range(50)], 0)
    assert scheduler.pauses() == ([P], [])
    assert scheduler.pauses() == ([], [])
    tasks = taken(scheduler)
    looks = []
    for task in tasks[:7]:
        scheduler.done([task], 0)
        looks.append((scheduler.wants_look, scheduler.pauses()))
    assert looks == [(False, ([], []))] * 6 + [(True, ([], [P]))]


def test_all_are_paused_when_there_is_no_room() -> None:
    scheduler = Scheduler("none", Limits(records=8))
    scheduler.assign(Q)
    scheduler.add(P, [record(n) for n in range(6)], 0)
    assert scheduler.room() == 0
    assert set(scheduler.pauses()[0]) == {P, Q}
    tasks = taken(scheduler)
    scheduler.done([tasks[0]], 0)
    assert scheduler.wants_look
    assert scheduler.room() == 3
    assert scheduler.pauses() == ([], [Q, P])


def test_a_handler_of_a_partition_that_is_gone_holds_up_nothing() -> None:
    scheduler = Scheduler("key", Limits())
    assigned(scheduler)
    scheduler.add(P, records(b"a"), 0)
    [task] = taken(scheduler)
    scheduler.revoke((P,))
    # Its offset is still to be committed.
    assert list(scheduler.stuck(0)) == [task]
    scheduler.forget((P,))
    assert list(scheduler.running) == [task]
    assert list(scheduler.stuck(0)) == []


def test_a_record_that_began_later_is_not_stuck() -> None:
    scheduler = Scheduler("key", Limits())
    for at, partition in enumerate((P, Q)):
        assigned(scheduler, partition)
        scheduler.add(partition, records(b"a", partition=partition), 0)
        taken(scheduler, at * 1_000)
    assert [[task.work.partition for task in scheduler.stuck(until)] for until in (-1, 0, 999, 1_000)] == [
        [],
        [P],
        [P],
        [P, Q],
    ]


def test_a_window_above_a_stuck_record_is_bounded() -> None:
    scheduler = Scheduler("none", Limits(records=10, window=20))
    assigned(scheduler)
    at = 0
    stuck: Task | None = None
    while not scheduler.pauses()[0]:
        scheduler.add(P, [record(at)], 0)
        at += 1
        [task] = taken(scheduler)
        if stuck is None:
            stuck = task
        else:
            scheduler.done([task], 0)
    assert at == 20
    assert list(scheduler.stuck(0)) == [stuck]
    assert stuck is not None
    scheduler.done([stuck], 0)
    assert committable(scheduler).offset == 20
    assert scheduler.pauses() == ([], [P])


def test_more_is_read_only_while_records_wait_for_others_of_their_keys_and_workers_for_records() -> None:
    scheduler = Scheduler("key", Limits(records=100, near=20, enough=2))
    for partition in (P, Q):
        scheduler.assign(partition)
    scheduler.add(P, records(*[b"hot"] * 12, b"a", b"b"), 0)
    scheduler.add(Q, records(b"c", partition=Q), 0)
    # Four can be worked on: the workers need no others.
    assert scheduler.pauses() == ([P, Q], [])
    assert scheduler.room() == 0
    hot, *others = taken(scheduler)
    assert offsets(others) == [12, 13, 0]
    # That is told of once, and not at each record.
    assert scheduler.wants_look
    assert scheduler.pauses() == ([], [P, Q])
    assert scheduler.room() == 85
    # A partition's share is of the larger bound now.
    scheduler.add(P, records(*[b"hot"] * 58, start=14), 0)
    scheduler.add(Q, records(b"d", b"e", b"f", b"g", b"h", start=1, partition=Q), 0)
    assert (scheduler.room(), scheduler.pauses()) == (0, ([P, Q], []))
    for task in [*others, *taken(scheduler)]:
        scheduler.done([task], 0)
    scheduler.done([hot], 0)
    while scheduler.total >= 15:
        scheduler.done([taken(scheduler)[0]], 0)
    scheduler.pauses()
    assert scheduler.room() == 20 - 14


def test_by_partition_nothing_more_is_read() -> None:
    scheduler = Scheduler("partition", Limits(records=100, near=20, enough=2))
    scheduler.assign(P)
    scheduler.add(P, records(*[b"hot"] * 20), 0)
    taken(scheduler)
    assert scheduler.pauses() == ([P], [])
    assert scheduler.room() == 0
    # So what waits here is what pauses the partition, and the log says so.
    assert scheduler.is_at_most


def test_nothing_more_is_read_while_all_records_fail() -> None:
    scheduler = Scheduler("key", Limits(records=100, near=20, enough=2))
    scheduler.assign(P)
    scheduler.add(P, records(*(b"%d" % n for n in range(20))), 0)
    for task in taken(scheduler):
        scheduler.again(task, 1000, 0)
    scheduler.pauses()
    assert scheduler.room() == 0


@pytest.mark.parametrize("order", ["key", "none"])
def test_records_that_wait_for_their_next_attempt_hold_up_no_others_while_most_do_not_fail(
    order: Order,
) -> None:
    scheduler = Scheduler(order, Limits(records=100, near=20, enough=2))
    scheduler.assign(P)
    for turn in range(4):
        scheduler.add(P, records(*(b"%d" % n for n in range(turn * 10, turn * 10 + 10)), start=turn * 10), 0)
        for task in taken(scheduler):
            if task.record.offset % 10 < 4:
                scheduler.again(task, 1000, 0)
            else:
                scheduler.done([task], 0)
    # 16 are three quarters of 20, and none of them can be worked on.
    assert (scheduler.total, scheduler.has_ready) == (16, False)
    assert scheduler.pauses() == ([], [])
    assert scheduler.room() == 100 - 16


@pytest.mark.parametrize("order", ["key", "partition", "none"])
@pytest.mark.parametrize("most", [20, 100])
def test_records_of_the_retry_topic_that_are_not_due_leave_room_for_others(order: Order, most: int) -> None:
    again = [TopicPartition("again", n) for n in range(2)]
    scheduler = Scheduler(
        order,
        Limits(records=most, near=20, enough=2),
        lambda record, now: Earlier(record, *((1, 1000) if record.topic == "again" else (0, 0))),
        "again",
    )
    for partition in (P, *again):
        scheduler.assign(partition)
    offset = 0
    while readable := [p for p in again if not scheduler.partitions[p].is_paused]:
        # One poll brings so many, of one partition.
        count = scheduler.room()
        assert count > 0
        keys = [b"%d" % n for n in range(offset, offset + count)]
        scheduler.add(readable[0], records(*keys, start=offset, partition=readable[0]), 0)
        offset += count
        scheduler.pauses()
    assert not scheduler.has_ready
    assert not scheduler.partitions[P].is_paused
    assert scheduler.room() >= 2


def test_a_limit_of_one_byte_lets_one_record_be_read() -> None:
    scheduler = Scheduler("key", Limits(nbytes=1))
    scheduler.assign(P)
    assert scheduler.pauses() == ([], [])
    assert scheduler.room() > 0


# ---------------------------------------------------------------- random schedules


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_schedule_ends_each_record_once_and_in_the_order_of_its_key(seed: int) -> None:  # noqa: C901, PLR0912, PLR0915 - one history
    """Members come and go, records fail, members crash: what is done is never skipped nor begun while its key runs."""
    chance = random.Random(seed)
    log = {
        p: [chance.choice((b"a", b"b", b"c", None)) for _ in range(chance.randrange(1, 30))] for p in (P, Q)
    }
    committed: dict[TopicPartition, tuple[int, str]] = {}
    done: dict[tuple[TopicPartition, int], int] = defaultdict(int)
    order: Order = chance.choice(("key", "partition", "none"))
    batch = chance.choice((1, 4))
    limits = Limits(records=8, window=10, near=chance.choice((2, 4, 8)), enough=chance.choice((1, 3)))
    scheduler = Scheduler(order, limits)
    position: dict[TopicPartition, int] = {}
    running: list[Task] = []
    repeats = 0
    now = 0

    def assign(partition: TopicPartition) -> None:
        offset, metadata = committed.get(partition, (0, ""))
        assigned(scheduler, partition, decode(offset, metadata), offset)
        position[partition] = offset

    def commit(partitions: Iterable[TopicPartition]) -> None:
        for partition, read in scheduler.frontiers(partitions).items():
            committed[partition] = (read.at.offset, read.at.metadata)

    for p in (P, Q):
        assign(p)
    for _ in range(5000):
        if all(committed.get(p, (0, ""))[0] == len(log[p]) for p in (P, Q)) and not running:
            break
        now += chance.randrange(20)
        step = chance.random()
        if step < 0.3:
            scheduler.pauses()
            for p in tuple(position):
                work = scheduler.partitions[p]
                count = min(scheduler.room(), chance.randrange(1, 5))
                if not work.is_paused and count:
                    more = records(*log[p][position[p] : position[p] + count], start=position[p], partition=p)
                    scheduler.add(p, more, now)
                    position[p] += len(more)
        elif step < 0.6:
            for task in scheduler.take_batch(batch, now):
                key = task.record.key
                if order == "key" and batch == 1:
                    assert all(
                        (t.work.partition, t.record.key) != (task.work.partition, key) for t in running
                    )
                running.append(task)
        elif step < 0.9 and running:
            task = running.pop(chance.randrange(len(running)))
            if chance.random() < 0.3:
                scheduler.again(task, now + chance.randrange(50), now)
            else:
                done[task.work.partition, task.record.offset] += 1
                scheduler.done([task], now)
        elif step < 0.95:
            commit(tuple(position))
        elif step < 0.98 and position:
            going = [chance.choice(list(position))]
            scheduler.revoke(going)
            if chance.random() < 0.7:
                commit(going)
            scheduler.forget(going)
            for p in going:
                del position[p]
        elif len(position) < 2:
            p = min({P, Q} - position.keys())
            assign(p)
        elif chance.random() < 0.1:
            # A crash: all that is not committed is done again.
            scheduler = Scheduler(order, limits)
            running.clear()
            repeats += 1
            for p in (P, Q):
                assign(p)
    else:
        pytest.fail("it does not end")
    assert {p: committed[p] for p in (P, Q)} == {p: (len(log[p]), "") for p in (P, Q)}
    assert all(done[p, n] >= 1 for p in (P, Q) for n in range(len(log[p])))
    assert scheduler.total == 0
    assert scheduler.nbytes == 0
