"""Places in a partition as people write them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import pytest

from kadence.where import Where
from kadence_cli.where import read_where, times_joined

NOW = 1_700_000_000.0
HOUR = 3_600_000


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in another zone, at a time that stands still."""
    monkeypatch.setattr("kadence_cli.where.wall_ms", lambda: int(NOW * 1000))
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Where("earliest")),
        ("latest", Where("latest")),
        ("0", Where("offset", 0)),
        ("1200", Where("offset", 1200)),
        ("1,234,567", Where("offset", 1_234_567)),
        ("-10", Where("last", 10)),
        ("time:1700000000000", Where("time", 1_700_000_000_000)),
        ("2026-11-22T10:30Z", Where("time", 1_795_343_400_000)),
        ("2026-11-22T10:30+01:00", Where("time", 1_795_343_400_000 - HOUR)),
        ("2026-11-22T10:30", Where("time", 1_795_343_400_000 - HOUR, presumed=True)),
        ("2026-11-22 10:30:00.500", Where("time", 1_795_343_400_500 - HOUR, presumed=True)),
        ("2026-07-01", Where("time", 1_782_856_800_000, presumed=True)),
        ("-90s", Where("time", 1_699_999_910_000)),
        ("-10m", Where("time", 1_699_999_400_000)),
        ("-1.5h", Where("time", 1_699_994_600_000)),
        ("-7d", Where("time", 1_699_395_200_000)),
        ("10m ago", Where("time", 1_699_999_400_000)),
        ("2 hours ago", Where("time", 1_699_992_800_000)),
        ("1 day ago", Where("time", 1_699_913_600_000)),
    ],
)
def test_places(text: str, place: Where) -> None:
    assert read_where(text) == place


@pytest.mark.parametrize(
    "text", ["", "noon", "10m", "-2h ago", "-2x", "time:noon", "2026-13-01", "+5", "1e3"]
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a place: give earliest, latest, an offset"):
        read_where(text)


@pytest.mark.parametrize("text", ["-6M", "-1M", "6 M ago", "-2H", "-3D", "-1W", "-90S", "6M"])
def test_a_capital_is_no_unit(text: str) -> None:
    """Elsewhere M is months, and what is deleted does not come back."""
    with pytest.raises(argparse.ArgumentTypeError, match=r"m \(minutes\)"):
        read_where(text)


def test_milliseconds_are_not_taken_for_an_offset() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write time:1700000000000 for milliseconds"):
        read_where("1700000000000")


@pytest.mark.parametrize(
    "text", ["time:253402300800000", "time:1700000000000000000000", f"time:1{'0' * 400}"]
)
def test_a_time_that_no_calendar_has_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="after the year 9999"):
        read_where(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("time:253402300799999", "9999-12-31 23:59:59+00:00"),
        ("9999-12-31T23:59:59Z", "9999-12-31 23:59:59+00:00"),
        (f"{'9' * 400} days ago", "1970-01-01 01:00:00+01:00"),
    ],
)
def test_the_first_and_the_last_time(text: str, shown: str) -> None:
    """In the zone of these tests it would be the next year."""
    assert read_where(text).as_time == shown


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00+14:00"])
def test_the_first_day_of_all_is_before_1970(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no times before 1970"):
        read_where(text)


def test_days_begin_at_midnight_here() -> None:
    today, yesterday = read_where("today"), read_where("yesterday")
    assert today.as_time.split(" ")[1].startswith("00:00:00+0")
    assert yesterday.as_time.split(" ")[1].startswith("00:00:00+0")
    assert 23 * HOUR <= today.number - yesterday.number <= 25 * HOUR


def test_a_time_is_told_with_its_zone() -> None:
    assert read_where("2026-11-22T10:30").as_time == "2026-11-22 10:30:00+01:00"


def test_ago_is_no_option() -> None:
    words = ["consume", "t", "--from", "-10m", "--to", "-5", "-n", "-3", "--from", "-g"]
    assert times_joined(words) == ["consume", "t", "--from=-10m", "--to=-5", "-n", "-3", "--from", "-g"]
