"""Slices of memory: parts of it go to other threads, which drop them at any time."""

from __future__ import annotations

import gc
import threading
import weakref
from array import array

import pytest

from kadence._native.buffers import memory_slice


class Owner(array):  # type: ignore[type-arg]
    """Memory of which one can see when it goes."""


def test_a_memory_slice_is_indexed_and_cut_like_a_view() -> None:
    memory = bytearray(b"abcdef")
    whole = memory_slice(memory)
    assert (len(whole), whole[0], whole[-1], [*memoryview(whole)]) == (6, 97, 102, [*memory])
    for cut in (slice(1, 3), slice(-2, None), slice(4, 2), slice(10, 20), slice(None, -9), slice(None)):
        assert bytes(whole[cut]) == memory[cut]
        assert bytes(whole[1:5][cut]) == memory[1:5][cut]
    for place in (6, -7):
        with pytest.raises(IndexError):
            whole[place]
    with pytest.raises(ValueError, match="steps"):
        whole[::2]
    assert repr(whole[1:3]) == "<MemorySlice of 2 bytes>"


def test_it_shows_the_memory_itself() -> None:
    memory = bytearray(b"abcdef")
    part = memory_slice(memory)[2:]
    view = memoryview(part)
    assert (view.format, view.nbytes, view.readonly) == ("B", 4, False)
    view[0] = 0
    assert memory == b"ab\0def"
    with pytest.raises(BufferError, match="not writable"):
        memory_slice(b"bytes do not change")


def test_the_memory_stays_as_long_as_any_part_or_view_of_one() -> None:
    owner = Owner("B", b"abcdef")
    gone = weakref.ref(owner)
    part = memory_slice(owner)[1:4][1:]
    del owner
    view = memoryview(part)[1:]
    del part
    gc.collect()
    assert gone() is not None
    assert bytes(view) == b"d"
    del view
    gc.collect()
    assert gone() is None


def test_threads_make_and_drop_parts_of_one_answer() -> None:
    """With slices of one memoryview the owner was freed while it was read, or never, without the interpreter's lock."""
    owner = Owner("B", bytes(range(200)))
    gone = weakref.ref(owner)
    answers = [memory_slice(owner)]
    del owner
    rounds = 100_000
    wrong: list[int] = []
    together = threading.Barrier(2)

    def run() -> None:
        together.wait()
        for number in range(rounds):
            at = number % 100
            view = memoryview(answers[0][at : at + 50])
            if view[1] != at + 1:
                wrong.append(number)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert gone() is not None
    answers.clear()
    gc.collect()
    assert gone() is None
