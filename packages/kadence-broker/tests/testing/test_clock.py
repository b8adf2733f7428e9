"""Virtual time passes only when told to."""

from __future__ import annotations

import pytest

from kadence.clock import Clock
from kadence_testing import FakeClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(100)
    same: Clock = clock
    assert same.now_ms() == same.now_ms() == 100
    assert clock.advance(25) == 125
    assert clock.now_ms() == 125
    assert repr(clock) == "<FakeClock 125 ms>"


def test_time_never_goes_back() -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
