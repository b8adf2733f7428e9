"""When the application wakes the network thread about room that it made (C6)."""

from __future__ import annotations

from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.types import TopicPartition


def test_c6_a_mark_that_is_set_while_the_one_before_is_told_is_told_too() -> None:
    """Waking lets the network thread run: it fetches, and sets the next mark, before the wake returns."""
    wakes: list[int] = []

    def wake() -> None:
        wakes.append(shared_partition.wake_bytes)
        shared_partition.wake_bytes = 200

    shared_state, shared_partition = SharedState(wake), SharedPartition(TopicPartition("t", 0), 1)
    shared_partition.wake_bytes = 100
    shared_partition.drained_bytes = 150
    shared_state.made_room(shared_partition)
    assert wakes == [100]
    shared_partition.drained_bytes = 250
    shared_state.made_room(shared_partition)
    shared_state.made_room(shared_partition)
    assert wakes == [100, 200]
    assert list(shared_state.changed) == [shared_partition, shared_partition]


def test_c6_a_pause_wakes_only_while_a_fetch_waits_for_memory_and_a_resume_always() -> None:
    wakes: list[int] = []
    shared_state, shared_partition = (
        SharedState(lambda: wakes.append(1)),
        SharedPartition(TopicPartition("t", 0), 1),
    )
    shared_partition.paused = True
    shared_state.look_at(shared_partition)
    assert wakes == []
    shared_state.wake_held = 0
    shared_state.look_at(shared_partition)
    assert (len(wakes), shared_state.wake_held) == (1, -1)
    shared_partition.paused = False
    shared_state.look_at(shared_partition)
    assert len(wakes) == 2


def test_a3_all_that_buffer_memory_bounds_is_held() -> None:
    shared_state = SharedState(lambda: None)
    shared_state.measures.held_bytes = lambda: 1_000
    shared_state.decompressed_bytes, shared_state.copies.arrived, shared_state.decoded_bytes = 200, 30, 4
    assert (shared_state.fetched_bytes(), shared_state.held_bytes()) == (1_030, 1_234)
