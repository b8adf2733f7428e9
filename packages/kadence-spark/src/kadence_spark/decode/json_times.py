"""Texts as dates and times by the rules of Spark's casts, which ``from_json`` uses where no format is given.

Days and microseconds are numbers since 1970, of any year that Spark has; Python's own dates end with the year 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from kadence.clock import SystemClock

__all__ = ["NoZoneError", "date_of", "local_time_of", "offset_at", "time_of", "zone_of"]

_CLOCK: Final = SystemClock()
_DAY: Final = 86_400
_MOST: Final = 1 << 63
_BLANK: Final = "".join(map(chr, range(0x21))) + "\x7f"
"""What Spark takes off the ends of a text."""

_DATE: Final = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_OF_DAY: Final = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?"
_TIME: Final = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_OF_DAY})?)?)?", re.DOTALL
)
_TIME_ALONE: Final = re.compile(f"T?{_OF_DAY}", re.DOTALL)
_WHOLE: Final = re.compile(r"[+-]?\d+")

_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SWITCH: Final = -141_427
"""1582-10-15: days before it are counted in Julian dates by those who write days as numbers, such as Spark 1.5."""

_OFFSET: Final = re.compile(
    r"([+-])(?:([0-9])|([0-9]{2})(?:([0-9]{2})([0-9]{2})?|:([0-9]{2})(?::([0-9]{2}))?)?)"
)
_REGION: Final = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00",
    "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""Java's short names (`ZoneId.SHORT_IDS`)."""


_UTC: Final = frozenset(
    ("Z", "Etc/UTC", "Etc/GMT", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu")
)
"""Names of a zone that needs no looking up."""


class NoZoneError(ValueError):
    """A text names no time zone, and there is none to take it in."""


def date_of(text: str) -> int | None:
    """Days; None where the text is no date."""
    found = _date(text)
    if found is None:
        cleaned = _without_gmt(text)
        found = None if cleaned is text else _date(cleaned)
    if found is None and _WHOLE.fullmatch(text) and -(1 << 31) <= int(text) < 1 << 31:
        return _rebased(int(text))
    return found


def time_of(text: str, zone: tzinfo | None) -> int | None:
    """Microseconds in UTC; None where the text is no time.

    Args:
        zone: of a text that names none.

    Raises:
        NoZoneError: it is wanted, and there is none.
    """
    found = _time(text, zone)
    if found is None:
        cleaned = _without_gmt(text)
        found = None if cleaned is text else _time(cleaned, zone)
    return found


def local_time_of(text: str) -> int | None:
    """Microseconds of a time without zone; None where the text is no time, or names a zone."""
    found = _TIME.fullmatch(text.strip(_BLANK))
    if found is None or found[9]:
        return None
    local = _local(found)
    return _micros(*local) if local is not None else None


def _time(text: str, zone: tzinfo | None) -> int | None:
    stripped = text.strip(_BLANK)
    found = _TIME.fullmatch(stripped)
    if found is not None:
        local, named = _local(found), found[9]
    else:
        alone = _TIME_ALONE.fullmatch(stripped)
        if alone is None or (text[0] != "T" and (stripped[0] == "T" or alone[2] is None)):
            return None
        seconds, micros = _of_day(alone[1], alone[2], alone[3], alone[4])
        named = alone[5]
        local = None if seconds is None else (0, seconds, micros)
    if local is None:
        return None
    within = zone
    if named:
        within = zone_of(named.strip())
        if within is None:
            return None
    if within is None:
        raise NoZoneError
    if found is None:
        today = datetime.fromtimestamp(_CLOCK.now_ms() / 1000, within)
        local = (_days(today.year, today.month, today.day) or 0, *local[1:])
    return _micros(local[0], local[1] - offset_at(within, local[0], local[1]), local[2])


def _micros(days: int, seconds: int, micros: int) -> int | None:
    found = (days * _DAY + seconds) * 1_000_000 + micros
    return found if -_MOST <= found < _MOST else None


def _local(found: re.Match[str]) -> tuple[int, int, int] | None:
    """Days, seconds of the day, microseconds."""
    sign, year, month, day, hour, minute, second, fraction, _ = found.groups()
    days = _days(int(year) * (-1 if sign == "-" else 1), int(month or 1), int(day or 1))
    seconds, micros = _of_day(hour, minute, second, fraction)
    return None if days is None or seconds is None else (days, seconds, micros)


def _of_day(
    hour: str | None, minute: str | None, second: str | None, fraction: str | None
) -> tuple[int | None, int]:
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        return None, 0
    return hours * 3600 + minutes * 60 + seconds, int((fraction or "")[:6].ljust(6, "0"))


def _date(text: str) -> int | None:
    found = _DATE.fullmatch(text.strip(_BLANK))
    if found is None:
        return None
    return _days(int(found[2]) * (-1 if found[1] == "-" else 1), int(found[3] or 1), int(found[4] or 1))


def _without_gmt(text: str) -> str:
    """``2000-01-01T00:00:00GMT+01:00`` as older versions of Spark wrote it."""
    return text.replace("GMT", "", 1)


def _days(year: int, month: int, day: int) -> int | None:
    """Of the Gregorian calendar, also before there was one; None where it has no such day."""
    leaps = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month - 1] + (month == 2 and leaps):
        return None
    # Years from March on, so that the leap day is the last one.
    shifted = year if month > 2 else year - 1
    within = shifted % 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return shifted // 400 * 146_097 + within * 365 + within // 4 - within // 100 + of_year - 719_468


def _rebased(days: int) -> int:
    """A day that was counted by its Julian date, if it is old enough, as the day of the same Gregorian date."""
    if days >= _SWITCH:
        return days
    # 1461 days are four Julian years; day 0 here is the first of March of their year 0.
    count = days + 719_470
    cycle, within = divmod(count, 1461)
    year = min(within // 365, 3)
    of_year = within - year * 365
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    year += 4 * cycle + (month > 9)
    first = _days(year, month + (3 if month < 10 else -9), 1)
    assert first is not None  # each month has a first day
    return first + day


# ---------------------------------------------------------------- zones


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo | None:
    """A zone as Spark names it: an offset, or a region; None where there is none."""
    text = re.sub(r"([+-])(\d):", r"\g<1>0\2:", name, count=1)
    text = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", text)
    text = _SHORT.get(text, text)
    if text in _UTC:
        return UTC
    if text[:1] in ("+", "-"):
        return _fixed(text)
    for prefix in ("UTC", "GMT", "UT"):
        if text.startswith(prefix):
            rest = text.removeprefix(prefix)
            if not rest:
                return UTC
            if rest[0] in "+-":
                return _fixed(rest)
            break
    if _REGION.fullmatch(text) is None:
        return None
    try:
        return ZoneInfo(text)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        return None
    except KeyError:
        return None


def _fixed(text: str) -> tzinfo | None:
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    hours = int(found[2] or found[3])
    minutes, seconds = int(found[4] or found[6] or 0), int(found[5] or found[7] or 0)
    ahead = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or ahead > 18 * 3600:
        return None
    return timezone(timedelta(seconds=-ahead if found[1] == "-" else ahead))


def offset_at(zone: tzinfo, days: int, seconds: int) -> int:
    """Seconds that a local time is ahead of UTC; in a gap and in an overlap by the offset before it."""
    first, last = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
    if days < first:
        days = first
    elif days > last:
        # Rules come again each 400 years.
        days = last - 146_096 + (days - last - 1) % 146_097
    ahead = (datetime(1970, 1, 1, tzinfo=zone) + timedelta(days, seconds)).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds())
