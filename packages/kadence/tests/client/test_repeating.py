"""What is done again without end: waits that grow, a WARNING a minute."""

from __future__ import annotations

from logging import INFO, WARNING

from kadence.client.repeating import Repeating
from kadence.logs import LogLimiter


def test_waits_grow_to_half_a_minute_and_are_short_again_after_a_success() -> None:
    repeating, now, waits = Repeating(1_000), 0, []
    for _ in range(10):
        again = repeating.failed(now)
        waits.append(again.at - now)
        now = again.at
    for wait, meant in zip(waits, (1, 2, 4, 8, 16, 30, 30, 30, 30, 30), strict=True):
        assert 0.8 * meant <= wait / 1_000 <= 1.2 * meant
    repeating.succeeded()
    assert repeating.failed(now).at - now <= 1_200


def test_of_a_subject_there_is_one_warning_a_minute_however_many_fail() -> None:
    limiter = LogLimiter()
    several = [Repeating(1_000, limiter) for _ in range(3)]
    levels = [each.failed(now, "t").level for now in range(0, 180_000, 1_000) for each in several]
    assert levels.count(WARNING) == 3
    assert set(levels) == {WARNING, INFO}
    assert several[0].failed(0, "another").level == WARNING
