"""What counts as progress (B4), as the network thread sees it."""

from __future__ import annotations

import pytest

from kadence.consumer.client_state import Progress


def test_b4_user_code_that_hangs_is_processing_even_after_other_user_code_ran_within_it() -> None:
    """A rebalance callback that commits: callbacks of earlier commits run inside it."""
    progress = Progress()
    progress.enter_poll(0)
    progress.enter_callback(10)
    progress.enter_callback(20)
    progress.leave_callback(30)
    assert progress.processing_since(100) == 30
    progress.leave_callback(110)
    assert progress.processing_since(200) is None


def test_b4_under_asyncio_user_code_of_one_task_does_not_end_that_of_another() -> None:
    progress = Progress()
    progress.by_turns = True
    progress.enter_poll(0)
    progress.enter_callback(10)
    progress.enter_callback(20)
    progress.leave_callback(30)
    progress.turned(100)
    assert progress.processing_since(100) == 30
    progress.leave_callback(110)
    progress.turned(120)
    assert progress.processing_since(200) == 120


@pytest.mark.parametrize("lost", ["leave_callback", "enter_callback"])
def test_b4_an_interrupted_callback_does_not_count_for_the_polls_that_follow(lost: str) -> None:
    progress = Progress()
    progress.enter_poll(0)
    if lost == "leave_callback":
        progress.enter_callback(10)
    else:
        progress.leave_callback(10)
    progress.leave_poll(10)
    progress.enter_poll(20)
    progress.enter_callback(30)
    progress.leave_callback(40)
    assert progress.processing_since(100) is None
