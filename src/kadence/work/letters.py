"""What is written in place of a record that failed: its dead letter, or its record in a retry topic (H5, H9). Pure.

The one place that makes letters: for `Consumer.process`, for a consumer with ``deserialization.errors=dead-letter``,
and for ``kadence dead-letters replay``, which sends a record back (`replayed`).

Each is the record as it was, its bytes and its headers, with headers of ours behind them. It has the time of writing,
for a topic deletes records by their age, and where this one came from it is done. The record's own time is a header. A
record that has been in a retry topic keeps the place from which it came first.

A record of a dead letter topic that fails again becomes a dead letter like any other: its headers, also those about its
first error, stay before the new ones, and `replayed` takes away the new ones alone. So each replay leads one step back,
until the record is where it came from first. Headers that name the topic in which the record fails now are left out: a
record that goes round between topics does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kadence.errors import RecordDeserializationError, WorkerStartError
from kadence.errors.remedies import Remedy, remedy_of
from kadence.printable import printable, text_of
from kadence.records import MOST_HEADERS, Record

__all__ = [
    "ERROR",
    "OF_PIPELINES",
    "BadRecord",
    "Letter",
    "ProducerRecord",
    "ResultError",
    "Shorter",
    "attempts_of",
    "bad_record",
    "dead_letter",
    "due_at",
    "is_of_all",
    "named",
    "number_in",
    "parted",
    "place_of",
    "replayed",
    "retry_record",
    "shorter",
    "with_its_time",
]

ERROR: Final = "kadence.error."
_RETRY: Final = "kadence.retry."
_REPLAY: Final = "kadence.replay."

OF_PIPELINES: Final[dict[str, str]] = {
    "kadence.topic": "topic",
    "kadence.partition": "partition",
    "kadence.offset": "offset",
    "kadence.timestamp": "timestamp",
    "kadence.reason": "message",
    "kadence.pipeline": "pipeline",
    "kadence.run_id": "run",
}
"""The headers of a pipeline's dead letters, in their order, and what `ERROR` comes before for the same."""

_BEGINS: Final = (ERROR + "topic", "kadence.topic")

_TIME: Final = "timestamp"
_MESSAGE_CHARACTERS: Final = 2_000

_SHORT_MESSAGE: Final = 100
"""So many bytes of an exception's message are left where the topic of dead letters does not take more."""


_Headers: TypeAlias = "list[tuple[str, bytes | None]]"


class ProducerRecord(NamedTuple):
    """A record to be sent, which a handler returns or yields.

    Attributes:
        topic: where to. value: bytes, or what the producer's ``value.serializer`` takes. key: as value.
        partition: None: the partitioner chooses. timestamp: ms since 1970; None: now. headers: pairs of name and bytes.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Letter(ProducerRecord):
    """A dead letter or a retry record, and what is to be known if it is too large for its topic.

    Attributes:
        counter: of the desk: ``dead_lettered`` or ``retried``. error: of the last attempt.
        instead: the dead letter that is written if a retry record is too large; None: there is none.
    """

    counter: str
    error: BaseException
    instead: Letter | None

    @classmethod
    def of(
        cls, record: ProducerRecord, counter: str, error: BaseException, instead: Letter | None = None
    ) -> Letter:
        """Such a letter."""
        letter = cls(*record)
        letter.counter = counter
        letter.error = error
        letter.instead = instead
        return letter


class ResultError(TypeError):
    """A handler returned what cannot be sent. It says so of each record, so it ends the processing."""


class UndecidedError(Exception):
    """A record could not be decoded, and is not bad for all we know: its cause says that no schema registry answers."""


def is_of_all(error: BaseException) -> bool:
    """Whether every record would end so: that is no matter of one, and ends the processing."""
    return isinstance(error, (ResultError, WorkerStartError))


def named(record: Record[Any, Any]) -> str:
    """A record in the words of logs and probes: its place, and how long its key is. What the key says may be secret."""
    key = record.key
    return place_of(record) + (f" (key of {len(key)} bytes)" if isinstance(key, bytes) else "")


def place_of(record: Record[Any, Any]) -> str:
    """Topic, partition and offset of a record, for logs."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def _header(record: Record[Any, Any], name: str) -> bytes | None:
    """The last header of that name."""
    return next((value for each, value in reversed(record.headers) if each == name), None)


