"""Which records a member gets, and with which counts (KIP-932, KIP-1206): after Kafka's SharePartition.acquire."""

from __future__ import annotations

import pytest
from tests.broker.share.pure import ACCEPT, GAP, RELEASE, Queue

from kadence_broker.share.delivery import RecordState
from kadence_broker.share.partition import DamagedStateError, SharePartition


def test_whole_batches_until_max_records() -> None:
    queue = Queue((0, 9), (10, 19), (20, 29))
    assert queue.take(max_records=15) == [(0, 19, 1)]
    assert queue.take(max_records=15) == [(20, 29, 1)]
    assert queue.take() == []


def test_batch_size_cuts_where_batches_of_the_log_end() -> None:
    queue = Queue((0, 4), (5, 9), (10, 14), (15, 40))
    assert queue.take(batch_size=8) == [(0, 9, 1), (10, 40, 1)]


def test_a_batch_larger_than_batch_size_is_not_cut() -> None:
    assert Queue((0, 99)).take(batch_size=10) == [(0, 99, 1)]


@pytest.mark.parametrize("size", [1, 0, -5])
def test_without_a_batch_size_each_batch_is_a_part(size: int) -> None:
    assert Queue((0, 4), (5, 9)).take(batch_size=size) == [(0, 4, 1), (5, 9, 1)]


def test_record_limit_takes_no_more_and_leaves_the_rest_to_others() -> None:
    queue = Queue((0, 9), (10, 19))
    assert queue.take("a", 3, limit=True) == [(0, 2, 1)]
    assert queue.take("b", 3, limit=True) == [(3, 5, 1)]
    assert queue.take("c", 5) == [(6, 9, 1), (10, 19, 1)]


def test_record_limit_over_several_batches() -> None:
    queue = Queue((0, 1), (2, 3), (4, 5))
    assert queue.take(max_records=5, limit=True) == [(0, 4, 1)]
    assert queue.take(max_records=5, limit=True) == [(5, 5, 1)]


def test_record_limit_splits_a_released_batch() -> None:
    queue = Queue((0, 9))
    queue.take("a")
    queue.leave("a")
    assert queue.take("b", 4, limit=True) == [(0, 3, 2)]
    assert queue.take("b", 4, limit=True) == [(4, 7, 2)]


def test_released_records_come_before_new_ones() -> None:
    queue = Queue((0, 9), (10, 19))
    queue.take("a", 10)
    assert queue.say((3, 5, RELEASE), member="a") == 0
    assert queue.take("b") == [(3, 5, 2), (10, 19, 1)]


def test_what_others_have_is_skipped() -> None:
    queue = Queue((0, 4), (5, 9), (10, 14))
    assert queue.take("a", 5) == [(0, 4, 1)]
    assert queue.take("b", 5) == [(5, 9, 1)]
    queue.leave("a")
    assert queue.take("c") == [(0, 4, 2), (10, 14, 1)]


# The window


def test_the_window_is_tested_before_a_read_and_one_batch_may_go_beyond() -> None:
    queue = Queue((0, 299), (300, 309), max_record_locks=100)
    assert queue.take() == [(0, 299, 1)]
    assert queue.take() == []


def test_a_full_window_gives_out_only_what_was_released_in_it() -> None:
    queue = Queue(*((at, at + 9) for at in range(0, 200, 10)), max_record_locks=100)
    assert queue.take(max_records=1000) == [(0, 99, 1)]
    assert queue.take() == []
    assert queue.say((40, 49, RELEASE)) == 0
    assert queue.take() == [(40, 49, 2)]
    assert queue.take() == []


def test_one_old_record_keeps_the_window_from_moving() -> None:
    queue = Queue(*((at, at + 9) for at in range(0, 200, 10)), max_record_locks=100)
    queue.take(max_records=1000)
    assert queue.say((1, 99, ACCEPT)) == 0
    assert queue.state.start_offset == 0
    assert queue.take() == []
    assert queue.say((0, 0, ACCEPT)) == 0
    assert queue.take(max_records=20) == [(100, 119, 1)]


