"""A place in a partition as people write it: earliest, an offset, the last ten, a time. For the shell and `read`."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from typing import Final, Literal

from kadence.lazy_dataclasses import dataclass

__all__ = ["ACCEPTED", "Where", "at_moment", "where_of"]

ACCEPTED: Final = (
    "earliest, latest, an offset (1200), the last offsets of each partition (-10), a date or time "
    "(2026-11-22, 2026-11-22T10:30, 2026-11-22T10:30Z), so long ago (-90s, -10m, -2h, -7d) "
    "or milliseconds since 1970 (time:1700000000000)"
)
_AGO: Final = re.compile(r"(-)?(\d+(?:\.\d+)?)\s*([a-z]+)(\s+ago)?", re.IGNORECASE)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_UNITS: Final = {
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hour": "h",
    "hr": "h",
    "day": "d",
    "week": "w",
}
_CAPITALS: Final = frozenset("SMHDW")
"""Elsewhere M is months. What is deleted by mistake does not come back, so none of them is taken."""
_TOO_LARGE: Final = 100_000_000_000
"""Such a number is more likely milliseconds since 1970 than an offset."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: Python has no later time, and nobody means one."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place that is yet to be looked up in each partition.

    Attributes:
        number: the offset; how many last offsets; or ms since 1970.
        presumed: a time was given without a zone, and this machine's is meant.
    """

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0
    presumed: bool = False

    @property
    def as_time(self) -> str:
        """The time with its zone."""
        moment = datetime.fromtimestamp(self.number / 1000, UTC)
        # On the last day there is no time in some zones.
        with contextlib.suppress(OverflowError, ValueError):
            moment = moment.astimezone()
        return moment.isoformat(sep=" ", timespec="seconds")


def where_of(text: str, now_ms: int) -> Where:
    """Read a place.

    Args:
        now_ms: the wall clock, from which ``-10m`` and ``yesterday`` count.

    Raises:
        ValueError: it is none; the message has what is accepted.
    """
    stripped = text.strip()
    if re.fullmatch(r"\d{1,3}(,\d{3})+", stripped):
        # As tables show it.
        stripped = stripped.replace(",", "")
    if stripped in ("earliest", "latest"):
        return Where("earliest" if stripped == "earliest" else "latest")
    if stripped.isdecimal():
        if int(stripped) >= _TOO_LARGE:
            raise ValueError(f"{text} would be an offset; write time:{stripped} for milliseconds since 1970")
        return Where("offset", int(stripped))
    if re.fullmatch(r"-\d+", stripped):
        return Where("last", -int(stripped))
    if stripped.startswith("time:") and stripped[5:].isdecimal():
        return _at(int(stripped[5:]), text)
    found = _ago(stripped, now_ms) or _day(stripped, now_ms) or _iso(stripped)
    if found is None:
        raise ValueError(f"{text!r} is not a place: give {ACCEPTED}")
    return found


def at_moment(moment: date) -> Where:
    """The place of a datetime, or of the beginning of a day here. Without a zone this machine's is meant.

    Raises:
        ValueError: it is before 1970, or after the year 9999.
    """
    at = moment if isinstance(moment, datetime) else datetime.combine(moment, clock_time())
    is_presumed = at.tzinfo is None
    # As whole numbers: a float of seconds may lie just below its millisecond. A part of one is rounded up: the first
    # record at or after it is meant.
    try:
        ms = -((_EPOCH - (at.astimezone() if is_presumed else at)) // timedelta(milliseconds=1))
    except (OverflowError, ValueError, OSError):
        # A day before the first one, or after the last, in another zone.
        ms = -1 if at.year < _EPOCH.year else _LAST_MS + 1
    return _at(ms, moment, is_presumed)


def _at(ms: int, given: object, is_presumed: bool = False) -> Where:
    if ms < 0:
        raise ValueError(f"records have no times before 1970, and {given} is one")
    if ms > _LAST_MS:
        raise ValueError(f"{given} is after the year 9999: a time is milliseconds since 1970")
    return Where("time", ms, is_presumed)


def _ago(text: str, now_ms: int) -> Where | None:
    match = _AGO.fullmatch(text)
    if match is None:
        return None
    minus, number, name, ago = match.groups()
    if name in _CAPITALS:
        raise ValueError(
            f"{text!r} is not a place: units of one letter are small ones: s, m (minutes), h, d, w; months are days"
        )
    unit = name if len(name) == 1 else _UNITS.get(name.lower().removesuffix("s"), "")
    if unit not in _SECONDS or bool(minus) == bool(ago):
        return None
    # Longer ago than 1970 is as long ago as records can be.
    return Where("time", now_ms - int(min(float(number) * _SECONDS[unit] * 1000, now_ms)))


def _day(text: str, now_ms: int) -> Where | None:
    if text not in ("today", "yesterday"):
        return None
    today = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
    return at_moment(today if text == "today" else today - timedelta(days=1))


def _iso(text: str) -> Where | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at_moment(moment)
