"""Records that the application has before the network thread: both come to the same, and the session goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.worlds.cluster import TOPIC_ID
from tests.worlds.fetching import P0, P1, World, asked, batch

from kadence.connection.request import Part
from kadence.consumer.client_state import Signal
from kadence.consumer.shared_state import CompletedFetch, SessionFollow
from kadence.errors import OffsetOutOfRangeError
from kadence.types import TopicPartition


@dataclass
class Arrival:
    follow: SessionFollow
    number: int
    parts: list[Part]
    fetches: list[CompletedFetch] | None = None


class Arrivals:
    """What came by itself, put here by hand."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.waiting: deque[Arrival] = deque()

    def flag(self) -> Signal:
        return self.signal

    def has_some(self) -> bool:
        return bool(self.waiting)

    def take(self, into: deque[CompletedFetch], most: int = 1 << 60) -> None:
        while self.waiting and most:
            arrival = self.waiting.popleft()
            arrival.fetches, arrival.follow.asked = arrival.follow.read(arrival.parts)
            into.extend(arrival.fetches or ())
            most -= 1


def brought(offset: int, count: int = 2, number: int = 0) -> list[Part]:
    return [(TOPIC_ID, number, 100, 90, 1, batch(count, offset))]


class Following:
    """A fetch that may go on by itself: the session is open, and nothing has come yet."""

    def __init__(self, *partitions: TopicPartition, **settings: Any) -> None:
        self.arrivals = Arrivals()
        self.world = World(*partitions, arrivals=self.arrivals, **settings)
        (request,) = self.world.poll(0)
        self.world.reply(request, 500, {})
        (self.request,) = self.world.poll(500)
        assert self.request.repeat is not None
        self.repeat: Any = self.request.repeat
        self.follow: Any = self.repeat.follow
        self._uncounted: list[Arrival] = []

    def arrives(self, *answers: tuple[int, list[Part]]) -> None:
        """Each the number of an answer, and what it brought."""
        for number, parts in answers:
            arrival = Arrival(self.follow, number, parts)
            self.arrivals.waiting.append(arrival)
            self._uncounted.append(arrival)

    def take(self, most: int = 1 << 60) -> list[CompletedFetch]:
        """The application takes what is new."""
        taken = self.world.shared_state.completed_fetches
        self.arrivals.take(taken, most)
        found = list(taken)
        taken.clear()
        return found

    def told(self, count: int, now: int = 600) -> bool:
        """The network thread counts what came with so many answers."""
        arrivals, self._uncounted = self._uncounted, []
        told: bool = self.repeat.told(now, count, now, arrivals)
        return told


@pytest.mark.parametrize("is_taken_first", [True, False])
def test_what_the_application_takes_is_what_the_network_thread_counts(is_taken_first: bool) -> None:
    following = Following(P0, P1)
    world = following.world
    assert following.follow.room() > 0
    following.arrives((1, brought(0)), (3, brought(2, 3)))
    shared_partition = world.state(P0).shared_partition
    taken = following.take() if is_taken_first else []
    if is_taken_first:
        assert (shared_partition.high_watermark, shared_partition.last_stable_offset) == (100, 90)
    assert following.told(3)
    taken += following.take()
    fetched, again = taken
    assert (fetched.offset, fetched.next_offset, bytes(fetched.data)) == (0, 2, batch(2, 0))
    assert (again.offset, again.next_offset, bytes(again.data)) == (2, 5, batch(3, 2))
    assert fetched.shared_partition is shared_partition
    assert (shared_partition.high_watermark, shared_partition.last_stable_offset) == (100, 90)

    state = world.state(P0)
    assert state.offset == 5
    assert state.fetched_bytes == len(fetched.data) + len(again.data)
    assert state.awaits_fetch
    assert world.shared_state.attention.up
    assert following.repeat.allowed, "nothing else has changed"
    assert world.poll(600) == []
    assert world.shared_state.copied_bytes > 0
    world.drain(fetched)
    world.drain(again)
    assert world.shared_state.copied_bytes == 0

    world.reply(following.request, 700, {P0: batch(2, offset=5)})
    assert [item.offset for item in world.shared_state.completed_fetches] == [5]
    (request,) = world.poll(700)
    assert asked(request) == {0: 7}
    assert request.message.session_epoch == 5


