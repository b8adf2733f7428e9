"""The partitions of a query, and its starts and ends in them, as values parsed from the options.

A `Place` is a rule that gives an offset for each partition after a look-up. `resolve` makes the look-ups, through
`Lookups`, with one call for each kind; driver and batch planning both use it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kadence.errors import ConfigError, UnknownTopicOrPartitionError
from kadence.types import TopicPartition
from kadence_spark.numbers import LARGEST, whole_number
from kadence_spark.source.java_regex import compiled

__all__ = [
    "AtOffsets",
    "AtTimestamp",
    "AtTimestamps",
    "Everywhere",
    "Found",
    "Lookups",
    "Partitions",
    "Pattern",
    "Place",
    "Subscription",
    "Topics",
    "check_existence",
    "found_at",
    "offsets_place",
    "read_assign",
    "read_pattern",
    "read_subscribe",
    "resolve",
    "timestamp_place",
    "timestamps_place",
    "told",
]

# ---------------------------------------------------------------- which partitions


@dataclass(frozen=True, slots=True)
class Subscription:
    """All partitions of these topics, including later ones."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics whose name contains a match of a Java regular expression, except Kafka's own."""

    text: str

    def matches(self, topic: str) -> bool:
        """Whether the topic belongs to it."""
        return compiled(self.text).search(topic) is not None


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


Topics = Subscription | Pattern | Partitions


def belongs(partition: TopicPartition, topics: Topics) -> bool:
    """Whether the partition is in the options."""
    match topics:
        case Subscription(names):
            return partition.topic in names
        case Pattern():
            return topics.matches(partition.topic)
        case Partitions(partitions):
            return partition in partitions


def read_subscribe(text: str) -> Subscription:
    """``"a, b"``."""
    names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not names:
        raise ConfigError(
            "option subscribe names no topic, e.g. subscribe='orders,payments'", key="subscribe"
        )
    return Subscription(names)


def read_pattern(text: str) -> Pattern:
    """A regular expression in Java's language, see `kadence_spark.source.java_regex`."""
    text = text.strip()
    if not text:
        raise ConfigError(
            "option subscribePattern is empty; it would match every topic, which .* says clearly",
            key="subscribePattern",
        )
    try:
        compiled(text)
    except ConfigError as problem:
        raise ConfigError(f"option subscribePattern: {problem}", key="subscribePattern") from None
    return Pattern(text)


def read_assign(text: str) -> Partitions:
    """``{"topic": [0, 1]}``."""
    example = '{"topic":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, numbers in _json_object("assign", text, example).items():
        if not isinstance(numbers, list) or not all(_is_count(number) for number in numbers):
            raise ConfigError(
                f"option assign: {topic!r} needs a list of partition numbers, e.g. {example}", key="assign"
            )
        found.update(TopicPartition(topic, number) for number in numbers)
    if not found:
        raise ConfigError(f"option assign names no partition, e.g. {example}", key="assign")
    return Partitions(tuple(sorted(found)))


def check_existence(topics: Topics, found: Iterable[TopicPartition]) -> None:
    """Check that the topics and partitions of the options exist.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition in the options does not exist (yet).
    """
    present = set(found)
    missing: list[str] = []
    if isinstance(topics, Subscription):
        missing = sorted(set(topics.names) - {partition.topic for partition in present})
    elif isinstance(topics, Partitions):
        missing = [str(partition) for partition in topics.partitions if partition not in present]
    if missing:
        error = UnknownTopicOrPartitionError(
            f"the query reads {', '.join(missing)}, which the cluster does not have; create it first, or check "
            "the option's spelling and what the query's user may see"
        )
        error.retriable = False  # the client has waited for a new topic already; a typo need not wait longer
        raise error


# ---------------------------------------------------------------- where in them


