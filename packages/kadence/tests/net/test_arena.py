"""Arenas: reused, counted, and given back exactly once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from kadence.errors import IllegalStateError
from kadence.net.arena import ArenaPool


def test_a_loan_has_the_length_asked_for_and_says_what_it_holds() -> None:
    pool = ArenaPool(1 << 20)
    arena = pool.lend(100_000)
    assert len(arena.view) == 100_000
    assert 100_000 <= arena.size < 115_000
    assert pool.in_use == arena.size
    assert repr(arena) == f"<Arena 100000 of {arena.size} bytes held=1>"


def test_the_last_release_gives_the_memory_to_the_next_lease() -> None:
    pool = ArenaPool(1 << 20)
    arena = pool.lend(100_000)
    memoryview(arena.view)[:5] = b"bytes"
    arena.retain()
    arena.release()
    assert pool.in_use == arena.size
    arena.release()
    assert (pool.in_use, pool.spare) == (0, arena.size)
    again = pool.lend(99_000)
    assert bytes(again.view[:5]) == b"bytes", "memory is neither fresh nor cleared"
    assert repr(pool) == f"<ArenaPool in_use={again.size} spare=0>"


def test_a_second_release_is_told() -> None:
    arena = ArenaPool(1 << 20).lend(10)
    arena.release()
    with pytest.raises(IllegalStateError, match="released twice"):
        arena.release()


def test_a_small_response_does_not_pin_a_large_arena() -> None:
    pool = ArenaPool(1 << 30)
    large = pool.lend(50_000_000)
    large.release()
    small = pool.lend(100)
    assert small.size < 100_000
    assert pool.spare == large.size


def test_a_small_response_takes_little_and_its_memory_is_not_kept() -> None:
    pool = ArenaPool(1 << 20)
    lent = [pool.lend(300) for _ in range(100)]
    assert pool.in_use == sum(arena.size for arena in lent) < 110_000
    for arena in lent:
        arena.release()
    assert (pool.in_use, pool.spare, pool.held()) == (0, 0, 0)


def test_the_smallest_that_fits_is_taken() -> None:
    pool = ArenaPool(1 << 30)
    sizes = [300_000, 200_000, 400_000]
    lent = [pool.lend(size) for size in sizes]
    for arena in lent:
        arena.release()
    assert pool.lend(190_000).size == lent[1].size


def test_spare_memory_is_bounded() -> None:
    pool = ArenaPool(250_000)
    lent = [pool.lend(100_000) for _ in range(4)]
    for arena in lent:
        arena.release()
    assert pool.in_use == 0
    assert pool.spare == 2 * lent[0].size


def test_spare_memory_gives_way_to_what_is_lent() -> None:
    pool = ArenaPool(1 << 30)
    lent = [pool.lend(100_000) for _ in range(4)]
    size = lent[0].size
    for arena in lent[:3]:
        arena.release()
    pool.limit = 4 * size
    assert (pool.in_use, pool.spare) == (size, 3 * size)
    larger = pool.lend(2 * 100_000)
    assert pool.in_use == size + larger.size
    assert pool.in_use + pool.spare <= 4 * size
    pool.limit = size
    assert pool.spare == 0


def test_many_spares_of_many_sizes_are_found_and_given_up_in_the_order_in_which_they_came_back() -> None:
    pool = ArenaPool(1 << 30)
    lent = [pool.lend(20_000 * (1 + number % 7)) for number in range(70)]
    sizes = [arena.size for arena in lent]
    for arena in lent:
        arena.release()
    assert (pool.in_use, pool.spare) == (0, sum(sizes))
    for rest in (40, 20, 3, 0):
        pool.limit = sum(sizes[len(sizes) - rest :])
        assert (pool.in_use, pool.spare) == (0, pool.limit)
    pool.limit = 1 << 30
    pool.lend(30_000).release()
    assert pool.lend(29_000).size == pool.in_use
    assert pool.spare == 0


def test_slack_bounds_what_a_spare_may_be_larger_than_needed() -> None:
    pool = ArenaPool(1 << 30)
    pool.lend(300_000).release()
    pool.slack = 10_000
    assert pool.lend(150_000).size < 170_000
    pool.slack = 1_000_000
    large = pool.lend(150_000).size
    assert large > 290_000
    assert pool.slack < 1_000_000 - 100_000


def test_holders_on_many_threads_give_it_back_once() -> None:
    pool = ArenaPool(1 << 30)
    for _ in range(50):
        arena = pool.lend(10_000)
        for _ in range(7):
            arena.retain()
        threads = [threading.Thread(target=arena.release) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.in_use == 0
    assert pool.spare == arena.size


def test_a_closed_pool_keeps_nothing_whenever_it_comes_back() -> None:
    pool = ArenaPool(1 << 20)
    spare, early, late = pool.lend(50_000), pool.lend(50_000), pool.lend(50_000)
    spare.release()
    assert pool.spare > 0
    early.release()
    pool.close()
    assert (pool.in_use, pool.spare, pool.held()) == (0, 0, 0)
    late.release()
    assert (pool.in_use, pool.spare, pool.held()) == (0, 0, 0)
    assert len(late.view) == 0


class Watched(deque[memoryview]):
    """Returned memory; ``at_read`` runs before another thread reads it, ``at_take`` once one piece was taken out."""

    at_read: Callable[[], object] = staticmethod(lambda: None)
    at_take: Callable[[], object] = staticmethod(lambda: None)

    def __iter__(self) -> Iterator[memoryview]:
        self.at_read()
        return super().__iter__()

    def popleft(self) -> memoryview:
        taken = super().popleft()
        self.at_take()
        return taken


def test_another_thread_never_counts_memory_that_is_being_collected() -> None:
    """It looks while the network thread collects, and the network thread collects while it looks."""
    pool = ArenaPool(1 << 20)
    pool._returned.memories = watched = Watched()
    kept, first, second = (pool.lend(50_000) for _ in range(3))
    first.release()
    seen: list[int] = []
    watched.at_take = lambda: seen.append(pool.held())
    assert pool.in_use == 2 * kept.size
    assert len(seen) == 1
    assert seen[0] <= 2 * kept.size
    watched.at_take = lambda: None
    second.release()
    watched.at_read = pool._collect
    assert pool.held() == kept.size
