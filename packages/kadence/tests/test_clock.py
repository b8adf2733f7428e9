"""Durations at the edge: seconds in, milliseconds inside."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from kadence.clock import FOREVER, SystemClock, add_ms, to_ms, wait_seconds, wall_ms


@pytest.mark.parametrize(
    ("given", "ms"),
    [(0, 0), (1.5, 1500), (0.0001, 1), (timedelta(seconds=2), 2000), (None, None), (1e300, FOREVER)],
)
def test_seconds_become_milliseconds_rounded_up(given: float | timedelta | None, ms: int | None) -> None:
    assert to_ms(given) == ms


@pytest.mark.parametrize("given", [-1, float("nan"), timedelta(seconds=-1), True, False, "1", "x", b"1", [1]])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="seconds >= 0, not"):
        to_ms(given)


def test_deadlines_saturate() -> None:
    assert add_ms(FOREVER - 1, 10) == FOREVER
    assert add_ms(5, 10) == 15


def test_waits_are_what_selectors_and_locks_take() -> None:
    assert wait_seconds(FOREVER, 0) is None
    assert wait_seconds(10, 20) == 0
    assert wait_seconds(1500, 0) == 1.5
    assert wait_seconds(FOREVER - 1, 0) == threading.TIMEOUT_MAX


def test_who_stops_pythons_clock_as_freezegun_does_stops_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("time", "time_ns", "monotonic", "monotonic_ns"):
        monkeypatch.setattr(time, name, lambda: 0)
    assert SystemClock().now_ms() > 0
    assert wall_ms() > 1_600_000_000_000
