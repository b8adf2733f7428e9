"""Where a reading begins and ends, in the words of the command line; those are tested in `tests.cli.test_where`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kadence.reading.places import place_of
from kadence.where import Where

NOW = 1_795_000_000_000

NOON = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in another zone."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def at(ms: int, *, presumed: bool = False) -> Where:
    return Where("time", ms, presumed)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("earliest", Where("earliest")),
        ("latest", Where("latest")),
        ("-90s", at(NOW - 90_000)),
        ("-15m", at(NOW - 900_000)),
        (" -1h ", at(NOW - 3_600_000)),
        ("-1.5h", at(NOW - 5_400_000)),
        ("-7d", at(NOW - 7 * 86_400_000)),
        ("-2w", at(NOW - 14 * 86_400_000)),
        ("-9999999999w", at(0)),
        ("2026-11-22T12:00Z", at(NOON)),
        ("2026-11-22T13:00+01:00", at(NOON)),
        ("2026-11-22 07:00-05:00", at(NOON)),
        (datetime(2026, 11, 22, 12, tzinfo=UTC), at(NOON)),
        (datetime(2026, 11, 22, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))), at(NOON)),
        (datetime(2026, 11, 22, 13, tzinfo=ZoneInfo("Europe/Berlin")), at(NOON)),
        # In summer time, and the second of two hours with the same name.
        (datetime(2026, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin")), at(1_782_907_200_000)),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), at(1_792_891_800_000)),
        (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), at(1_792_888_200_000)),
        # The first record at or after it.
        (datetime(2026, 11, 22, 12, 0, 0, 1, tzinfo=UTC), at(NOON + 1)),
        (datetime(2026, 11, 22, 12, 0, 0, 1000, tzinfo=UTC), at(NOON + 1)),
        ({0: 7, ("t", 1): 8}, {0: 7, ("t", 1): 8}),
        ("-10", Where("last", 10)),
        ("1200", Where("offset", 1200)),
        ("1 hour ago", at(NOW - 3_600_000)),
        # Without a zone this machine's is meant.
        ("2026-11-22", at(NOON - 13 * 3_600_000, presumed=True)),
        ("2026-11-22T13:00", at(NOON, presumed=True)),
        (datetime(2026, 11, 22, 13), at(NOON, presumed=True)),  # noqa: DTZ001
        (date(2026, 11, 22), at(NOON - 13 * 3_600_000, presumed=True)),
        # NOW is the 18th of November, 11:06 in Berlin.
        ("yesterday", at(1_794_870_000_000, presumed=True)),
    ],
)
def test_what_is_meant(given: Any, meant: object) -> None:
    assert place_of(given, "since", NOW) == meant


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("1h", "is not a place: give earliest"),
        ("noon", "so long ago"),
        ("", "so long ago"),
        ("1700000000000", "write time:1700000000000"),
        ("1969-12-31T23:00Z", "before 1970"),
        ({0: -1}, "whole number >= 0, not -1 for 0"),
        ({0: "7"}, "whole number >= 0"),
    ],
)
def test_what_is_no_place_is_refused(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^since.*{complaint}"):
        place_of(given, "since", NOW)


@pytest.mark.parametrize("given", [1200, 1_700_000_000_000, 1.5, timedelta(hours=1), b"-1h"])
def test_a_number_is_neither_an_offset_nor_a_time(given: Any) -> None:
    with pytest.raises(TypeError, match="a mapping of offsets"):
        place_of(given, "since", NOW)
