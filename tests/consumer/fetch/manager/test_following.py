"""Records that the application has before the network thread: both come to the same, and the session goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.worlds.cluster import TOPIC_ID
from tests.worlds.fetching import P0, P1, World, asked, batch

from kadence.connection.request import Part, Request
from kadence.consumer.client_state import Signal
from kadence.consumer.fetch.manager.session import SessionFollow
from kadence.consumer.shared_state import CompletedFetch
from kadence.errors import OffsetOutOfRangeError
from kadence.records import scan


class Arrivals:
    """What came by itself, put here by hand."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.waiting: list[CompletedFetch] = []

    def flag(self) -> Signal:
        return self.signal

    def has_some(self) -> bool:
        return bool(self.waiting)

    def take(self, into: deque[CompletedFetch]) -> None:
        into.extend(self.waiting)
        self.waiting.clear()


@dataclass
class Arrival:
    number: int
    parts: list[Part]


def brought(offset: int, count: int = 2, number: int = 0) -> list[Part]:
    return [(TOPIC_ID, number, 100, 90, 1, batch(count, offset))]


def following(world: World) -> tuple[Request, SessionFollow]:
    """A fetch that may go on by itself: the session is open, and nothing has come yet."""
    (request,) = world.poll(0)
    world.reply(request, 500, {})
    (request,) = world.poll(500)
    assert request.repeat is not None
    follow: Any = request.repeat.follow
    return request, follow


def read(follow: SessionFollow, parts: list[Part]) -> list[CompletedFetch]:
    """As `SharedState.arrivals` does it."""
    found = follow.read(parts)
    assert found is not None
    fetches, follow.asked = found
    return fetches


def test_what_the_application_takes_is_what_the_network_thread_counts() -> None:
    world = World(P0, P1, arrivals=Arrivals())
    request, follow = following(world)
    repeat: Any = request.repeat
    assert follow.room() > 0
    first, second = brought(0), brought(2, 3)
    (fetched,) = read(follow, first)
    assert (fetched.offset, bytes(fetched.data)) == (0, batch(2, 0))
    (again,) = read(follow, second)
    assert (again.offset, bytes(again.data)) == (2, batch(3, 2))
    shared_partition = world.state(P0).shared_partition
    assert fetched.shared_partition is shared_partition
    assert (shared_partition.high_watermark, shared_partition.last_stable_offset) == (100, 90)

    assert repeat.passed_on(600, [Arrival(1, first), Arrival(3, second)]) is None
    repeat.told(3, 600)
    state = world.state(P0)
    assert state.offset == 5
    assert state.fetched_bytes == len(fetched.data) + len(again.data)
    assert state.awaits_fetch
    assert world.shared_state.attention.up
    assert repeat.allowed, "nothing else has changed"
    assert world.poll(600) == []
    assert world.shared_state.copied_bytes > 0
    world.drain(fetched)
    world.drain(again)
    assert world.shared_state.copied_bytes == 0

    world.reply(request, 700, {P0: batch(2, offset=5)})
    assert [item.offset for item in world.shared_state.completed_fetches] == [5]
    (request,) = world.poll(700)
    assert asked(request) == {0: 7}
    assert request.message.session_epoch == 5


def test_an_answer_that_comes_later_stands_behind_what_arrived() -> None:
    arrivals = Arrivals()
    world = World(P0, arrivals=arrivals)
    request, follow = following(world)
    repeat: Any = request.repeat
    parts = brought(0)
    arrivals.waiting += read(follow, parts)
    assert repeat.passed_on(600, [Arrival(1, parts)]) is None
    repeat.told(1, 600)
    world.reply(request, 700, {P0: batch(2, offset=2)})
    assert [item.offset for item in world.shared_state.completed_fetches] == [0, 2]


def test_records_that_were_not_asked_for_are_neither_taken_nor_counted() -> None:
    world = World(P0, arrivals=Arrivals())
    request, follow = following(world)
    repeat: Any = request.repeat
    parts = brought(0)
    read(follow, parts)
    assert follow.read(parts) is None
    first, second = Arrival(1, parts), Arrival(2, parts)
    assert repeat.passed_on(600, [first, second]) is second


def test_many_answers_are_counted_at_once_and_each_is_measured() -> None:
    world = World(P0, P1, arrivals=Arrivals())
    request, _ = following(world)
    repeat: Any = request.repeat
    both = brought(2, 3) + brought(0, 1, number=1)
    quiet: list[Part] = [(TOPIC_ID, 0, 200, 190, 4, None)]
    arrivals = [Arrival(1, brought(0)), Arrival(2, both), Arrival(4, brought(5, 1)), Arrival(5, quiet)]
    assert repeat.passed_on(600, arrivals) is None
    repeat.told(5, 600)
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
    world.reply(request, 700, {})
    (request,) = world.poll(700)
    assert request.message.session_epoch == 7