def test_the_start_moves_over_the_done_prefix_only() -> None:
    queue = Queue((0, 4), (5, 9))
    queue.take()
    assert queue.say((0, 1, ACCEPT), (3, 6, ACCEPT)) == 0
    assert (queue.state.start_offset, queue.state.done_count) == (2, 4)
    assert queue.say((2, 2, GAP)) == 0
    assert (queue.state.start_offset, queue.state.done_count) == (7, 0)
    assert queue.say((7, 9, ACCEPT)) == 0
    assert (queue.state.start_offset, queue.state.next_offset) == (10, 10)
    assert queue.states == []


# Suspects near the limit


def attempts(queue: Queue, member: str = "m") -> list[list[tuple[int, int, int]]]:
    """Take and release until nothing comes."""
    rounds = []
    while got := queue.take(member):
        rounds.append(got)
        queue.leave(member)
    return rounds


def test_suspects_come_in_ever_smaller_parts_and_at_last_alone() -> None:
    queue = Queue((0, 15), delivery_count_limit=5)
    rounds = attempts(queue)
    sizes = [sum(last - first + 1 for first, last, _ in got) for got in rounds]
    assert sizes[:4] == [16, 16, 16, 8]  # its fourth delivery is the first of suspects: count 3
    last_attempts = [got for got in rounds if got[0][2] == 5]
    assert [got for got in last_attempts if got[0][0] != got[-1][1]] == []
    assert queue.states == []  # every record was delivered five times, and is archived
    assert queue.state.start_offset == 16


def test_a_last_attempt_is_not_mixed_with_others() -> None:
    stored = [
        (0, 0, RecordState.AVAILABLE, 1),
        (1, 1, RecordState.AVAILABLE, 4),
        (2, 2, RecordState.AVAILABLE, 1),
    ]
    queue = Queue((0, 2), (3, 5), stored=stored)
    assert queue.take() == [(0, 0, 2)]
    assert queue.take() == [(1, 1, 5)]
    assert queue.take() == [(2, 2, 2), (3, 5, 1)]


def test_with_a_limit_of_two_nothing_comes_alone() -> None:
    queue = Queue((0, 9), delivery_count_limit=2)
    assert attempts(queue) == [[(0, 9, 1)], [(0, 9, 2)]]
    assert queue.states == []


def test_a_lowered_limit_allows_one_delivery_above_it() -> None:
    queue = Queue((0, 0))
    for _ in range(4):
        queue.take()
        queue.leave()
    queue.change_settings(delivery_count_limit=2)
    assert queue.take() == [(0, 0, 5)]
    queue.leave()
    assert queue.take() == []
    assert queue.stored[-1].state is RecordState.ARCHIVED


# Holes, deletions and transactions


def test_what_a_read_jumps_over_is_archived() -> None:
    queue = Queue((0, 9), (10, 19), (20, 29))
    queue.take()
    queue.leave()
    queue.log = queue.log[2:]  # compaction took the others
    assert queue.take() == [(20, 29, 2)]
    assert queue.states == [(0, 19, "ARCHIVED", 1), (20, 29, "ACQUIRED", 2)]


def test_a_hole_at_the_beginning_of_the_log() -> None:
    queue = Queue((4, 9))
    assert queue.take() == [(4, 9, 1)]
    assert queue.state.start_offset == 4


def test_deleted_records_are_archived_unless_somebody_has_them() -> None:
    queue = Queue((0, 9), (10, 19), (20, 29))
    queue.take("a", 10)
    queue.take("b", 10)
    queue.leave("b")
    queue.delete_before(15)
    assert queue.state.start_offset == 15
    assert queue.states == [(0, 9, "ACQUIRED", 1), (10, 14, "ARCHIVED", 1), (15, 19, "AVAILABLE", 1)]
    assert queue.take("c") == [(15, 19, 2), (20, 29, 1)]
    queue.wait(30_000)
    assert queue.states == [(0, 14, "ARCHIVED", 1), (15, 19, "AVAILABLE", 2), (20, 29, "AVAILABLE", 1)]


