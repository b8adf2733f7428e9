"""What is written about a record that failed: its dead letter, or its record in a retry topic (H5). Pure.

Both are the record as it was, its bytes and its headers, with headers of ours behind them. A record that has been in a
retry topic keeps the place from which it came first.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kadence.errors import BrokerError, RecordTooLargeError, WorkerStartError
from kadence.printable import printable, text_of
from kadence.protocol import error_codes as ec
from kadence.records import MOST_HEADERS, Record

__all__ = [
    "Letter",
    "ProducerRecord",
    "ResultError",
    "attempts_of",
    "dead_letter",
    "due_at",
    "is_of_all",
    "is_too_large",
    "named",
    "retry_record",
    "shortened",
]

_ERROR: Final = "kadence.error."
_RETRY: Final = "kadence.retry."
_MESSAGE_CHARACTERS: Final = 2_000

_SHORT_MESSAGE: Final = 100
"""So many bytes of an exception's message are left where the topic of dead letters does not take more."""


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


def is_too_large(error: BaseException) -> bool:
    """Whether a record was refused for its size, by the producer or by the broker."""
    if isinstance(error, BrokerError):
        return error.code in (ec.MESSAGE_TOO_LARGE, ec.RECORD_LIST_TOO_LARGE)
    return isinstance(error, RecordTooLargeError)


def named(record: Record[Any, Any]) -> str:
    """A record in the words of logs and probes: its place, and the beginning of its key."""
    key = record.key
    shown = "" if key is None else f" (key {key if len(key) <= 40 else key[:40]!r})"
    return f"{record.topic}-{record.partition}@{record.offset}{shown}"


def _header(record: Record[Any, Any], name: str) -> bytes | None:
    """The last header of that name."""
    return next((value for each, value in reversed(record.headers) if each == name), None)


def _number(record: Record[Any, Any], name: str, default: int) -> int:
    try:
        return int(_header(record, name) or b"")
    except ValueError:
        return default


def attempts_of(record: Record[Any, Any]) -> int:
    """How many attempts failed before the record came from a retry topic; 0 for others."""
    return max(_number(record, _RETRY + "attempts", 0), 0)


def due_at(record: Record[Any, Any]) -> int:
    """When a record of a retry topic is due, ms since 1970; 0 for others."""
    return max(_number(record, _RETRY + "at", 0), 0)


def retry_record(
    record: Record[Any, Any], topic: str, error: BaseException, attempts: int, at: int, now: int
) -> ProducerRecord:
    """The record in the retry topic, to be tried again at ``at``. ``at`` and ``now`` are ms since 1970."""
    return _copy(
        record,
        topic,
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
    headers: list[tuple[str, bytes | None]] = [
        *_origin(record, _ERROR),
        (_ERROR + "class", type(error).__name__.encode()),
        (_ERROR + "message", printable(text_of(error))[:_MESSAGE_CHARACTERS].encode(errors="replace")),
        (_ERROR + "attempts", b"%d" % attempts),
        (_ERROR + "first", b"%d" % _number(record, _RETRY + "first", first_ms)),
        (_ERROR + "last", b"%d" % now),
    ]
    if group is not None:
        headers.append((_ERROR + "group", group.encode()))
    return _copy(record, topic, headers)


def shortened(letter: Letter) -> tuple[Letter, str, int] | None:
    """A dead letter without its value; else without the headers of its record; else without its key.

    A message of the exception that is longer than the value is shortened before it. A header says how many bytes were
    left out, for its topic does not take them. Where the record came from stays.

    Returns:
        The letter, what was left out, and its bytes. None: nothing more can be.
    """
    own = [pair for pair in letter.headers if not pair[0].startswith(_ERROR)]
    ours = [pair for pair in letter.headers if pair[0].startswith(_ERROR)]
    message = dict(ours)[_ERROR + "message"] or b""
    if len(message) > max(len(letter.value or b""), _SHORT_MESSAGE):
        short = message[:_SHORT_MESSAGE].decode(errors="ignore").encode()
        part, size, shorter = "message", len(message) - len(short), letter
        ours = [(name, short if name == _ERROR + "message" else value) for name, value in ours]
    elif letter.value:
        part, size, shorter = "value", len(letter.value), letter._replace(value=None)
    elif own:
        size = sum(len(name.encode(errors="replace")) + len(value or b"") for name, value in own)
        part, shorter, own = "headers", letter, []
    elif letter.key:
        part, size, shorter = "key", len(letter.key), letter._replace(key=None)
    else:
        return None
    ours.append((f"{_ERROR}{part}.bytes", b"%d" % size))
    shorter = shorter._replace(headers=(*own[: MOST_HEADERS - len(ours)], *ours))
    return Letter.of(shorter, letter.counter, letter.error), part, size


def _origin(record: Record[Any, Any], prefix: str) -> list[tuple[str, bytes | None]]:
    came_from = _header(record, _RETRY + "topic")
    if came_from is not None:
        return [
            (prefix + "topic", came_from),
            (prefix + "partition", _header(record, _RETRY + "partition")),
            (prefix + "offset", _header(record, _RETRY + "offset")),
        ]
    return [
        (prefix + "topic", record.topic.encode()),
        (prefix + "partition", b"%d" % record.partition),
        (prefix + "offset", b"%d" % record.offset),
    ]


def _copy(record: Record[Any, Any], topic: str, headers: list[tuple[str, bytes | None]]) -> ProducerRecord:
    kept = [(name, value) for name, value in record.headers if not name.startswith((_RETRY, _ERROR))]
    return ProducerRecord(
        topic,
        record.value,
        record.key,
        timestamp=record.timestamp if record.timestamp >= 0 else None,
        headers=(*kept[: MOST_HEADERS - len(headers)], *headers),
    )