def test_what_fits_is_counted_and_nothing_of_what_does_not() -> None:
    world = World(P0, P1, arrivals=Arrivals())
    request, _ = following(world)
    repeat: Any = request.repeat
    # Of the second answer partition 0 would fit.
    second = [*brought(2), (TOPIC_ID, 1, 100, 90, 1, batch(2, 0)[:-1])]
    misfit = Arrival(2, second)
    assert repeat.passed_on(600, [Arrival(1, brought(0)), misfit, Arrival(3, brought(2))]) is misfit
    assert (world.state(P0).offset, world.state(P1).offset) == (2, 0)
    assert world.state(P0).fetched_bytes == len(batch(2, 0))


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
    world = World(P0, P1, arrivals=Arrivals())
    request, follow = following(world)
    repeat: Any = request.repeat
    read(follow, brought(0))
    parts: list[Part] = [(TOPIC_ID, 1, 100, 90, 1, batch(1)), (TOPIC_ID, 0, 100, 90, 1, records)]
    assert follow.read(parts) is None
    misfit = Arrival(2, parts)
    assert repeat.passed_on(600, [Arrival(1, brought(0)), misfit]) is misfit
    assert (world.state(P0).offset, world.state(P1).offset) == (2, 0)


def test_a_partition_twice_in_an_answer_does_not_fit() -> None:
    world = World(P0, arrivals=Arrivals())
    request, _ = following(world)
    repeat: Any = request.repeat
    misfit = Arrival(1, brought(0) + brought(2))
    assert repeat.passed_on(600, [misfit]) is misfit
    assert world.state(P0).offset == 0


def test_of_a_partition_that_was_given_up_only_records_do_not_fit() -> None:
    world = World(P0, P1, arrivals=Arrivals())
    request, _ = following(world)
    repeat: Any = request.repeat
    world.state(P1).offset = 77
    nothing: list[Part] = [(TOPIC_ID, 1, 100, 90, 1, None)]
    assert repeat.passed_on(600, [Arrival(1, brought(0) + nothing)]) is None
    misfit = Arrival(2, brought(0, number=1))
    assert repeat.passed_on(600, [misfit]) is misfit
    assert (world.state(P0).offset, world.state(P1).offset) == (2, 77)


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
    world = World(P0, P1, arrivals=Arrivals())
    request, follow = following(world)
    repeat: Any = request.repeat
    second: list[Part] = [*brought(2), (TOPIC_ID, 1, 100, 90, 1, records)]
    arrivals = [
        Arrival(1, brought(0) + brought(0, number=1)),
        Arrival(2, second),
        Arrival(3, brought(4) + brought(4, number=1)),
    ]
    waiting = arrivals.copy()
    behind = 0

    def take() -> bool:
        nonlocal behind
        if not waiting or (found := follow.read(waiting[0].parts)) is None:
            return False
        fetches, follow.asked = found
        del waiting[0]
        for each in fetches:
            if each.shared_partition.partition == P0:
                assert each.offset <= behind
                behind, _, _ = scan(each.data, each.offset)
        return True

    for _ in range(taken):
        take()
    assert repeat.passed_on(600, arrivals[:1]) is None
    happens(world)
    assert repeat.passed_on(600, arrivals[1:]) is arrivals[1]
    # As `Arrivals.drop` does it.
    del waiting[1 if arrivals[0] in waiting else 0 :]
    while take():
        pass
    assert waiting == []
    world.now = 700
    world.lose(request)
    (offset,) = [asked(each)[0] for each in world.poll(2_000) if 0 in asked(each)]
    assert offset == 2 <= behind, "the next fetch begins where the application is, or before that"
    assert world.state(P0).buffered_bytes >= 0


def test_a_partition_that_is_idle_again_is_known_to_be() -> None:
    world = World(P0, arrivals=Arrivals())
    request, _ = following(world)
    repeat: Any = request.repeat
    assert repeat.passed_on(600, [Arrival(1, brought(0))]) is None
    repeat.told(1, 600)
    assert not world.state(P0).is_idle
    repeat.told(1, 1_100)
    assert world.state(P0).is_idle


def test_enough_is_enough_and_the_session_stops_going_on_by_itself() -> None:
    world = World(P0, arrivals=Arrivals(), max_partition_fetch_bytes=100)
    request, follow = following(world)
    repeat: Any = request.repeat
    assert follow.room() > 0
    assert repeat.passed_on(600, [Arrival(1, brought(0)), Arrival(2, brought(2))]) is None
    assert follow.room() == 0


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
