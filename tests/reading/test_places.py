"""Where a reading begins and ends, in words that can mean one thing only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kadence.reading.places import EARLIEST, LATEST, place_of

NOW = 1_795_000_000_000

NOON = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("-90s", NOW - 90_000),
        ("-15m", NOW - 900_000),
        (" -1h ", NOW - 3_600_000),
        ("-1.5h", NOW - 5_400_000),
        ("-7d", NOW - 7 * 86_400_000),
        ("-2w", NOW - 14 * 86_400_000),
        ("-9999999999w", 0),
        ("2026-11-22T12:00Z", NOON),
        ("2026-11-22T13:00+01:00", NOON),
        ("2026-11-22 07:00-05:00", NOON),
        (datetime(2026, 11, 22, 12, tzinfo=UTC), NOON),
        (datetime(2026, 11, 22, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))), NOON),
        (datetime(2026, 11, 22, 13, tzinfo=ZoneInfo("Europe/Berlin")), NOON),
        # In summer time, and the second of two hours with the same name.
        (datetime(2026, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin")), 1_782_907_200_000),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), 1_792_891_800_000),
        (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), 1_792_888_200_000),
        # The first record at or after it.
        (datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=UTC), NOON + 1),
        (datetime(2026, 11, 22, 12, 0, 0, 1000, tzinfo=UTC), NOON + 1),
        ({0: 7, ("t", 1): 8}, {0: 7, ("t", 1): 8}),
    ],
)
def test_what_is_meant(given: Any, meant: object) -> None:
    assert place_of(given, "since", NOW) == meant


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("yesterday", "so long ago"),
        ("1h", "so long ago"),
        ("-1 hour", "so long ago"),
        ("-10", "so long ago"),
        ("1200", "so long ago"),
        ("", "so long ago"),
        ("2026-11-22", "names no zone"),
        ("2026-11-22T10:30", "names no zone"),
        (datetime(2026, 11, 22), "names no zone"),  # noqa: DTZ001
        ("1969-12-31T23:00Z", "before 1970"),
        ({0: -1}, "whole number >= 0, not -1 for 0"),
        ({0: "7"}, "whole number >= 0"),
    ],
)
def test_what_could_mean_two_things_or_none_is_refused(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^since.*{complaint}"):
        place_of(given, "since", NOW)


@pytest.mark.parametrize("given", [1200, 1_700_000_000_000, 1.5, timedelta(hours=1), b"-1h"])
def test_a_number_is_neither_an_offset_nor_a_time(given: Any) -> None:
    with pytest.raises(TypeError, match="a mapping of offsets"):
        place_of(given, "since", NOW)
