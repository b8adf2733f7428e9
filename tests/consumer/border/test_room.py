"""When the application wakes the network thread about room that it made (C6)."""

from __future__ import annotations

from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.types import TopicPartition


def test_c6_a_mark_that_is_set_while_the_one_before_is_told_is_told_too() -> None:
    """Waking lets the network thread run: it fetches, and sets the next mark, before the wake returns."""
    wakes: list[int] = []

    def wake() -> None:
        wakes.append(cell.wake_bytes)
        cell.wake_bytes = 200

    border, cell = Border(wake), Cell(TopicPartition("t", 0), 1)
    cell.wake_bytes = 100
    cell.drained_bytes = 150
    border.made_room(cell)
    assert wakes == [100]
    cell.drained_bytes = 250
    border.made_room(cell)
    border.made_room(cell)
    assert wakes == [100, 200]
    assert list(border.changed) == [cell, cell]


def test_c6_a_pause_wakes_only_while_a_fetch_waits_for_memory_and_a_resume_always() -> None:
    wakes: list[int] = []
    border, cell = Border(lambda: wakes.append(1)), Cell(TopicPartition("t", 0), 1)
    cell.paused = True
    border.look_at(cell)
    assert wakes == []
    border.wake_held = 0
    border.look_at(cell)
    assert (len(wakes), border.wake_held) == (1, -1)
    cell.paused = False
    border.look_at(cell)
    assert len(wakes) == 2


def test_a3_all_that_buffer_memory_bounds_is_held() -> None:
    border = Border(lambda: None)
    border.measures.held_bytes = lambda: 1_000
    border.decompressed_bytes, border.copies.packed, border.hand_bytes = 200, 30, 4
    assert (border.fetched_bytes(), border.held_bytes()) == (1_030, 1_234)
