"""Arenas: reused, counted, and given back exactly once."""

from __future__ import annotations

import threading

import pytest

from kadence.errors import IllegalStateError
from kadence.net.arena import ArenaPool


def test_a_lease_has_the_length_asked_for_and_says_what_it_holds() -> None:
    pool = ArenaPool(1 << 20)
    arena = pool.lease(100_000)
    assert len(arena.view) == 100_000
    assert 100_000 <= arena.size < 115_000
    assert pool.in_use == arena.size
    assert repr(arena) == f"<Arena 100000 of {arena.size} bytes held=1>"


def test_the_last_release_gives_the_memory_to_the_next_lease() -> None:
    pool = ArenaPool(1 << 20)
    arena = pool.lease(100_000)
    arena.view[:5] = b"bytes"
    arena.retain()
    arena.release()
    assert pool.in_use == arena.size
    arena.release()
    assert (pool.in_use, pool.spare) == (0, arena.size)
    again = pool.lease(99_000)
    assert bytes(again.view[:5]) == b"bytes", "memory is neither fresh nor cleared"
    assert repr(pool) == f"<ArenaPool in_use={again.size} spare=0>"


def test_a_second_release_is_told() -> None:
    arena = ArenaPool(1 << 20).lease(10)
    arena.release()
    with pytest.raises(IllegalStateError, match="released twice"):
        arena.release()


def test_a_small_response_does_not_pin_a_large_arena() -> None:
    pool = ArenaPool(1 << 30)
    large = pool.lease(50_000_000)
    large.release()
    small = pool.lease(100)
    assert small.size < 100_000
    assert pool.spare == large.size


def test_the_smallest_that_fits_is_taken() -> None:
    pool = ArenaPool(1 << 30)
    sizes = [300_000, 200_000, 400_000]
    leased = [pool.lease(size) for size in sizes]
    for arena in leased:
        arena.release()
    assert pool.lease(190_000).size == leased[1].size


def test_spare_memory_is_bounded() -> None:
    pool = ArenaPool(250_000)
    leased = [pool.lease(100_000) for _ in range(4)]
    for arena in leased:
        arena.release()
    assert pool.in_use == 0
    assert pool.spare == 2 * leased[0].size


def test_spare_memory_gives_way_to_what_is_leased() -> None:
    pool = ArenaPool(1 << 30)
    leased = [pool.lease(100_000) for _ in range(4)]
    size = leased[0].size
    for arena in leased[:3]:
        arena.release()
    pool.limit = 4 * size
    assert (pool.in_use, pool.spare) == (size, 3 * size)
    larger = pool.lease(2 * 100_000)
    assert pool.in_use == size + larger.size
    assert pool.in_use + pool.spare <= 4 * size
    pool.limit = size
    assert pool.spare == 0


def test_slack_bounds_what_a_spare_may_be_larger_than_needed() -> None:
    pool = ArenaPool(1 << 30)
    pool.lease(300_000).release()
    pool.slack = 10_000
    assert pool.lease(150_000).size < 170_000
    pool.slack = 1_000_000
    large = pool.lease(150_000).size
    assert large > 290_000
    assert pool.slack < 1_000_000 - 100_000


def test_holders_on_many_threads_give_it_back_once() -> None:
    pool = ArenaPool(1 << 30)
    for _ in range(50):
        arena = pool.lease(10_000)
        for _ in range(7):
            arena.retain()
        threads = [threading.Thread(target=arena.release) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.in_use == 0
    assert pool.spare == arena.size