def test_deleted_records_with_nothing_in_flight() -> None:
    queue = Queue((0, 9), (10, 19))
    queue.delete_before(15)
    assert queue.take() == [(15, 19, 1)]


def test_a_batch_that_straddles_the_new_start_is_read_whole_while_something_is_in_flight() -> None:
    # As seen on Kafka: the deleted 20 to 24 are given out.
    queue = Queue((0, 9), (10, 19), (20, 29), (30, 39))
    queue.take("a", 20)
    queue.delete_before(25)
    assert queue.take("b") == [(20, 39, 1)]


def test_the_deleted_rest_of_a_batch_that_a_limit_left_over_is_archived() -> None:
    """The next read would begin below the start of the log, bring nothing, and do so for ever."""
    queue = Queue((0, 9), (10, 29))
    queue.take("a", 10)
    queue.delete_before(20)
    assert queue.take("b", 3, limit=True) == [(10, 12, 1)]
    assert (queue.state.start_offset, queue.state.next_offset) == (20, 13)
    assert not queue.state.log_starts_at(20), "the fetch that meets it"
    assert queue.take("b", 3, limit=True) == [(20, 22, 1)]


def test_aborted_batches_are_cut_out_and_archived_and_markers_are_gaps() -> None:
    queue = Queue((0, 4), (5, 9), (10, 10), (11, 14), read_committed=True)
    assert queue.take(aborted=[(5, 9)]) == [(0, 4, 1), (10, 14, 1)]
    assert queue.states == [(0, 4, "ACQUIRED", 1), (5, 9, "ARCHIVED", 1), (10, 14, "ACQUIRED", 1)]
    assert queue.say((0, 4, ACCEPT), (10, 10, GAP), (11, 14, ACCEPT)) == 0
    assert queue.state.start_offset == 15


def test_a_read_of_aborted_batches_only_gives_nothing_and_moves_on() -> None:
    queue = Queue((0, 4), (5, 9))
    assert queue.take(upto=0, aborted=[(0, 4)]) == []
    assert queue.take() == [(5, 9, 1)]


# The stored state


def test_holes_in_the_stored_state_are_read_again() -> None:
    stored = [(0, 4, RecordState.ACKNOWLEDGED, 1), (10, 14, RecordState.ACKNOWLEDGED, 1)]
    queue = Queue((0, 4), (5, 9), (10, 14), (15, 19), stored=stored)
    assert queue.state.start_offset == 5
    assert queue.take(max_records=3) == [(5, 9, 1)]
    assert queue.take() == [(15, 19, 1)]
    assert queue.say((5, 9, ACCEPT)) == 0
    assert queue.state.start_offset == 15


def test_counts_and_states_are_loaded() -> None:
    stored = [
        (0, 1, RecordState.AVAILABLE, 2),
        (2, 3, RecordState.ARCHIVED, 5),
        (4, 4, RecordState.AVAILABLE, 1),
    ]
    queue = Queue((0, 9), stored=stored)
    assert queue.state.done_count == 2
    assert queue.take() == [(0, 1, 3), (4, 4, 2), (5, 9, 1)]


@pytest.mark.parametrize(
    "stored",
    [
        [(0, 5, RecordState.AVAILABLE, 1), (3, 7, RecordState.AVAILABLE, 1)],
        [(5, 3, RecordState.AVAILABLE, 1)],
        [(-3, 3, RecordState.AVAILABLE, 1)],
    ],
)
def test_a_stored_state_that_cannot_be_true(stored: list[tuple[int, int, RecordState, int]]) -> None:
    with pytest.raises(DamagedStateError):
        Queue((0, 9), stored=stored)


def test_a_fenced_one_gives_nothing() -> None:
    queue = Queue((0, 9))
    queue.state.is_fenced = True
    assert queue.take() == []
    assert "0..0" in repr(SharePartition(0))
