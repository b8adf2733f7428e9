"""Dead letter records for ``kadence dead-letters``: parses their headers about origin and error. Pure.

`Consumer.process` writes them, and a consumer with ``deserialization.errors=dead-letter``, with the same headers
(`kadence.work.letters`). Those of the latter have no attempts and no times, but name the field that could not be
decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kadence.lazy_dataclasses import dataclass
from kadence.printable import printable
from kadence.records import Record
from kadence.types import TopicPartition
from kadence.work.letters import ERROR, number_in, parted
from kadence_cli.common import moment, text_of

__all__ = ["Choice", "Letter", "described", "document"]

_MOST_PARTITION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter record.

    Attributes:
        origin: the record's first partition; None: there are no such headers, another program wrote it. offset: there.
        timestamp: its own, in ms since 1970; None: it had none, or an older version wrote the dead letter record.
        error: the exception's class. attempts, first, last: of `Consumer.process`; ms since 1970. field: ``key`` or
            ``value``, if a consumer could not decode it.
        left_out: bytes of its ``value``, ``headers`` and ``key`` that were left out, as too large for this topic.
        headers: the record's own, with those about earlier errors of a dead letter record that failed again.
    """

    record: Record[Any, Any]
    origin: TopicPartition | None
    offset: int | None
    timestamp: int | None
    error: str | None
    message: str | None
    attempts: int | None
    first: int | None
    last: int | None
    group: str | None
    field: str | None
    left_out: Mapping[str, int]
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, record: Record[Any, Any]) -> Letter:
        """Parse the headers. A missing or invalid one becomes None."""
        own, added = parted(record.headers)
        told = {name: value for name, value in added if value is not None}

        def text(name: str) -> str | None:
            value = told.get(ERROR + name)
            return None if value is None else value.decode(errors="replace")

        def number(name: str) -> int | None:
            return number_in(told.get(ERROR + name))

        topic, partition = text("topic"), number_in(told.get(ERROR + "partition"), _MOST_PARTITION)
        return cls(
            record,
            None if topic is None or partition is None else TopicPartition(topic, partition),
            number("offset"),
            number("timestamp"),
            text("class"),
            text("message"),
            number("attempts"),
            number("first"),
            number("last"),
            text("group"),
            text("field"),
            {
                part: size
                for part in ("value", "headers", "key")
                if (size := number(part + ".bytes")) is not None
            },
            tuple(own),
        )

    @property
    def at(self) -> int:
        """When it was given up, in ms since 1970; for a consumer's dead letter records, the time of writing."""
        return self.record.timestamp if self.last is None else self.last


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter of dead letter records: they must match all given criteria.

    Attributes:
        offsets: in the dead letter topic. errors: classes of exceptions. origins: topics that they came from.
    """

    offsets: frozenset[int] = frozenset()
    errors: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    def among(self, records: Iterable[Record[Any, Any]]) -> Iterable[Letter]:
        """The dead letter records that match."""
        for record in records:
            if self.offsets and record.offset not in self.offsets:
                continue
            letter = Letter.of(record)
            if self.errors and letter.error not in self.errors:
                continue
            if self.origins and (letter.origin is None or letter.origin.topic not in self.origins):
                continue
            yield letter


# ---------------------------------------------------------------- output


def document(letter: Letter) -> dict[str, Any]:
    """A dead letter record as JSON."""
    record, origin = letter.record, letter.origin
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "origin": None
        if origin is None
        else {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": letter.offset,
            "timestamp": letter.timestamp,
        },
        "error": letter.error,
        "message": letter.message,
        "field": letter.field,
        "attempts": letter.attempts,
        "first": moment(letter.first),
        "last": moment(letter.last),
        "group": letter.group,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "value_bytes": letter.left_out.get("value"),
        "headers": [[name, text_of(value)] for name, value in letter.headers],
    }


def described(letter: Letter) -> Iterator[str]:
    """Lines for people. Texts of other programs are made printable, line by line."""
    record, origin = letter.record, letter.origin
    came = "of unknown origin" if origin is None else f"from {origin}@{letter.offset}"
    yield printable(f"{record.topic}-{record.partition}@{record.offset}  {came}")
    yield printable(f"  error    {letter.error or 'unknown'}: {letter.message or ''}")
    for name, value in (
        ("time", moment(letter.timestamp)),
        ("attempts", letter.attempts),
        ("first", moment(letter.first)),
        ("last", moment(letter.last)),
        ("group", letter.group),
        ("field", letter.field),
    ):
        if value is not None:
            yield printable(f"  {name:<8} {value}")
    yield printable(f"  key      {_shown(record.key)}")
    yield printable(f"  value    {_shown(record.value)}")
    for part, size in letter.left_out.items():
        yield f"  missing  {part} of {size} bytes, too large for this topic"
    for name, data in letter.headers:
        yield printable(f"  header   {name}: {_shown(data)}")


def _shown(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="backslashreplace")
