"""Parses the begin and end of a reading, and looks up their offsets in each partition.

The texts are those of the command line; `kadence.where` parses them. A plain int is refused: it could be an offset or a
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

from kadence.consumer.consumer import Consumer
from kadence.environment import SERVERS
from kadence.errors import ConnectError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kadence.reading.by_time import by_own_times
from kadence.types import PartitionInfo, TopicPartition
from kadence.where import ACCEPTED, Where, at_moment, where_of

__all__ = ["Moment", "Place", "Ranges", "place_of", "planned"]

Moment: TypeAlias = str | date | Mapping[Any, int]
"""A text such as ``"-1h"`` or ``"yesterday"``; a datetime or a date; or an offset by partition."""

Place: TypeAlias = Where | Mapping[Any, int]
"""A parsed `Moment`."""

Ranges: TypeAlias = dict[TopicPartition, tuple[int, int]]
"""The first offset of each partition, and the one behind the last."""


def place_of(given: Moment, name: str, now_ms: int) -> Place:
    """Parse the argument ``name``.

    Args:
        now_ms: the wall clock, from which ``"-1h"`` counts.

    Raises:
        TypeError, ValueError: it is not accepted; the message lists the accepted forms.
    """
    if isinstance(given, Mapping):
        for partition, offset in given.items():
            if not _is_offset(offset):
                raise ValueError(
                    f"{name}: an offset is a whole number >= 0, not {offset!r} for {partition!r}"
                )
        return given
    if not isinstance(given, str | date):
        raise TypeError(
            f"{name} is {ACCEPTED}, a datetime, a date, or a mapping of offsets ({{0: 1200}}); not {given!r}"
        )
    try:
        return where_of(given, now_ms) if isinstance(given, str) else at_moment(given)
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None


def _is_offset(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


# ---------------------------------------------------------------- looking it up


def planned(
    consumer: Consumer[Any, Any],
    topics: Sequence[str],
    numbers: Iterable[int] | None,
    since: Place,
    until: Place,
    settings: Mapping[str, Any],
    reach_s: float | None,
) -> Ranges:
    """The range of each partition, inside of what its log holds now; some may be empty.

    Args:
        numbers: the partitions of each topic to read; None: all. settings: those of the consumer.
        reach_s: how long to try to connect; None: as long as the consumer does.

    Raises:
        KafkaTimeoutError: no address can be connected to, or no broker answers. UnknownTopicOrPartitionError: there is
            no such topic or partition. ValueError: a mapping names a partition that is not read.
    """
    partitions = [each for topic in topics for each in _partitions(consumer, topic, numbers, reach_s)]
    firsts, lasts = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    starts = _offsets(consumer, since, firsts, lasts, topics, "since", settings)
    ends = _offsets(consumer, until, firsts, lasts, topics, "until", settings)
    return {p: (min(starts[p], ends[p]), ends[p]) for p in partitions}


def _found(consumer: Consumer[Any, Any], topic: str, reach_s: float | None) -> list[PartitionInfo]:
    """The partitions of a topic. Waits for slow brokers, but raises soon if none can be connected to."""
    if reach_s is not None:
        try:
            return consumer.partitions_for(topic, timeout=reach_s)
        except KafkaTimeoutError as problem:
            if isinstance(problem.__cause__, ConnectError):
                raise KafkaTimeoutError(
                    f"{problem.__cause__}; name brokers with bootstrap_servers=, or with ${SERVERS}"
                ) from problem.__cause__
    return consumer.partitions_for(topic)


def _partitions(
    consumer: Consumer[Any, Any], topic: str, numbers: Iterable[int] | None, reach_s: float | None
) -> list[TopicPartition]:
    there = sorted(info.partition for info in _found(consumer, topic, reach_s))
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
    if isinstance(place, Mapping):
        given = {_named(partition, firsts, topics, name): offset for partition, offset in place.items()}
        # Partitions without an entry in the mapping get the default.
        usual = firsts if name == "since" else lasts
        return {p: min(max(given.get(p, usual[p]), firsts[p]), lasts[p]) for p in firsts}
    if place.kind != "time":
        return {p: _offset(place, firsts[p], lasts[p]) for p in firsts}
    times = dict.fromkeys(firsts, place.number)
    told = {p: None if at is None else at.offset for p, at in consumer.offsets_for_times(times).items()}
    found = by_own_times(settings, times, told, lasts)
    # Without a record that late, or with one that was written after the ends were looked up, the range ends there.
    return {p: lasts[p] if (at := found[p]) is None else at for p in firsts}


def _offset(place: Where, first: int, last: int) -> int:
    if place.kind == "latest":
        return last
    number = {"offset": place.number, "last": last - place.number}.get(place.kind, first)
    return min(max(number, first), last)


def _named(
    given: Any, read: Mapping[TopicPartition, int], topics: Sequence[str], name: str
) -> TopicPartition:
    pair = (topics[0], given) if isinstance(given, int) and len(topics) == 1 else given
    partition = TopicPartition(*pair) if isinstance(pair, tuple) and len(pair) == 2 else None
    if partition is None or partition not in read:
        raise ValueError(
            f"{name}: {given!r} is not a partition that is read; the keys of a mapping are partitions: a number if "
            "one topic is read, or (topic, number)"
        )
    return partition