def test_an_answer_that_comes_later_stands_behind_what_arrived() -> None:
    following = Following(P0)
    following.arrives((1, brought(0)))
    assert following.told(1)
    following.world.reply(following.request, 700, {P0: batch(2, offset=2)})
    assert [item.offset for item in following.take()] == [0, 2]


def test_records_that_were_not_asked_for_are_neither_taken_nor_counted() -> None:
    following = Following(P0)
    following.arrives((1, brought(0)), (2, brought(0)))
    assert [item.offset for item in following.take()] == [0]
    assert not following.told(2)
    assert following.world.state(P0).offset == 2


def test_many_answers_are_counted_at_once_and_each_is_measured() -> None:
    following = Following(P0, P1)
    world = following.world
    both = brought(2, 3) + brought(0, 1, number=1)
    quiet: list[Part] = [(TOPIC_ID, 0, 200, 190, 4, None)]
    following.arrives((1, brought(0)), (2, both), (4, brought(5, 1)), (5, quiet))
    assert following.told(5)
    first, second = world.state(P0), world.state(P1)
    assert (first.offset, second.offset) == (6, 1)
    sizes = [len(batch(2, 0)), len(batch(3, 2)) + len(batch(1, 0)), len(batch(1, 5))]
    assert first.fetched_bytes + second.fetched_bytes == sum(sizes)
    assert (first.shared_partition.high_watermark, first.shared_partition.log_start) == (200, 4)
    assert first.is_idle, "its fifth answer brought nothing"
    assert second.is_idle
    fetches = world.shared_state.measures.fetches
    assert (fetches.bytes.count, fetches.bytes.total, fetches.bytes.high) == (3, sum(sizes), max(sizes))
    assert (fetches.records.count, fetches.records.total, fetches.records.high) == (3, 7, 4)
    of_topic = fetches.topics[P0.topic]
    assert (of_topic.records.count, of_topic.records.total, of_topic.records.low) == (3, 7, 1)
    world.reply(following.request, 700, {})
    (request,) = world.poll(700)
    assert request.message.session_epoch == 7


def test_what_fits_is_counted_and_nothing_of_what_does_not() -> None:
    following = Following(P0, P1)
    # Of the second answer partition 0 would fit.
    second = [*brought(2), (TOPIC_ID, 1, 100, 90, 1, batch(2, 0)[:-1])]
    following.arrives((1, brought(0)), (2, second), (3, brought(2)))
    assert not following.told(3)
    first, other = following.world.state(P0), following.world.state(P1)
    assert (first.offset, other.offset) == (2, 0)
    assert first.fetched_bytes == len(batch(2, 0))
    assert [item.offset for item in following.take()] == [0]


WHOLE = batch(2, 2)
DAMAGED = {
    "cut off": WHOLE[:-1],
    "hardly begun": WHOLE[:20],
    "cut off behind a whole one": WHOLE + WHOLE[:30],
    "no batch": b"\xff" * 100,
    "an older format": WHOLE[:16] + b"\1" + WHOLE[17:],
    "an endless batch": WHOLE[:8] + b"\x7f\xff\xff\xff" + WHOLE[12:],
    "a batch of no length": WHOLE[:8] + bytes(4) + WHOLE[12:],
    "an offset below 0": b"\xff" * 8 + WHOLE[8:],
    "the last offset": b"\x7f" + b"\xff" * 7 + WHOLE[8:],
    "old records": batch(2, 0),
}


