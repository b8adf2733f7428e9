"""Makes the dead letter record or retry record of a record that failed (H5, H9). Pure.

It makes them for `Consumer.process`, for a consumer with ``deserialization.errors=dead-letter``, and for
``kadence dead-letters replay``, which sends a record back (`replayed`).

Each is a copy of the record, its bytes and its headers, with Kadence's headers behind them. Its timestamp is the time
of writing, because topics delete records by age, and this is now the only copy. The record's own timestamp is in a
header. A record that has been in a retry topic keeps the topic, partition and offset where it was first.

A record of a dead letter topic that fails again is written like any other: its headers, including those about its first
error, stay before the new ones, and `replayed` removes only the new ones. So each replay leads one step back, until the
record is in its first topic. Headers that name the topic in which the record fails now are left out: a
record that goes round between topics does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

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
    "is_bad",
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
"""The headers of a pipeline's dead letter records, in their order, and their names behind `ERROR` elsewhere."""

_BEGINS: Final = (ERROR + "topic", "kadence.topic")

_TIME: Final = "timestamp"
_MESSAGE_CHARACTERS: Final = 2_000

_SHORT_MESSAGE: Final = 100
"""The bytes of an exception's message that are kept when the record is too large for its dead letter topic."""


_Headers: TypeAlias = "list[tuple[str, bytes | None]]"


class ProducerRecord(NamedTuple):
    """A record to be sent, which a handler returns or yields.

    Attributes:
        topic: the topic to write to. value: bytes or None. key: as value.
        partition: None: chosen by the key, if any. timestamp: ms since 1970; None: now. headers: pairs of name and
            bytes.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Letter(ProducerRecord):
    """A dead letter record or a retry record, with its replacement if it is too large for its topic.

    Attributes:
        counter: the desk's counter: ``dead_lettered`` or ``retried``. error: of the last attempt.
        instead: the dead letter record that is written if a retry record is too large; None: there is none.
    """

    counter: str
    error: BaseException
    instead: Letter | None

    @classmethod
    def of(
        cls, record: ProducerRecord, counter: str, error: BaseException, instead: Letter | None = None
    ) -> Letter:
        """A `Letter` with the fields of ``record``."""
        letter = cls(*record)
        letter.counter = counter
        letter.error = error
        letter.instead = instead
        return letter


class ResultError(TypeError):
    """A handler returned an object that cannot be sent. Each record would fail so: the processing ends."""


class UndecidedError(Exception):
    """A record could not be decoded, but may be good: the cause is an error of the schema registry or its settings."""


def is_of_all(error: BaseException) -> bool:
    """Whether each record would fail with this error. Then it ends the processing."""
    return isinstance(error, (ResultError, WorkerStartError))


def is_bad(error: BaseException, record: Record[Any, Any]) -> TypeGuard[RecordDeserializationError]:
    """Whether a deserialiser refused this record. A handler may raise the error of a record that it read elsewhere."""
    return isinstance(error, RecordDeserializationError) and error.record is record


def named(record: Record[Any, Any]) -> str:
    """A record's place and the length of its key, for logs and probes. The key itself may be secret."""
    key = record.key
    return place_of(record) + (f" (key of {len(key)} bytes)" if isinstance(key, bytes) else "")


def place_of(record: Record[Any, Any]) -> str:
    """Topic, partition and offset of a record, for logs."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def _header(record: Record[Any, Any], name: str) -> bytes | None:
    """The last header of that name."""
    return next((value for each, value in reversed(record.headers) if each == name), None)


def number_in(header: bytes | None, most: int = 2**63 - 1) -> int | None:
    """A header as a number from 0 to ``most``; None for any other content, which other programs may have written."""
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
    """A record of a retry topic as handlers get it: with the timestamp of the original record."""
    time = _time_of(record, is_retry=True)
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


def _time_of(record: Record[Any, Any], *, is_retry: bool) -> int:
    """The timestamp of the original record, in ms since 1970; -1: it has none."""
    names = (_RETRY, _REPLAY) if is_retry else (_REPLAY,)
    copied = next((name for name in names if _header(record, name + _TIME) is not None), None)
    return record.timestamp if copied is None else _number(record, copied + _TIME, record.timestamp)


def _time(record: Record[Any, Any], prefix: str, *, is_retry: bool) -> _Headers:
    time = _time_of(record, is_retry=is_retry)
    return [(prefix + _TIME, b"%d" % time)] if time >= 0 else []


def retry_record(
    record: Record[Any, Any], topic: str, error: BaseException, attempts: int, at: int, now: int
) -> ProducerRecord:
    """The record in the retry topic, to be tried again at ``at``. ``at`` and ``now`` are ms since 1970."""
    is_retry = record.topic == topic
    return _copy(
        record,
        topic,
        list(record.headers),
        [
            (_RETRY + "attempts", b"%d" % attempts),
            (_RETRY + "at", b"%d" % at),
            (_RETRY + "first", b"%d" % (_number(record, _RETRY + "first", now) if is_retry else now)),
            *_origin(record, _RETRY, is_retry=is_retry),
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
    retry_topic: str | None = None,
) -> ProducerRecord:
    """The record in the dead letter topic. ``first_ms`` (its first attempt) and ``now`` are ms since 1970.

    The headers of a retry record count in ``retry_topic`` alone: in another topic anyone who writes to it chose them.
    """
    is_retry = record.topic == retry_topic
    return _dead_letter(
        record,
        topic,
        error,
        [
            ("attempts", b"%d" % attempts),
            ("first", b"%d" % (_number(record, _RETRY + "first", first_ms) if is_retry else first_ms)),
            ("last", b"%d" % now),
        ],
        group,
        is_retry=is_retry,
    )


class BadRecord(NamedTuple):
    """An undecoded record, the field that cannot be decoded (``key`` or ``value``), and the deserialiser's error."""

    record: Record[Any, Any]
    field: str
    error: Exception