def number_in(header: bytes | None, most: int = 2**63 - 1) -> int | None:
    """The number that a header is; None if it is none from 0 to ``most``: whoever may write to the topic chose it."""
    try:
        found = int(header or b"")
    except ValueError:
        return None
    return found if 0 <= found <= most else None


def _number(record: Record[Any, Any], name: str, default: int) -> int:
    found = number_in(_header(record, name))
    return default if found is None else found


def attempts_of(record: Record[Any, Any]) -> int:
    """How many attempts failed before the record came from a retry topic; 0 for others."""
    return _number(record, _RETRY + "attempts", 0)


def due_at(record: Record[Any, Any]) -> int:
    """When a record of a retry topic is due, ms since 1970; 0 for others."""
    return _number(record, _RETRY + "at", 0)


def with_its_time(record: Record[Any, Any]) -> Record[Any, Any]:
    """A record of a retry topic as handlers get it: with the time that it had where it came from."""
    time = _time_of(record)
    if time == record.timestamp:
        return record
    return Record(
        record.topic,
        record.partition,
        record.offset,
        time,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def _time_of(record: Record[Any, Any]) -> int:
    """A record's own time, in ms since 1970, though it was written anew since; -1: it has none."""
    copied = next((name for name in (_RETRY, _REPLAY) if _header(record, name + _TIME) is not None), None)
    return record.timestamp if copied is None else _number(record, copied + _TIME, record.timestamp)


def _time(record: Record[Any, Any], prefix: str) -> _Headers:
    time = _time_of(record)
    return [(prefix + _TIME, b"%d" % time)] if time >= 0 else []


def retry_record(
    record: Record[Any, Any], topic: str, error: BaseException, attempts: int, at: int, now: int
) -> ProducerRecord:
    """The record in the retry topic, to be tried again at ``at``. ``at`` and ``now`` are ms since 1970."""
    return _copy(
        record,
        topic,
        list(record.headers),
        [
            (_RETRY + "attempts", b"%d" % attempts),
            (_RETRY + "at", b"%d" % at),
            (_RETRY + "first", b"%d" % _number(record, _RETRY + "first", now)),
            *_origin(record, _RETRY),
            (_RETRY + "class", type(error).__name__.encode()),
        ],
    )


def dead_letter(
    record: Record[Any, Any],
    topic: str,
    error: BaseException,
    attempts: int,
    first_ms: int,
    now: int,
    group: str | None,
) -> ProducerRecord:
    """The record in the dead letter topic. ``first_ms`` (its first attempt) and ``now`` are ms since 1970."""
    return _dead_letter(
        record,
        topic,
        error,
        [
            ("attempts", b"%d" % attempts),
            ("first", b"%d" % _number(record, _RETRY + "first", first_ms)),
            ("last", b"%d" % now),
        ],
        group,
    )


class BadRecord(NamedTuple):
    """A record as it lay in its topic, which part of it is bad (``key`` or ``value``), and what that raised."""

    record: Record[Any, Any]
    field: str
    error: Exception


def bad_record(bad: BadRecord, topic: str, group: str | None) -> Letter:
    """The dead letter of a record that a poll could not decode."""
    record, field, error = bad
    letter = _dead_letter(record, topic, error, [("field", field.encode())], group)
    return Letter.of(letter, "dead_lettered", error)


def _dead_letter(
    record: Record[Any, Any],
    topic: str,
    error: BaseException,
    more: _Headers,
    group: str | None,
) -> ProducerRecord:
    if isinstance(error, RecordDeserializationError):
        more = [("field", error.field.encode()), *more]
        # What the deserialiser raised says why, as where a poll decodes.
        error = error.__cause__ or error
    headers: _Headers = [
        *_origin(record, ERROR),
        (ERROR + "class", type(error).__name__.encode()),
        (ERROR + "message", printable(text_of(error))[:_MESSAGE_CHARACTERS].encode(errors="replace")),
        *((ERROR + name, value) for name, value in more),
    ]
    if group is not None:
        headers.append((ERROR + "group", group.encode()))
    return _copy(record, topic, _not_from(headers[0][1], record.headers), headers)


def replayed(letter: Record[Any, Any], topic: str, partition: int | None) -> ProducerRecord:
    """The record of a dead letter, to be written where it came from: without what the error added."""
    own, added = parted(letter.headers)
    found = number_in(dict(added).get(ERROR + _TIME))
    time = letter.timestamp if found is None else found
    headers: _Headers = [(_REPLAY + _TIME, b"%d" % time)] if time >= 0 else []
    return _copy(letter, topic, own, headers)._replace(partition=partition)


def parted(headers: Sequence[tuple[str, bytes | None]]) -> tuple[_Headers, _Headers]:
    """The headers of a dead letter's record, and those that its last error added.

    These begin with the topic that it came from. Where none names one, all headers about errors are meant. Those of a
    pipeline get the names that they have elsewhere.
    """
    start = max((place for place, (name, _) in enumerate(headers) if name in _BEGINS), default=0)
    own, added = list(headers[:start]), []
    of_pipelines = OF_PIPELINES if len(headers) > start and headers[start][0] in OF_PIPELINES else {}
    for name, value in headers[start:]:
        if name in of_pipelines:
            added.append((ERROR + of_pipelines[name], value))
        elif name.startswith(ERROR) and not of_pipelines:
            added.append((name, value))
        else:
            own.append((name, value))
    return own, added


class Shorter(NamedTuple):
    """A letter in place of one that its topic does not take for its size.

    Attributes:
        letter: what is written. part: what was left out, in words. size: its bytes.
    """

    letter: Letter
    part: str
    size: int

    def said(self, record: Record[Any, Any], error: BaseException) -> str:
        """A line for the log."""
        return (
            f"the dead letter of {place_of(record)} is too large for {self.letter.topic}, and is written without "
            f"{self.part} ({self.size} bytes): {error}"
        )


def shorter(letter: Letter, error: BaseException) -> Shorter | None:
    """What is written in place of a dead letter that was refused with this error; None: nothing else can be.

    It goes without its value; else without the headers of its record; else without its key. A message of the exception
    that is longer than the value is shortened before it. A header says how many bytes were left out, for its topic does
    not take them. Where the record came from stays.
    """
    return _shortened(letter) if remedy_of(error) is Remedy.FORM else None


def _shortened(letter: Letter) -> Shorter | None:
    own, ours = parted(letter.headers)
    message = dict(ours)[ERROR + "message"] or b""
    if len(message) > max(len(letter.value or b""), _SHORT_MESSAGE):
        short = message[:_SHORT_MESSAGE].decode(errors="ignore").encode()
        part, size, made = "message", len(message) - len(short), ProducerRecord(*letter)
        ours = [(name, short if name == ERROR + "message" else value) for name, value in ours]
    elif letter.value:
        part, size, made = "value", len(letter.value), letter._replace(value=None)
    elif own:
        size = sum(len(name.encode(errors="replace")) + len(value or b"") for name, value in own)
        part, made, own = "headers", ProducerRecord(*letter), []
    elif letter.key:
        part, size, made = "key", len(letter.key), letter._replace(key=None)
    else:
        return None
    ours.append((f"{ERROR}{part}.bytes", b"%d" % size))
    made = made._replace(headers=(*own[: MOST_HEADERS - len(ours)], *ours))
    words = "the rest of its exception's message" if part == "message" else f"its {part}"
    return Shorter(Letter.of(made, letter.counter, letter.error), words, size)


def _origin(record: Record[Any, Any], prefix: str) -> _Headers:
    came_from = _header(record, _RETRY + "topic")
    if came_from is not None:
        return [
            (prefix + "topic", came_from),
            (prefix + "partition", _header(record, _RETRY + "partition")),
            (prefix + "offset", _header(record, _RETRY + "offset")),
            *_time(record, prefix),
        ]
    return [
        (prefix + "topic", record.topic.encode()),
        (prefix + "partition", b"%d" % record.partition),
        (prefix + "offset", b"%d" % record.offset),
        *_time(record, prefix),
    ]


def _copy(record: Record[Any, Any], topic: str, own: _Headers, headers: _Headers) -> ProducerRecord:
    """The record with these headers behind its own. Without a timestamp: it gets the time at which it is sent."""
    kept = [each for each in own if not each[0].startswith((_RETRY, _REPLAY))]
    return ProducerRecord(
        topic,
        record.value,
        record.key,
        headers=(*kept[: MOST_HEADERS - len(headers)], *headers),
    )


def _not_from(topic: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> _Headers:
    """Headers without what says that the record came from this topic, and what errors added after that."""
    start = next(
        (at for at, (name, value) in enumerate(headers) if name in _BEGINS and value == topic), len(headers)
    )
    return [
        (name, value)
        for at, (name, value) in enumerate(headers)
        if at < start or not (name.startswith(ERROR) or name in OF_PIPELINES)
    ]
