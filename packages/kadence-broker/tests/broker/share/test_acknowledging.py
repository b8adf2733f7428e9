"""What members may say of records, and what becomes of these (KIP-932, KIP-1222)."""

from __future__ import annotations

import pytest
from tests.broker.share.pure import ACCEPT, GAP, REJECT, RELEASE, RENEW, Queue

from kadence.clock import FOREVER
from kadence.protocol import error_codes as codes
from kadence_broker.share.acknowledging import Acknowledgement, malformed
from kadence_broker.share.changes import Changes, StateBatch
from kadence_broker.share.delivery import RecordState

LOCK = 30_000


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([(0, 4, [1])], False),
        ([(0, 4, [1, 2, 3, 0, 1])], False),
        ([(5, 4, [1])], True),
        ([(0, 4, [])], True),
        ([(0, 4, [1, 1])], True),
        ([(0, 4, [1] * 6)], True),
        ([(0, 4, [5])], True),
        ([(0, 4, [-1])], True),
        ([(5, 9, [1]), (0, 4, [1])], True),
        ([(0, 4, [1]), (3, 9, [1])], True),
        ([(0, 2, [1]), (2, 3, [1])], False),  # it touches; what is there says more
        ([(-2, 4, [1])], True),
        ([(0, 4, [4])], True),
    ],
)
def test_form(said: list[tuple[int, int, list[int]]], fault: bool) -> None:
    batches = [Acknowledgement(*each) for each in said]
    assert malformed(batches, knows_renewal=True, is_renewal=False) is fault


def test_renewal_needs_its_flag_and_version() -> None:
    said = [Acknowledgement(0, 1, [RENEW, ACCEPT])]
    assert not malformed(said, knows_renewal=True, is_renewal=True)
    assert malformed(said, knows_renewal=False, is_renewal=True)


def test_each_type() -> None:
    queue = Queue((0, 9))
    queue.take()
    assert queue.say((0, 3, [RELEASE, REJECT, GAP, ACCEPT])) == 0
    assert queue.states == [
        (0, 0, "AVAILABLE", 1),
        (1, 2, "ARCHIVED", 1),
        (3, 3, "ACKNOWLEDGED", 1),
        (4, 9, "ACQUIRED", 1),
    ]
    assert queue.stored == [
        StateBatch(0, 0, RecordState.AVAILABLE, 1),
        StateBatch(1, 2, RecordState.ARCHIVED, 1),
        StateBatch(3, 3, RecordState.ACKNOWLEDGED, 1),
    ]


def test_twice_is_an_error_until_the_start_has_moved_over_it() -> None:
    queue = Queue((0, 9))
    queue.take()
    assert queue.say((5, 5, ACCEPT)) == 0
    assert queue.say((5, 5, ACCEPT)) == codes.INVALID_RECORD_STATE
    assert queue.say((0, 4, ACCEPT)) == 0
    assert queue.state.start_offset == 6
    assert queue.say((5, 5, REJECT)) == 0
    assert queue.say((2, 3, RELEASE), member="another") == 0
    assert queue.say((3, 6, ACCEPT)) == 0  # judged by its upper part, which is held
    assert queue.say((3, 6, ACCEPT)) == 0
    assert queue.say((3, 7, [ACCEPT] * 5), member="another") == codes.INVALID_RECORD_STATE


def test_another_member_may_not() -> None:
    queue = Queue((0, 9))
    queue.take("a")
    assert queue.say((0, 9, ACCEPT), member="b") == codes.INVALID_RECORD_STATE
    assert queue.say((0, 0, ACCEPT), member="b") == codes.INVALID_RECORD_STATE
    assert queue.say((0, 9, ACCEPT), member="a") == 0


def test_one_bad_offset_refuses_all_of_the_partition() -> None:
    queue = Queue((0, 9), (10, 19))
    queue.take(max_records=10)
    assert queue.say((0, 3, ACCEPT)) == 0
    before = queue.states
    assert queue.say((4, 6, ACCEPT), (7, 7, RENEW), (8, 8, REJECT), (12, 12, ACCEPT)) == codes.INVALID_REQUEST
    assert queue.states == before
    assert queue.say((4, 6, ACCEPT), (6, 7, ACCEPT)) == codes.INVALID_RECORD_STATE
    assert queue.states == before
    assert queue.state.done_count == 0
    assert queue.say((4, 9, ACCEPT)) == 0


def test_beyond_what_was_given_out() -> None:
    queue = Queue((0, 9), (10, 19))
    assert queue.say((0, 3, ACCEPT)) == codes.INVALID_RECORD_STATE  # nothing is in flight
    queue.take(max_records=10)
    assert queue.say((10, 12, ACCEPT)) == codes.INVALID_REQUEST
    assert queue.say((5, 12, ACCEPT)) == codes.INVALID_REQUEST


def test_available_inside_the_window_is_nobodys() -> None:
    queue = Queue((0, 9))
    queue.take(max_records=3, limit=True)
    assert queue.say((3, 4, ACCEPT)) == codes.INVALID_RECORD_STATE
    assert queue.say((0, 2, ACCEPT)) == 0


