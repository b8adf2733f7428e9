"""How late the network thread is (B9), as numbers."""

from __future__ import annotations

from math import isnan

from kadence.clock import FOREVER
from kadence.consumer.client_state import Lateness

NOW = 1_000_003


def test_b9_the_first_turn_and_one_that_was_not_due_are_not_late() -> None:
    lateness = Lateness()
    assert lateness.turned(NOW) == 0
    lateness.due(NOW, NOW + 100)
    assert lateness.turned(NOW + 50) == 0, "an answer came, or a call"
    lateness.due(NOW + 50, FOREVER)
    assert lateness.turned(NOW + 10**9) == 0
    assert lateness.seen(NOW) == (0, 0, None, 0)


def test_b9_what_passes_after_the_planned_time_is_late() -> None:
    lateness = Lateness()
    lateness.due(NOW, NOW + 100)
    assert lateness.turned(NOW + 3_100) == 3_000
    lateness.due(NOW + 3_100, NOW + 3_200)
    assert lateness.turned(NOW + 3_250) == 50
    assert lateness.seen(NOW + 5_100) == (0.05, 3.0, 2.0, 0)
    assert lateness.turns.highest(NOW + 60_000) == 3_000
    assert isnan(lateness.turns.highest(NOW + 70_000)), "a metric tells of the last minute, as the others do"


def test_b9_a_plan_in_the_past_means_now() -> None:
    lateness = Lateness()
    lateness.due(NOW, NOW - 5_000)
    assert lateness.turned(NOW + 1) == 1


def test_b9_is_told_once_and_again_when_it_doubles() -> None:
    lateness = Lateness()
    assert [lateness.worth_telling(ms) for ms in (2_000, 2_000, 3_999, 4_000, 7_000, 8_000)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
