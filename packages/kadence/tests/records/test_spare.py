"""Memory of large columns is used again, within bounds, by any thread, and goes back when nobody wants it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from kadence._native.buffers import scratch
from kadence.records import FetchedRecords, encode_batch, release_idle, spare_memory

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    gc.collect()
    release_idle(everything=True)
    yield
    release_idle(everything=True)


def values(fill: int, count: int = 2_000) -> bytes:
    return encode_batch([(0, b"key", bytes([fill]) * 1024, ())] * count)


def column(data: bytes) -> memoryview:
    (columns,) = FetchedRecords(data, "t", 0, 0).take_columns()
    assert columns.value is not None
    return memoryview(columns.value.data)


def test_what_a_large_column_gives_up_the_next_one_has() -> None:
    one = column(values(1))
    assert spare_memory() == 0
    del one
    kept = spare_memory()
    assert kept >= 2_000 * 1024
    two = column(values(2))
    assert spare_memory() == 0
    assert bytes(two) == b"\2" * (2_000 * 1024)
    del two
    assert spare_memory() == kept


def test_a_column_that_is_held_keeps_its_bytes() -> None:
    held = column(values(1))
    for fill in range(2, 6):
        assert bytes(column(values(fill))[:4]) == bytes([fill]) * 4
    assert bytes(held) == b"\1" * (2_000 * 1024)


def test_small_columns_take_nothing_of_it() -> None:
    large = column(values(1))
    del large
    kept = spare_memory()
    small = column(values(2, count=10))
    assert spare_memory() == kept
    del small
    assert spare_memory() == kept


def test_every_column_of_many_records_is_made_in_memory_that_was_used_before() -> None:
    data = encode_batch([(0, b"%016d" % number, bytes(100), ()) for number in range(20_000)])
    (columns,) = FetchedRecords(data, "t", 0, 0).take_columns()
    del columns
    kept = spare_memory()
    (columns,) = FetchedRecords(data, "t", 0, 0).take_columns()
    assert columns.key is not None
    assert bytes(memoryview(columns.key.data)[:16]) == b"%016d" % 0
    assert spare_memory() == 0
    del columns
    assert spare_memory() == kept


def test_a_batch_s_scratch_is_used_again_and_never_smaller_than_asked() -> None:
    block = scratch(2 * MIB)
    memoryview(block)[:] = b"x" * (2 * MIB)
    del block
    again = scratch(2 * MIB - 5)
    assert spare_memory() == 0
    assert len(memoryview(again)) == 2 * MIB - 5
    much_smaller = scratch(MIB)
    assert len(memoryview(much_smaller)) == MIB


def test_what_is_kept_is_bounded() -> None:
    blocks = [scratch(7 * MIB) for _ in range(20)]
    del blocks
    assert 7 * MIB <= spare_memory() <= 64 * MIB
    huge = scratch(100 * MIB)
    del huge
    assert spare_memory() <= 64 * MIB


def test_idle_memory_goes_back_with_the_second_call() -> None:
    block = scratch(2 * MIB)
    del block
    release_idle()
    assert spare_memory() == 2 * MIB
    block = scratch(2 * MIB)
    del block
    release_idle()
    assert spare_memory() == 2 * MIB, "it was used meanwhile"
    release_idle()
    assert spare_memory() == 0


def test_many_threads_at_once() -> None:
    wrong: list[int] = []

    def work(fill: int) -> None:
        data = values(fill)
        for _ in range(30):
            found = column(data)
            if bytes(found) != bytes([fill]) * (2_000 * 1024):
                wrong.append(fill)
            del found
            release_idle()

    threads = [threading.Thread(target=work, args=(fill,)) for fill in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