@pytest.mark.parametrize("records", DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_batch_behind_the_last_is_neither_taken_nor_counted(records: bytes) -> None:
    following = Following(P0, P1)
    parts: list[Part] = [(TOPIC_ID, 1, 100, 90, 1, batch(1)), (TOPIC_ID, 0, 100, 90, 1, records)]
    following.arrives((1, brought(0)), (2, parts))
    assert not following.told(2)
    assert (following.world.state(P0).offset, following.world.state(P1).offset) == (2, 0)
    assert [item.next_offset for item in following.take()] == [2]


def test_a_partition_twice_in_an_answer_does_not_fit() -> None:
    following = Following(P0)
    following.arrives((1, brought(0) + brought(0)))
    assert not following.told(1)
    assert following.world.state(P0).offset == 0
    assert following.take() == []


def test_of_a_partition_that_was_given_up_only_records_do_not_fit() -> None:
    following = Following(P0, P1)
    first, other = following.world.state(P0), following.world.state(P1)
    other.offset = 77
    nothing: list[Part] = [(TOPIC_ID, 1, 100, 90, 1, None)]
    following.arrives((1, brought(0) + nothing))
    assert following.told(1)
    following.arrives((2, brought(0, number=1)))
    assert not following.told(2)
    assert (first.offset, other.offset) == (2, 77)


def moved(world: World) -> None:
    """A seek."""
    world.subscription.position(P1, 77, None)


def given_up(world: World) -> None:
    world.subscription.assign([P0])


def awaits_reset(world: World) -> None:
    world.subscription.await_reset(P1, -2)


def lost(world: World) -> None:
    world.subscription.lose(P1, OffsetOutOfRangeError("gone"))


def has_another_leader_epoch(world: World) -> None:
    world.state(P1).checked = 9


def nothing_changes(world: World) -> None:
    """What does not fit is what came."""


OLD = batch(2, 0)
MISFITS: dict[str, tuple[Callable[[World], None], bytes]] = {
    "moved": (moved, batch(2, 2)),
    "given up": (given_up, batch(2, 2)),
    "awaits a reset": (awaits_reset, batch(2, 2)),
    "lost": (lost, batch(2, 2)),
    "another leader epoch": (has_another_leader_epoch, batch(2, 2)),
    "old records": (nothing_changes, OLD),
    "cut off": (nothing_changes, batch(2, 2)[:-1]),
    "no batch": (nothing_changes, b"\xff" * 100),
}


@pytest.mark.parametrize("taken", range(4), ids="{} taken".format)
@pytest.mark.parametrize(("happens", "records"), MISFITS.values(), ids=MISFITS)
def test_whatever_does_not_fit_no_record_is_passed_over(
    happens: Callable[[World], None], records: bytes, taken: int
) -> None:
    """Of three answers the second does not fit, because of partition 1: partition 0 loses nothing of any.

    The application has taken so many before they are counted, as far as they fit to what it knows.
    """
    following = Following(P0, P1)
    world = following.world
    second: list[Part] = [*brought(2), (TOPIC_ID, 1, 100, 90, 1, records)]
    following.arrives((1, brought(0) + brought(0, number=1)))
    fetches = following.take(min(taken, 1))
    assert following.told(1)
    following.arrives((2, second), (3, brought(4) + brought(4, number=1)))
    fetches += following.take(max(taken - 1, 0))
    happens(world)
    assert not following.told(2)
    fetches += following.take()
    behind = 0
    for each in fetches:
        if each.shared_partition.partition == P0:
            assert each.offset <= behind
            behind = each.next_offset
    state = world.state(P0)
    assert state.buffered_bytes == sum(
        len(each.data) for each in fetches if each.shared_partition is state.shared_partition
    )
    world.now = 700
    world.lose(following.request)
    (offset,) = [asked(each)[0] for each in world.poll(2_000) if 0 in asked(each)]
    assert 2 <= offset <= behind, "the next fetch begins where the application is, or before that"
    for each in fetches:
        world.drain(each)
    assert state.buffered_bytes == 0
    assert world.shared_state.copied_bytes == 0
    for state in world.subscription.partitions.values():
        assert state.fetched_bytes == state.shared_partition.drained_bytes, "all is counted once"


def test_a_partition_that_is_idle_again_is_known_to_be() -> None:
    following = Following(P0)
    following.arrives((1, brought(0)))
    assert following.told(1)
    assert not following.world.state(P0).is_idle
    assert following.told(1, 1_100)
    assert following.world.state(P0).is_idle


def test_enough_is_enough_and_the_session_stops_going_on_by_itself() -> None:
    following = Following(P0, max_partition_fetch_bytes=100)
    assert following.follow.room() > 0
    following.arrives((1, brought(0)), (2, brought(2)))
    assert following.told(2)
    assert following.follow.room() == 0


@pytest.mark.parametrize("why", ["no poller", "an event loop", "much at a time"])
def test_it_goes_on_by_itself_only_where_that_is_right(why: str) -> None:
    world = World(P0, arrivals=None if why == "no poller" else Arrivals())
    if why == "an event loop":
        world.shared_state.signal.on_set = lambda: None
    (request,) = world.poll(0)
    size = 70_000 if why == "much at a time" else 1
    world.reply(request, 500, {P0: batch(2, size=size)})
    (request,) = world.poll(500)
    assert request.repeat is not None
    assert request.repeat.follow is None
