"""Checks and converts the arguments of the consumer's calls. Application side, pure.

A value of a wrong type is refused here, in the caller's stack. On the network thread it would raise an error that
ends the consumer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import index
from typing import Any, Final, Literal, SupportsIndex, cast

from kadence.config.table import is_coroutine_function
from kadence.consumer.application.callbacks import AsyncRebalanceListener
from kadence.consumer.decoded_records import Records
from kadence.errors import ConfigError, InvalidTopicError
from kadence.records import ALL_COLUMNS, OWN_COLUMNS, Record
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "NO_CAP",
    "Assignable",
    "Offsets",
    "Partition",
    "Partitions",
    "StartOfTopics",
    "Timestamps",
    "callback_of",
    "cap",
    "columns_of",
    "given",
    "is_among",
    "listener_of",
    "partition_of",
    "partitions_of",
    "pattern_of",
    "ranges",
    "refuse_own_dead_letters",
    "target",
    "text",
    "time_of_topics",
    "timestamps_of",
    "to_offsets",
    "topic_name",
    "topic_names",
]

NO_CAP = 2**31 - 1
_INT32, _INT64 = 2**31 - 1, 2**63 - 1

Partition = TopicPartition | tuple[str, int]
"""Argument of calls for one partition."""

Partitions = Partition | Iterable[Partition]
"""Argument of calls for partitions: several, or one."""

# The keys of a Mapping are not covariant, so each type of keys is named by itself.
Start = int | OffsetAndMetadata
Span = Start | tuple[Start, int]
Assignable = Partitions | Mapping[TopicPartition, Span] | Mapping[tuple[str, int], Span]
"""What assign() takes: partitions, or a mapping with the offset where each begins, or with (start, end) of a range."""

StartOfTopics = Literal["earliest", "latest"] | datetime | int
"""Where assign_topics() begins or ends: an end of the log, or a time (a datetime with a timezone, or ms since 1970)."""

Offsets = (
    Mapping[TopicPartition, Start]
    | Mapping[tuple[str, int], Start]
    | Record[Any, Any]
    | Iterable[Record[Any, Any]]
)
"""What commit() takes: next offsets by partition, or records that are done."""

Timestamps = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""What offsets_for_times() takes: a time by partition."""

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ENDS: Final = {"earliest": -2, "latest": -1}
_STEPS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
_FLAGS: Final = {re.ASCII: "a", re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


def given(**settings: Any) -> dict[str, Any]:
    """The settings that the caller passed, without those that are None."""
    return {name: value for name, value in settings.items() if value is not None}


def cap(max_records: int | None, default: int) -> int:
    """The most records of one poll; −1 is no cap (A1)."""
    chosen = default if max_records is None else max_records
    if chosen == -1:
        return NO_CAP
    # Checking against a protocol costs as much as a hundred records, and nearly all callers pass an int.
    if type(chosen) is not int and not isinstance(chosen, SupportsIndex):
        raise TypeError(f"max_records is a whole number, not {chosen!r}")
    if not 1 <= chosen <= NO_CAP:
        raise ValueError(
            f"max_records must be at least 1 and at most {NO_CAP}, or -1 for no cap, not {chosen}"
        )
    return chosen


def text(given: str, what: str) -> str:
    """A string that can be encoded as UTF-8.

    Raises:
        ValueError: UTF-8 cannot encode it.
    """
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be encoded as UTF-8: {given!r} ({error.reason})") from None
    return given


def topic_name(name: object) -> str:
    """The name of a topic, which may be one that Kafka does not allow."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name is a str, not {name!r}")
    return text(name, "a topic's name")


def topic_names(topics: str | Iterable[str]) -> frozenset[str]:
    """Names that Kafka allows.

    Raises:
        InvalidTopicError: one of them is not.
    """
    whatever: object = topics
    if isinstance(whatever, bytes | bytearray) or not isinstance(whatever, Iterable):
        raise TypeError(f"topics are names, such as 'orders' or ['orders', 'returns'], not {whatever!r}")
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if not _TOPIC_NAME.fullmatch(topic_name(name)) or name in (".", ".."):
            raise InvalidTopicError(
                f"{name!r} is not a topic name: use 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'"
            )
    return frozenset(names)


def pattern_of(pattern: re.Pattern[Any]) -> str:
    """The text of a compiled pattern, with its flags inline."""
    text = pattern.pattern
    if not isinstance(text, str):
        raise TypeError(f"a pattern of topics is a str, not {text!r}")
    if re.compile(text).flags == pattern.flags:
        return text
    letters = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{letters})" + re.sub(r"\A\(\?[aiLmsux]+\)", "", text)


def is_among(topic: str, names: Collection[str] | None, pattern: str | None) -> bool:
    """Whether a subscription includes this topic: by name, or by a pattern that the client matches."""
    if names:
        return topic in names
    return pattern is not None and re.fullmatch(pattern, topic) is not None


def refuse_own_dead_letters(letters: str | None, names: Collection[str], pattern: str | None = None) -> None:
    """Refuse these topics if the dead letter topic ``letters`` is one of them.

    Raises:
        ConfigError: it is.
    """
    if letters is not None and is_among(letters, names, pattern):
        raise ConfigError(
            f"dead.letter.topic={letters!r} is among these topics: a bad record would come again as its own dead "
            "letter, without end"
        )


def listener_of(given: object, *, awaits: bool) -> AsyncRebalanceListener | None:
    """A listener, or an object with all of its methods. ``awaits``: these may be coroutine functions."""
    if given is None:
        return None
    if isinstance(given, type):
        raise TypeError(f"listener: {given.__name__} is a class; give an object: {given.__name__}()")
    for name in _STEPS:
        method = getattr(given, name, None)
        if not callable(method):
            base = "AsyncRebalanceListener" if awaits else "RebalanceListener"
            raise TypeError(f"listener: {given!r} has no {name}(); subclass kadence.{base}")
        _check_awaited(f"{name}() of the listener", method, awaits=awaits)
    return cast(AsyncRebalanceListener, given)


def callback_of(given: object, *, awaits: bool, takes: str = "(offsets, error)") -> Callable[..., Any] | None:
    """The callback of a commit. ``awaits``: it may be a coroutine function. ``takes``: its arguments, for the error."""
    if given is None:
        return None
    if not callable(given):
        raise TypeError(f"callback must be a function of {takes}, not {given!r}")
    _check_awaited("the callback", given, awaits=awaits)
    return given


def _check_awaited(what: str, given: object, *, awaits: bool) -> None:
    if not awaits and is_coroutine_function(given):
        raise TypeError(f"{what} is a coroutine function, which Consumer does not await; AsyncConsumer does")


def partition_of(given: object) -> TopicPartition:
    """One partition, given as such or as a pair."""
    # The usual case first: isinstance with `SupportsIndex` takes ten times as long as all the rest.
    if (
        type(given) is TopicPartition
        and type(given.topic) is str
        and given.topic.isascii()
        and type(given.partition) is int
        and 0 <= given.partition <= _INT32
    ):
        return given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, SupportsIndex):
            return TopicPartition(topic_name(topic), _whole(number, "a partition's number", _INT32))
    more = "; all of a topic is read by subscribe(), or by assign_topics()" if isinstance(given, str) else ""
    raise TypeError(f"a partition is TopicPartition(topic, number) or (topic, number), not {given!r}{more}")


def columns_of(columns: Sequence[str] | None, *, headers: bool) -> tuple[str, ...]:
    """The columns that `poll_arrow` makes, by name."""
    if columns is None:
        return ALL_COLUMNS if headers else OWN_COLUMNS
    if headers:
        raise ValueError("headers=True applies only without columns=; name 'headers' in columns= instead")
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, such as [{columns!r}], not {columns!r}")
    return _known_columns(tuple(columns))


@lru_cache(maxsize=128)
def _known_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise ValueError(f"columns is empty; choose from {', '.join(ALL_COLUMNS)}")
    for number, name in enumerate(columns):
        if name not in ALL_COLUMNS:
            raise ValueError(f"no column {name!r}; choose from {', '.join(ALL_COLUMNS)}")
        if name in columns[:number]:
            raise ValueError(f"column {name!r} is named twice")
    return columns


def partitions_of(partitions: Partitions) -> tuple[TopicPartition, ...]:
    """Partitions without repetition, in the order given."""
    given: object = partitions
    # A string is not split into letters: it is refused as a whole. A pair with a topic is one partition.
    if isinstance(given, TopicPartition | str) or (
        isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    ):
        return (partition_of(given),)
    if not isinstance(given, Iterable):
        raise TypeError(
            f"partitions must be one partition, or several such as [TopicPartition(topic, number)], not {given!r}"
        )
    return tuple(dict.fromkeys(map(partition_of, given)))


def ranges(
    partitions: Assignable,
) -> tuple[dict[TopicPartition, tuple[int, int | None]], dict[TopicPartition, int | None]]:
    """Start and end (None: no end) of the partitions that were given with an offset."""
    starts: dict[TopicPartition, tuple[int, int | None]] = {}
    ends: dict[TopicPartition, int | None] = {}
    given = partitions if isinstance(partitions, Mapping) else {}
    for key, value in given.items():
        partition = partition_of(key)
        if not isinstance(value, tuple):
            starts[partition], ends[partition] = target(value), None
            continue
        if len(value) != 2:
            raise ValueError(f"{partition}: a range is (start, end), not {value!r}")
        start, end = target(value[0]), _whole(value[1], "the end of a range", _INT64)
        if end < start[0]:
            raise ValueError(f"{partition}: a range must not end before it starts: ({start[0]}, {end})")
        starts[partition], ends[partition] = start, end
    return starts, ends


def time_of_topics(given: object, name: str = "start") -> int | None:
    """A start or an end of topics as a timestamp of ListOffsets (−2 earliest, −1 latest, ms since 1970)."""
    if given is None:
        return None
    if isinstance(given, str):
        if given not in _ENDS:
            raise ValueError(f"{name} is 'earliest', 'latest', a datetime or ms since 1970, not {given!r}")
        return _ENDS[given]
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(f"{name}: a datetime needs a timezone, such as datetime.now(UTC), not {given!r}")
        return _whole(math.ceil(given.timestamp() * 1000), name, _INT64)
    return _whole(given, f"{name}, in ms since 1970,", _INT64)


def target(offset: object) -> tuple[int, int | None]:
    """The offset to read from, with the epoch of the record before it if known."""
    if isinstance(offset, OffsetAndMetadata):
        checked = _offset(offset)
        return checked.offset, checked.leader_epoch
    if isinstance(offset, int) and offset < 0:
        raise ValueError(f"an offset must be >= 0, not {offset}; see seek_to_beginning() and seek_to_end()")
    return _whole(offset, "an offset", _INT64), None


def timestamps_of(timestamps: Timestamps) -> dict[TopicPartition, int]:
    """Times whose offsets are to be looked up."""
    found = {}
    for key, timestamp in timestamps.items():
        partition = partition_of(key)
        found[partition] = _whole(timestamp, f"{partition}: a timestamp in ms", _INT64)
    return found


def to_offsets(offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Offsets to commit: for records the offset after the last of each partition, for `Records` their next offsets."""
    if offsets is None:
        return None
    if type(offsets) is Record:
        # Programs commit each record, and isinstance with a protocol takes longer than all the rest.
        partition = TopicPartition(offsets.topic, offsets.partition)
        return {partition: OffsetAndMetadata(offsets.offset + 1, offsets.leader_epoch)}
    if isinstance(offsets, Mapping):
        return {partition_of(partition): _offset(at) for partition, at in offsets.items()}
    if isinstance(offsets, Records):
        return offsets.next_offsets()
    whatever: object = offsets
    if isinstance(whatever, str) or not isinstance(whatever, Iterable):
        # It may be the value of a record (S3).
        raise TypeError(f"commit() takes a mapping of offsets, or records, not {type(whatever).__name__}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in offsets:
        try:
            partition = TopicPartition(record.topic, record.partition)
        except AttributeError:
            raise TypeError(
                f"commit() takes a mapping of offsets, or records, not {type(record).__name__}"
            ) from None
        if partition not in found or found[partition].offset <= record.offset:
            found[partition] = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
    return found


def _offset(at: object) -> OffsetAndMetadata:
    """An offset to commit or to read from, with its epoch and metadata."""
    if not isinstance(at, OffsetAndMetadata):
        return OffsetAndMetadata(_whole(at, "a committed offset", _INT64))
    _whole(at.offset, "an offset", _INT64)
    if not (at.leader_epoch is None or isinstance(at.leader_epoch, int)):
        raise TypeError(f"a leader epoch is an int or None, not {at.leader_epoch!r}")
    if at.leader_epoch is not None and not -1 <= at.leader_epoch <= _INT32:
        raise ValueError(f"a leader epoch must be >= 0 and <= {_INT32}, not {at.leader_epoch}")
    if not isinstance(at.metadata, str):
        raise TypeError(f"the metadata of an offset is a str, not {at.metadata!r}")
    text(at.metadata, "the metadata of an offset")
    return at


def _whole(given: object, what: str, most: int) -> int:
    """A whole number, 0 or more, as an int or another library's integer type."""
    if not isinstance(given, SupportsIndex):
        raise TypeError(f"{what} is a whole number, not {given!r}")
    number = index(given)
    if not 0 <= number <= most:
        raise ValueError(f"{what} must be >= 0{f' and <= {most}' if number > 0 else ''}, not {number}")
    return number
