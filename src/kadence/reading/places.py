"""Where a reading begins and ends, as people say it, and which offsets that is in each partition.

Only what can mean one thing is taken: a time has a zone, and a number is never an offset and a time at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from kadence.consumer.consumer import Consumer
from kadence.errors import UnknownTopicOrPartitionError
from kadence.reading.by_time import by_own_times
from kadence.types import TopicPartition

__all__ = ["Moment", "Place", "Ranges", "place_of", "planned"]

Moment: TypeAlias = str | datetime | Mapping[Any, int]
"""``"earliest"``, ``"latest"``, ``"-1h"``, ISO 8601 with a zone, a datetime with a zone, or an offset by partition."""

Place: TypeAlias = int | Mapping[Any, int]
"""A timestamp of ListOffsets (−2 earliest, −1 latest, ms since 1970), or an offset by partition."""

Ranges: TypeAlias = dict[TopicPartition, tuple[int, int]]
"""Of each partition the first offset, and the one behind the last."""

EARLIEST: Final = -2
LATEST: Final = -1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TAKEN: Final = (
    '"earliest", "latest", so long ago ("-90s", "-15m", "-1h", "-7d", "-2w"), ISO 8601 with a zone '
    '("2026-11-22T10:30+01:00", "2026-11-22T09:30Z"), a datetime with a zone, or a mapping of offsets ({0: 1200})'
)


def place_of(given: Moment, name: str, now_ms: int) -> Place:
    """What was given as ``name``, as a place.

    Args:
        now_ms: the wall clock, from which ``"-1h"`` counts.

    Raises:
        TypeError, ValueError: it is none; the message says what is taken.
    """
    if isinstance(given, str):
        return _place_of_text(given.strip(), name, now_ms)
    if isinstance(given, datetime):
        return _ms(given, name, repr(given))
    if isinstance(given, Mapping):
        for partition, offset in given.items():
            if not _is_offset(offset):
                raise ValueError(
                    f"{name}: an offset is a whole number >= 0, not {offset!r} for {partition!r}"
                )
        return given
    raise TypeError(f"{name} is {_TAKEN}; not {given!r}")


def _is_offset(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _place_of_text(text: str, name: str, now_ms: int) -> int:
    if text in _ENDS:
        return _ENDS[text]
    if ago := _AGO.fullmatch(text):
        return max(now_ms - int(float(ago[1]) * _SECONDS[ago[2]] * 1000), 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{name} is {_TAKEN}; not {text!r}") from None
    return _ms(moment, name, repr(text))


def _ms(moment: datetime, name: str, shown: str) -> int:
    if moment.tzinfo is None:
        raise ValueError(
            f"{name}: {shown} names no zone, and its hour is another one in another place; write "
            '"2026-11-22T10:30+01:00", "2026-11-22T09:30Z", or give a datetime with a tzinfo'
        )
    # As whole numbers, and a part of a millisecond is rounded up: the first record at or after it is meant.
    ms = -((_EPOCH - moment) // timedelta(milliseconds=1))
    if ms < 0:
        raise ValueError(f"{name}: records have no times before 1970, and {shown} is one")
    return ms


# ---------------------------------------------------------------- looking it up


def planned(
    consumer: Consumer[Any, Any],
    topics: Sequence[str],
    numbers: Iterable[int] | None,
    since: Place,
    until: Place,
    settings: Mapping[str, Any],
) -> Ranges:
    """The range of each partition, inside of what its log holds now; some may be empty.

    Args:
        numbers: the partitions of each topic to read; None: all. settings: those of the consumer.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic or partition. ValueError: a mapping names a partition
            that is not read.
    """
    partitions = [each for topic in topics for each in _partitions(consumer, topic, numbers)]
    firsts, lasts = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    starts = _offsets(consumer, since, firsts, lasts, topics, "since", settings)
    ends = _offsets(consumer, until, firsts, lasts, topics, "until", settings)
    return {p: (min(starts[p], ends[p]), ends[p]) for p in partitions}


def _partitions(
    consumer: Consumer[Any, Any], topic: str, numbers: Iterable[int] | None
) -> list[TopicPartition]:
    there = sorted(info.partition for info in consumer.partitions_for(topic))
    if not there:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
    wanted = there if numbers is None else list(dict.fromkeys(numbers))
    for number in wanted:
        if number not in there:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {number!r}; it has {there[0]} to {there[-1]}"
            )
    return [TopicPartition(topic, number) for number in wanted]


def _offsets(
    consumer: Consumer[Any, Any],
    place: Place,
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    topics: Sequence[str],
    name: str,
    settings: Mapping[str, Any],
) -> dict[TopicPartition, int]:
    if place == EARLIEST:
        return dict(firsts)
    if place == LATEST:
        return dict(lasts)
    if isinstance(place, Mapping):
        given = {_named(partition, firsts, topics, name): offset for partition, offset in place.items()}
        # What is not named is read as if nothing had been said.
        usual = firsts if name == "since" else lasts
        return {p: min(max(given.get(p, usual[p]), firsts[p]), lasts[p]) for p in firsts}
    times = dict.fromkeys(firsts, place)
    told = {p: None if at is None else at.offset for p, at in consumer.offsets_for_times(times).items()}
    found = by_own_times(settings, times, told, lasts)
    # Nothing is so late. Or a record came after the ends were looked up, and is what the time leads to.
    return {p: lasts[p] if (at := found[p]) is None else at for p in firsts}


def _named(
    given: Any, read: Mapping[TopicPartition, int], topics: Sequence[str], name: str
) -> TopicPartition:
    pair = (topics[0], given) if isinstance(given, int) and len(topics) == 1 else given
    partition = TopicPartition(*pair) if isinstance(pair, tuple) and len(pair) == 2 else None
    if partition is None or partition not in read:
        raise ValueError(
            f"{name}: {given!r} is no partition that is read; the keys of a mapping are partitions: a number where one "
            "topic is read, or (topic, number)"
        )
    return partition
