"""The grace period of stop(): until when calls may wait."""

from __future__ import annotations

import pytest

from kadence.client.grace import Grace
from kadence.clock import FOREVER
from kadence.errors import ClosedError


def test_without_a_grace_period_calls_wait_as_long_as_they_may() -> None:
    grace = Grace()
    assert grace.wait_until(5) == FOREVER
    grace.begin(1_000, None)
    assert grace.wait_until(10**9) == FOREVER


def test_the_last_part_of_it_is_for_close() -> None:
    grace = Grace()
    grace.begin(1_000, 10)
    assert grace.close_by == 11_000
    assert grace.wait_until(1_000) == grace.wait_until(8_999) == 9_000
    with pytest.raises(ClosedError, match=r"the grace period of stop\(\) is over"):
        grace.wait_until(9_000)


def test_a_call_that_begins_late_has_some_time() -> None:
    grace = Grace()
    grace.begin(1_000, 10)
    assert grace.wait_until(12_000, began=11_500) == 13_500
    with pytest.raises(ClosedError):
        grace.wait_until(13_500, began=11_500)


def test_a_short_one_leaves_the_calls_under_way_as_much() -> None:
    grace = Grace()
    grace.begin(1_000, 0)
    assert grace.wait_until(1_000) == 3_000


def test_close_has_a_time_of_its_own() -> None:
    grace = Grace()
    grace.begin(1_000, 1)
    grace.end()
    assert grace.wait_until(10**9) == FOREVER
