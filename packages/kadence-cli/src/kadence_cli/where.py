"""Places in a partition on the command line, and their offsets; `kadence.where` parses the text."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import wall_ms
from kadence.lazy_dataclasses import dataclass
from kadence.where import Where, where_of
from kadence_cli.common import CommandError, say
from kadence_cli.names import spelled

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
  earliest, latest            the first record; the end
  1200                        an offset
  -10                         the last ten offsets of each partition
  2026-11-22T10:30            a date, or a date and time; without a zone (Z,
                              +01:00) in the zone of this machine
  today, yesterday            the beginning of that day, in this zone
  -90s, -10m, -2h, -7d        so long ago (m: minutes); also '2 hours ago'
  time:1700000000000          milliseconds since 1970 (UTC)
a time means the first record whose timestamp is not earlier, else the end"""

_OPTIONS: Final = ("--from", "--to", "--before")


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets of a partition: the first one, and the end."""

    first: int
    end: int


def read_where(text: str) -> Where:
    """Read a place.

    Raises:
        ArgumentTypeError: it is invalid; the message has the accepted forms.
    """
    try:
        return where_of(text, wall_ms())
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def times_joined(argv: Iterable[str]) -> list[str]:
    """``--from -10m`` as ``--from=-10m``: argparse parses the second word as an option."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in _OPTIONS and re.match(r"-\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def tell_presumed(where: Where | None, option: str) -> None:
    """Print the resolved time on stderr, if no zone was given."""
    if where is not None and where.presumed:
        say(f"{option}: {where.as_time} (no zone was given: this machine's is presumed)")


# ---------------------------------------------------------------- looking it up


def ranges(
    admin: Admin, partitions: Iterable[TopicPartition], isolation_level: str = "read_uncommitted"
) -> dict[TopicPartition, Range]:
    """The offset range of each partition."""
    found = admin.log_ranges(partitions, isolation_level=isolation_level)
    return {tp: Range(first, end) for tp, (first, end) in found.items()}


def refuse_outside(where: Where, held: dict[TopicPartition, Range]) -> None:
    """For commands that change something: refuse a number that is not an offset of a partition.

    Raises:
        CommandError: names the partition and its range.
    """
    if where.kind != "offset":
        return
    for tp, each in held.items():
        if not each.first <= where.number <= each.end:
            raise CommandError(
                f"{spelled(tp)} has offsets {each.first} to {each.end}; {where.number} is outside"
            )


def offsets(
    admin: Admin, where: Where, held: dict[TopicPartition, Range], settings: Mapping[str, Any]
) -> dict[TopicPartition, int]:
    """The offset of ``where`` in each partition, within the partition's range.

    Args:
        settings: of a consumer, which checks the timestamps of records.
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
            # The found record may have been written after the ranges were looked up.
            found = by_own_times(settings, times, told, {tp: each.end for tp, each in held.items()})
            return {tp: each.end if (at := found[tp]) is None else at for tp, each in held.items()}
