"""A place in a partition as people write it: earliest, an offset, the last ten, a time; and which offset that is."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from kadence.cli.common import CommandError, say

if TYPE_CHECKING:
    from kadence import Admin, TopicPartition

__all__ = [
    "FORMS",
    "Range",
    "Where",
    "offsets",
    "ranges",
    "read_where",
    "refuse_outside",
    "tell_presumed",
    "times_joined",
]

FORMS: Final = """\
a place (WHERE) is one of:
  earliest, latest            the first record; after the last record
  1200                        an offset
  -10                         the last ten records of each partition
  2026-11-22T10:30            a date, or a date and time; without a zone (Z,
                              +01:00) in the zone of this machine
  today, yesterday            the beginning of that day
  -90s, -10m, -2h, -7d        that long ago; also '10m ago', '2 hours ago'
  time:1700000000000          milliseconds since 1970 (UTC)
a time means the first record at or after it"""

_ACCEPTED: Final = (
    "give earliest, latest, an offset (1200), the last records of each partition (-10), a date or time "
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
_TOO_LARGE: Final = 100_000_000_000
"""Such a number is more likely milliseconds since 1970 than an offset."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONS: Final = ("--from", "--to", "--before")


@dataclass(frozen=True, slots=True)
class Where:
    """A place that is yet to be looked up in each partition.

    Attributes:
        number: the offset; how many last records; or ms since 1970.
        presumed: a time was given without a zone, and this machine's is meant.
    """

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0
    presumed: bool = False

    @property
    def as_time(self) -> str:
        """The time with its zone."""
        return datetime.fromtimestamp(self.number / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


@dataclass(frozen=True, slots=True)
class Range:
    """What a partition holds: its first offset, and that behind the last one."""

    first: int
    end: int


def read_where(text: str) -> Where:
    """Read a place.

    Raises:
        ArgumentTypeError: it is none; the message has what is accepted.
    """
    stripped = text.strip()
    if re.fullmatch(r"\d{1,3}(,\d{3})+", stripped):
        # As tables show it.
        stripped = stripped.replace(",", "")
    if stripped in ("earliest", "latest"):
        return Where("earliest" if stripped == "earliest" else "latest")
    if stripped.isdecimal():
        if int(stripped) >= _TOO_LARGE:
            raise argparse.ArgumentTypeError(
                f"{text} would be an offset; write time:{stripped} for milliseconds since 1970"
            )
        return Where("offset", int(stripped))
    if re.fullmatch(r"-\d+", stripped):
        return Where("last", -int(stripped))
    if stripped.startswith("time:") and stripped[5:].isdecimal():
        return Where("time", int(stripped[5:]))
    found = _ago(stripped) or _day(stripped) or _iso(stripped)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a place: {_ACCEPTED}")
    return found


def times_joined(argv: Iterable[str]) -> list[str]:
    """``--from -10m`` as ``--from=-10m``: argparse takes the second word for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in _OPTIONS and re.match(r"-\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def tell_presumed(where: Where | None, option: str) -> None:
    """Say on stderr which time is meant, where no zone was given."""
    if where is not None and where.presumed:
        say(f"{option}: {where.as_time} (no zone was given: this machine's is presumed)")


def _ago(text: str) -> Where | None:
    match = _AGO.fullmatch(text)
    if match is None:
        return None
    minus, number, name, ago = match.groups()
    unit = name.lower() if len(name) == 1 else _UNITS.get(name.lower().removesuffix("s"), "")
    if unit not in _SECONDS or bool(minus) == bool(ago):
        return None
    return Where("time", int((time.time() - float(number) * _SECONDS[unit]) * 1000))


def _day(text: str) -> Where | None:
    if text not in ("today", "yesterday"):
        return None
    midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return _local(midnight if text == "today" else midnight - timedelta(days=1))


def _iso(text: str) -> Where | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _local(moment) if moment.tzinfo is None else Where("time", _ms(moment))


def _local(moment: datetime) -> Where:
    return Where("time", _ms(moment.astimezone()), presumed=True)


def _ms(moment: datetime) -> int:
    # As whole numbers: a float of seconds may lie just below its millisecond.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


# ---------------------------------------------------------------- looking it up


def ranges(
    admin: Admin, partitions: Iterable[TopicPartition], isolation_level: str = "read_uncommitted"
) -> dict[TopicPartition, Range]:
    """What each partition holds."""
    found = admin.log_ranges(partitions, isolation_level=isolation_level)
    return {tp: Range(first, end) for tp, (first, end) in found.items()}


def refuse_outside(where: Where, held: dict[TopicPartition, Range]) -> None:
    """For commands that change something: a number that is no offset of a partition is a mistake.

    Raises:
        CommandError: names the partition and what it holds.
    """
    if where.kind != "offset":
        return
    for tp, each in held.items():
        if not each.first <= where.number <= each.end:
            raise CommandError(f"{tp} has offsets {each.first} to {each.end}; {where.number} is outside")


def offsets(
    admin: Admin, where: Where, held: dict[TopicPartition, Range], settings: Mapping[str, Any]
) -> dict[TopicPartition, int]:
    """The offset that ``where`` is in each partition, never outside of what the partition holds.

    Args:
        settings: of a consumer, which looks at the records that a time leads to.
    """
    match where.kind:
        case "earliest":
            return {tp: each.first for tp, each in held.items()}
        case "latest":
            return {tp: each.end for tp, each in held.items()}
        case "offset":
            return {tp: min(max(where.number, each.first), each.end) for tp, each in held.items()}
        case "last":
            return {tp: max(each.first, each.end - where.number) for tp, each in held.items()}
        case "time":
            # A consumer takes a while to load, and most commands need none.
            from kadence.reading.by_time import by_own_times

            times = dict.fromkeys(held, where.number)
            told = {tp: None if at is None else at.offset for tp, at in admin.list_offsets(times).items()}
            # A record may have come since the ranges were looked up, and be what the time leads to.
            found = by_own_times(settings, times, told, {tp: each.end for tp, each in held.items()})
            return {tp: each.end if (at := found[tp]) is None else at for tp, each in held.items()}