def test_a_lock_that_ends_is_a_release() -> None:
    queue = Queue((0, 9))
    queue.take("a")
    queue.wait(LOCK - 1)
    assert queue.take("b") == []
    queue.wait(1)
    assert queue.say((0, 9, ACCEPT), member="a") == codes.INVALID_RECORD_STATE
    assert queue.take("b") == [(0, 9, 2)]
    assert queue.stored == [StateBatch(0, 9, RecordState.AVAILABLE, 1)]


def test_parts_of_a_batch_keep_their_lock() -> None:
    queue = Queue((0, 9))
    queue.take()
    queue.wait(10_000)
    assert queue.say((0, 4, ACCEPT)) == 0
    assert queue.state.next_lock_end() == 1_000 + LOCK
    queue.wait(20_000)
    assert queue.states == [(0, 4, "ACKNOWLEDGED", 1), (5, 9, "AVAILABLE", 1)]
    assert queue.state.next_lock_end() == FOREVER


def test_renewal_moves_the_lock_and_nothing_else() -> None:
    queue = Queue((0, 9))
    queue.take()
    for _ in range(5):
        queue.wait(20_000)
        assert queue.say((0, 4, RENEW)) == 0
    assert queue.states == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)]
    assert queue.stored == [StateBatch(5, 9, RecordState.AVAILABLE, 1)]
    queue.wait(LOCK)
    assert queue.states == [(0, 9, "AVAILABLE", 1)]


def test_many_renewals_take_no_memory() -> None:
    queue = Queue((0, 99))
    queue.take(max_records=50, limit=True)
    for _ in range(100):
        queue.wait(1)
        assert queue.say((0, 49, [RENEW] * 50)) == 0
    assert len(queue.state._locks) == 1
    queue.wait(LOCK - 1)
    assert queue.states[0] == (0, 49, "ACQUIRED", 1)
    queue.wait(1)
    assert queue.states == [(0, 49, "AVAILABLE", 1), (50, 99, "AVAILABLE", 0)]


def test_renewal_and_acceptance_in_one_batch() -> None:
    queue = Queue((0, 2))
    queue.take()
    queue.wait(20_000)
    assert queue.say((0, 2, [RENEW, ACCEPT, RENEW])) == 0
    queue.wait(20_000)
    assert queue.states == [(0, 0, "ACQUIRED", 1), (1, 1, "ACKNOWLEDGED", 1), (2, 2, "ACQUIRED", 1)]


def test_renewal_that_is_switched_off_keeps_the_lock() -> None:
    queue = Queue((0, 2), renew_enabled=False)
    queue.take()
    assert queue.say((0, 0, ACCEPT), (1, 2, RENEW)) == codes.INVALID_RECORD_STATE
    assert queue.say((0, 2, ACCEPT)) == 0


def test_a_refused_renewal_leaves_the_old_lock() -> None:
    queue = Queue((0, 2))
    queue.take()
    queue.wait(20_000)
    assert queue.say((0, 0, RENEW), (5, 5, ACCEPT)) == codes.INVALID_REQUEST
    queue.wait(10_000)
    assert queue.states == [(0, 2, "AVAILABLE", 1)]


def test_release_at_the_limit_archives() -> None:
    queue = Queue((0, 1), delivery_count_limit=2)
    queue.take()
    assert queue.say((0, 1, RELEASE)) == 0
    queue.take()
    assert queue.say((0, 0, RELEASE)) == 0
    queue.wait(LOCK)
    assert queue.states == []
    assert queue.state.start_offset == 2


def test_a_leaving_member_releases_only_its_own() -> None:
    queue = Queue((0, 4), (5, 9))
    queue.take("a", 5)
    queue.take("b", 5)
    queue.leave("a")
    assert queue.states == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]


def test_changes_that_cannot_be_stored_are_undone() -> None:
    queue = Queue((0, 9))
    queue.take()
    state, settings = queue.state, queue.settings
    before, lock = queue.states, queue.state.next_lock_end()
    changes: Changes = state.release_member("m", settings)
    state.undo(changes)
    assert (queue.states, state.next_lock_end()) == (before, lock)
    assert queue.say((0, 9, ACCEPT)) == 0


def test_dead_letters_are_owed_for_rejected_and_worn_out_records() -> None:
    queue = Queue((0, 3), delivery_count_limit=2, dead_letter_topic="dlq.t")
    queue.take()
    queue.leave()
    queue.take()
    changes_before = len(queue.stored)
    assert queue.say((0, 3, [REJECT, RELEASE, GAP, ACCEPT])) == 0
    assert [each.state.name for each in queue.stored[changes_before:]] == [
        "ARCHIVING",
        "ARCHIVED",
        "ACKNOWLEDGED",
    ]
    assert queue.state.start_offset == 0
    (letter,) = {each.first: each for each in queue.state.letters_owed(queue.settings)}.keys() - {1}
    assert letter == 0
    for each in queue.state.letters_owed(queue.settings):
        queue.state.letter_written(each)
    queue.state.advance()
    assert queue.states == []
