"""The books of buffer.memory (A3, KIP-81)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.cluster import config, knowing
from tests.worlds.fetching import P0, P2, World, batch
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import Request
from kadence.consumer.fetch.manager.memory import Memory
from kadence.consumer.shared_state import SharedState
from kadence.types import TopicPartition

MIB = 1 << 20


class Arenas:
    in_use = 0
    slack = 0
    limit = 0


class Books:
    def __init__(self, cap: int) -> None:
        self.arenas = Arenas()
        self.shared_state = SharedState(lambda: None)
        self.memory = Memory(config(buffer_memory=cap), self.arenas, self.shared_state)
        for _ in range(8):
            self.memory.saw(compressed=False)

    def send(self, max_bytes: int) -> Request:
        """A fetch of so much leaves."""
        request = Request(None, 1, 0)
        self.memory.reserve(request, max_bytes)
        return request


def test_what_is_reserved_holds_whatever_size_the_arena_gets() -> None:
    books = Books(32 * MIB)
    total = 0
    while max_bytes := books.memory.admit(MIB, MIB):
        books.send(max_bytes)
        # An arena is up to an eighth larger than what it holds, and what it holds has fields of its own.
        total += max_bytes * 9 // 8 + 16_384
    assert 30 * MIB < total <= 32 * MIB
    assert 0 <= books.arenas.slack < 2 * MIB, "what arenas may waste is what nobody has reserved"


def test_room_comes_back_with_the_answer() -> None:
    books = Books(2 * MIB)
    request = books.send(books.memory.admit(MIB, MIB))
    assert books.memory.admit(MIB, MIB) == 0
    books.memory.ended(request, 0)
    assert books.memory.admit(MIB, MIB) == MIB


@pytest.mark.parametrize("held", ["in_use", "decompressed_bytes", "copied"])
def test_everything_held_counts(held: str) -> None:
    books = Books(4 * MIB)
    holder: Any = {"in_use": books.arenas, "copied": books.shared_state.copies}.get(held, books.shared_state)
    setattr(holder, held, 3 * MIB)
    assert books.memory.held() == 3 * MIB
    books.memory.look()
    assert books.arenas.limit == (4 * MIB if held == "in_use" else MIB), "of the same memory"
    assert books.memory.admit(MIB, MIB) == 0


def test_compressed_data_leave_a_quarter_free_and_more_after_a_larger_batch() -> None:
    books = Books(32 * MIB)
    plain = books.memory.admit(50 * MIB, MIB)
    books.memory.saw(compressed=True)
    packed = books.memory.admit(50 * MIB, MIB)
    assert plain - packed == pytest.approx(8 * MIB * 8 / 9, abs=2)
    books.shared_state.largest_batch = 16 * MIB
    assert packed - books.memory.admit(50 * MIB, MIB) == pytest.approx(8 * MIB * 8 / 9, abs=2)
    for _ in range(8):
        books.memory.saw(compressed=False)
    assert books.memory.admit(50 * MIB, MIB) == plain


def test_an_answer_above_its_reservation_is_counted_and_the_next_ones_leave_room_for_another() -> None:
    books = Books(8 * MIB)
    books.memory.ended(books.send(MIB), 5 * MIB)
    assert books.memory.oversized == 1
    assert books.memory.admit(MIB, MIB) == MIB
    books.memory.ended(books.send(MIB), 0)
    books.arenas.in_use = 4 * MIB
    assert books.memory.admit(MIB, MIB) == 0, "another 5 MiB would not fit beside the 4"
    for _ in range(40):
        books.memory.ended(books.send(0), 1)
    assert books.memory.admit(MIB, MIB) == MIB, "that was long ago"


def test_an_answer_that_arrives_counts_once() -> None:
    books = Books(8 * MIB)
    request = books.send(4 * MIB)
    left = books.memory.admit(8 * MIB, 1)
    assert left < 4 * MIB
    books.arenas.in_use = request.lent_bytes = 3 * MIB
    assert books.memory.admit(8 * MIB, 1) == left, "the rest of the reservation stays until all has come"
    assert books.memory.level(left) >= books.arenas.in_use
    books.memory.ended(request, 3 * MIB)
    assert books.memory.admit(8 * MIB, 1) > left


def test_an_answer_above_its_reservation_takes_nothing_of_what_others_have_reserved() -> None:
    books = Books(8 * MIB)
    request, _ = books.send(MIB), books.send(MIB)
    books.arenas.in_use = request.lent_bytes = 6 * MIB
    assert books.memory.admit(MIB, MIB) == 0


def test_a_slow_answer_does_not_keep_others_from_the_memory_that_is_left() -> None:
    world = World(P0, P2, buffer_memory=4 * MIB, max_partition_fetch_bytes=MIB)
    world.pause(P2)
    (slow,) = world.poll(0)
    world.in_use = slow.lent_bytes = MIB
    world.pause(P2, False)
    (other,) = world.poll(100)
    assert (slow.node_id, other.node_id) == (1, 2)


def test_when_nothing_is_held_one_fetch_is_let_in_whatever_comes() -> None:
    books = Books(MIB)
    max_bytes = books.memory.admit(MIB, MIB)
    assert 0 < max_bytes < MIB
    books.send(max_bytes)
    assert books.memory.admit(MIB, MIB) == 0


def test_more_than_the_cap_is_counted_once_for_each_time() -> None:
    books = Books(MIB)
    for in_use in (0, 2 * MIB, 3 * MIB, 0, 2 * MIB):
        books.arenas.in_use = in_use
        books.memory.look()
    assert (books.memory.exceeded, books.memory.most_held) == (2, 3 * MIB)


def test_an_answer_that_exceeds_the_cap_is_counted_and_a_batch_that_was_decompressed_is_left_to_the_application() -> (
    None
):
    books = Books(MIB)
    books.memory.look()
    books.shared_state.decompressed_bytes = 2 * MIB
    books.memory.look()
    assert (books.memory.exceeded, books.memory.most_held) == (0, 2 * MIB)
    books.shared_state.decompressed_bytes = MIB
    books.memory.look()
    books.arenas.in_use = 1
    books.memory.look()
    assert books.memory.exceeded == 1


def test_a_fetch_that_is_lost_gives_its_room_back() -> None:
    world = World(P0, P2, buffer_memory=1_500_000)
    (request,) = world.poll(0)
    world.reply(request, 5, code=1)
    assert len(world.poll(5)) == 1


def test_paused_bytes_in_the_way_of_others_press_on_the_application() -> None:
    world = World(P0, P2, buffer_memory=8 * MIB)
    first, _ = world.poll(0)
    world.reply(first, 5, {P0: batch(10)})
    world.pause(P0)
    world.in_use = 8 * MIB
    world.subscription.position(P2, 7, None)
    world.poll(6)
    assert world.shared_state.pressed
    world.shared_state.pressed = False
    world.pause(P0, False)
    world.poll(7)
    assert not world.shared_state.pressed, "what is not paused will be read: nothing to do but wait"


def spread(brokers: int, partitions: int, **settings: Any) -> World:
    """So many partitions at each of so many brokers."""
    leaders = {TopicPartition("t", n): n % brokers for n in range(brokers * partitions)}
    return World(*leaders, metadata=knowing(leaders, BackgroundEvents()), **settings)


def test_a3_a_long_poll_of_many_partitions_does_not_keep_other_brokers_waiting_for_memory() -> None:
    """Four brokers with sixty partitions each would like four times 50 MiB of 128."""
    world = spread(4, 60)
    requests = world.poll(0)
    assert [request.node_id for request in requests] == [0, 1, 2, 3]
    assert sum(request.message.max_bytes for request in requests) <= 96 * MIB
    assert all(request.message.max_bytes > 20 * MIB for request in requests)
    assert spread(1, 60).poll(0)[0].message.max_bytes == 52_428_800


def test_a3_with_more_brokers_than_memory_has_room_for_each_gets_its_turn() -> None:
    world = spread(40, 1, buffer_memory=8 * MIB, max_partition_fetch_bytes=MIB)
    served: set[int] = set()
    now = 0
    for _ in range(10):
        requests = world.poll(now)
        assert requests
        served.update(request.node_id for request in requests)
        now += 500
        for request in requests:
            world.reply(request, now)
    assert served == set(range(40))