class Found(enum.Enum):
    """Offsets that need a look-up. The value is the word in the options."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same in every partition. One without a committed offset starts at the earliest, so nothing is missed."""

    found: Found


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset, or the word for one, for each partition; all partitions must be named."""

    option: str
    offsets: Mapping[TopicPartition, int | Found]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after one time (ms since 1970) in every partition."""

    option: str
    timestamp: int
    or_latest: bool


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time of its own for each partition; all partitions must be named."""

    option: str
    timestamps: Mapping[TopicPartition, int]
    or_latest: bool


Place = Everywhere | AtOffsets | AtTimestamp | AtTimestamps


def found_at(place: Place, partition: TopicPartition) -> Found | None:
    """The word of a place in one partition; None: the options have an offset or a time."""
    match place:
        case Everywhere(found):
            return found
        case AtOffsets(_, offsets):
            at = offsets[partition]
            return at if isinstance(at, Found) else None
        case _:
            return None


def told(place: Place) -> str:
    """The user's setting, for errors: the option's name, or the word."""
    return place.found.value if isinstance(place, Everywhere) else place.option


_JSON_WORDS = {-2: Found.EARLIEST, -1: Found.LATEST}


def offsets_place(option: str, text: str, allowed: Iterable[Found]) -> Place:
    """StartingOffsets and endingOffsets: a word, or JSON with an offset for each partition."""
    words = {found.value: found for found in allowed}
    word = text.strip().lower()
    if word in words:
        return Everywhere(words[word])
    if not word.startswith("{"):
        choice = ", ".join(words)
        raise ConfigError(
            f"option {option}: {text!r} is not one of {choice}, and not JSON such as "
            '{"topic":{"0":23,"1":-1}}',
            key=option,
        )
    offsets: dict[TopicPartition, int | Found] = {}
    for partition, number in _partition_numbers(option, text, low=-2).items():
        found = _JSON_WORDS.get(number)
        if found is not None and found not in words.values():
            raise ConfigError(
                f"option {option}: {number} ({found.value}) is not allowed here, see {partition}", key=option
            )
        offsets[partition] = number if found is None else found
    return AtOffsets(option, offsets)


def timestamp_place(option: str, text: str, *, or_latest: bool) -> Place:
    """StartingTimestamp and endingTimestamp."""
    ms = whole_number(text)
    if ms is None:
        raise ConfigError(f"option {option}: {text!r} is not a time in milliseconds since 1970", key=option)
    return AtTimestamp(option, ms, or_latest)


def timestamps_place(option: str, text: str, *, or_latest: bool) -> Place:
    """StartingOffsetsByTimestamp and endingOffsetsByTimestamp."""
    return AtTimestamps(option, _partition_numbers(option, text, low=0), or_latest)


class Lookups(Protocol):
    """The look-ups of offsets at brokers."""

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]: ...

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]: ...


def resolve(
    place: Place, partitions: Iterable[TopicPartition], brokers: Lookups
) -> dict[TopicPartition, int]:
    """The offset of ``place`` in each of ``partitions``.

    Raises:
        ConfigError: the option does not have exactly these partitions, or no record is as late as its timestamp.
    """
    wanted = sorted(set(partitions))
    match place:
        case Everywhere(found):
            return _ask(found, wanted, brokers)
        case AtOffsets(option, offsets):
            _must_name_all(option, offsets, wanted)
            resolved = {p: offset for p, offset in offsets.items() if isinstance(offset, int)}
            for found in Found:
                resolved |= _ask(found, [p for p in wanted if offsets[p] is found], brokers)
            return resolved
        case AtTimestamp(option, timestamp, or_latest):
            return _at_times(option, dict.fromkeys(wanted, timestamp), brokers, or_latest=or_latest)
        case AtTimestamps(option, timestamps, or_latest):
            _must_name_all(option, timestamps, wanted)
            return _at_times(option, timestamps, brokers, or_latest=or_latest)


def _ask(found: Found, wanted: list[TopicPartition], brokers: Lookups) -> dict[TopicPartition, int]:
    if not wanted:
        return {}
    if found is Found.EARLIEST:
        return brokers.log_starts(wanted)
    if found is Found.LATEST:
        return brokers.log_ends(wanted)
    return _or_else(brokers.committed(wanted), brokers.log_starts)


def _at_times(
    option: str,
    times: Mapping[TopicPartition, int],
    brokers: Lookups,
    *,
    or_latest: bool,
) -> dict[TopicPartition, int]:
    if not times:
        return {}
    # The end first: otherwise a record written between the two look-ups would be skipped.
    ends = brokers.log_ends(times) if or_latest else {}
    offsets = brokers.offsets_for_times(times)
    late = [p for p in times if offsets.get(p) is None]
    if late and not or_latest:
        raise ConfigError(
            f"option {option}: no record of {', '.join(map(str, late))} is as late as {times[late[0]]}; choose an "
            "earlier time, or set startingOffsetsByTimestampStrategy=latest to start those at their end",
            key=option,
        )
    return {p: ends[p] if (offset := offsets.get(p)) is None else offset for p in times}


def _or_else(
    offsets: Mapping[TopicPartition, int | None],
    fallback: Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    known = {p: offset for p, offset in offsets.items() if offset is not None}
    unknown = [p for p, offset in offsets.items() if offset is None]
    return known | (fallback(unknown) if unknown else {})


def _must_name_all(option: str, named: Mapping[TopicPartition, Any], wanted: list[TopicPartition]) -> None:
    missing = [str(p) for p in wanted if p not in named]
    extra = [str(p) for p in sorted(named) if p not in wanted]
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] * bool(missing)
        parts += [f"names {', '.join(extra)}, which the query does not read"] * bool(extra)
        raise ConfigError(
            f"option {option} must name every partition of the query and no other, but it {' and '.join(parts)}",
            key=option,
        )


# ---------------------------------------------------------------- JSON of the options


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"option {option}: {text!r} is not JSON ({problem}); e.g. {example}", key=option
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f"option {option}: {text!r} is not a JSON object; e.g. {example}", key=option)
    return value


def _partition_numbers(option: str, text: str, *, low: int) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23}}``."""
    example = '{"topic":{"0":23,"1":42}}'
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(option, text, example).items():
        if not isinstance(partitions, dict):
            raise ConfigError(
                f"option {option}: {topic!r} needs an object of partitions; e.g. {example}", key=option
            )
        for partition, number in partitions.items():
            place = whole_number(partition)
            if place is None:
                raise ConfigError(
                    f"option {option}: {partition!r} is not a partition number; e.g. {example}", key=option
                )
            if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= LARGEST:
                raise ConfigError(
                    f"option {option}: {topic}-{partition} needs a whole number >= {low}, not {number!r}",
                    key=option,
                )
            numbers[TopicPartition(topic, place)] = number
    return numbers


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