def bad_record(bad: BadRecord, topic: str, group: str | None) -> Letter:
    """The dead letter record of a record that a poll could not decode."""
    record, field, error = bad
    letter = _dead_letter(record, topic, error, [("field", field.encode())], group, is_retry=False)
    return Letter.of(letter, "dead_lettered", error)


def _dead_letter(
    record: Record[Any, Any],
    topic: str,
    error: BaseException,
    more: _Headers,
    group: str | None,
    *,
    is_retry: bool,
) -> ProducerRecord:
    if is_bad(error, record):
        more = [("field", error.field.encode()), *more]
        # The deserialiser's own error, as in the dead letter records of polls.
        error = error.__cause__ or error
    headers: _Headers = [
        *_origin(record, ERROR, is_retry=is_retry),
        (ERROR + "class", type(error).__name__.encode()),
        (ERROR + "message", printable(text_of(error))[:_MESSAGE_CHARACTERS].encode(errors="replace")),
        *((ERROR + name, value) for name, value in more),
    ]
    if group is not None:
        headers.append((ERROR + "group", group.encode()))
    return _copy(record, topic, _not_from(headers[0][1], record.headers), headers)


def replayed(letter: Record[Any, Any], topic: str, partition: int | None) -> ProducerRecord:
    """The record of a dead letter record, to be written where it came from, without the headers of its last error."""
    own, added = parted(letter.headers)
    found = number_in(dict(added).get(ERROR + _TIME))
    time = letter.timestamp if found is None else found
    headers: _Headers = [(_REPLAY + _TIME, b"%d" % time)] if time >= 0 else []
    return _copy(letter, topic, own, headers)._replace(partition=partition)


def parted(headers: Sequence[tuple[str, bytes | None]]) -> tuple[_Headers, _Headers]:
    """The headers of a dead letter record's own record, and those that its last error added.

    The latter begin with the topic of origin. Without such a header they are all headers about errors. Those of a
    pipeline get the names that `Consumer.process` uses.
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
    """The replacement of a dead letter record that is too large for its topic.

    Attributes:
        letter: the replacement. part: the part that was left out, in words. size: its bytes.
    """

    letter: Letter
    part: str
    size: int

    def said(self, record: Record[Any, Any], error: BaseException) -> str:
        """A line for the log."""
        return (
            f"the dead letter record of {place_of(record)} is too large for {self.letter.topic}; it is written without "
            f"{self.part} ({self.size} bytes): {error}"
        )


def shorter(letter: Letter, error: BaseException) -> Shorter | None:
    """The replacement of a dead letter record that was refused with this error; None: it cannot be made smaller.

    The value is left out first, then the headers of the record, then its key. Before all of these an exception message
    that is longer than the value is cut. A header has the number of bytes that were left out. The headers with the
    record's origin are kept.
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


def _origin(record: Record[Any, Any], prefix: str, *, is_retry: bool) -> _Headers:
    came_from = _header(record, _RETRY + "topic") if is_retry else None
    if came_from is not None:
        return [
            (prefix + "topic", came_from),
            (prefix + "partition", _header(record, _RETRY + "partition")),
            (prefix + "offset", _header(record, _RETRY + "offset")),
            *_time(record, prefix, is_retry=True),
        ]
    return [
        (prefix + "topic", record.topic.encode()),
        (prefix + "partition", b"%d" % record.partition),
        (prefix + "offset", b"%d" % record.offset),
        *_time(record, prefix, is_retry=is_retry),
    ]


def _copy(record: Record[Any, Any], topic: str, own: _Headers, headers: _Headers) -> ProducerRecord:
    """The record with these headers behind its own. Without a timestamp: it gets the time at which it is sent."""
    kept = [each for each in own if not each[0].startswith((_RETRY, _REPLAY))]
    excess = len(kept) + len(headers) - MOST_HEADERS
    if excess > 0:
        # Headers of the record itself go first: those of its last error say where it came from and what it lacks.
        start = max((place for place, (name, _) in enumerate(kept) if name in _BEGINS), default=len(kept))
        kept = [*kept[: max(start - excess, 0)], *kept[start:]]
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
