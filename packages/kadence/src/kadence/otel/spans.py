"""The names and attributes of spans: OpenTelemetry's conventions for messaging and for Kafka; and headers.

A record carries its context in the headers of the global propagator: ``traceparent`` and ``tracestate`` of W3C, unless
the program has set another one.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode, get_current_span
from opentelemetry.util.types import AttributeValue

from kadence.printable import text_of
from kadence.producer.arguments import Headers, checked_headers
from kadence.records import MOST_HEADERS, Record

__all__ = [
    "Attributes",
    "context_of",
    "fail",
    "links_of",
    "links_to",
    "named",
    "of_one",
    "of_records",
    "of_sent",
    "of_table",
    "propagated_names",
    "with_context",
]

Attributes = dict[str, AttributeValue]

_Pair = tuple[str, bytes | None]

_MOST_LINKS: Final = 128
"""As many as an SDK keeps of one span by default."""

_KEY_CHARACTERS: Final = 256


class _Headers(Getter[Sequence[_Pair]]):
    """Reads the headers of a record. The last one of a name counts."""

    def get(self, carrier: Sequence[_Pair], key: str) -> list[str] | None:
        for name, value in reversed(carrier):
            if name == key and value is not None:
                return [value.decode(errors="replace")]
        return None

    def keys(self, carrier: Sequence[_Pair]) -> list[str]:
        return [name for name, _ in carrier]


_HEADERS: Final = _Headers()


def context_of(record: Record[Any, Any]) -> Context:
    """The context in the record's headers; empty if they have none."""
    return propagate.extract(record.headers, Context(), _HEADERS)


def with_context(headers: Headers, context: Context) -> Sequence[_Pair]:
    """These headers with that context in place of any other. A record that can have no more headers keeps its own.

    Raises:
        SerializationError: what `Producer.send` refuses.
    """
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    fields = propagate.get_global_textmap().fields
    kept = [pair for pair in checked_headers(headers) if pair[0] not in fields]
    if len(kept) + len(carrier) > MOST_HEADERS:
        return kept
    return [*kept, *((name, value.encode()) for name, value in carrier.items())]


def links_to(records: Iterable[Record[Any, Any]]) -> list[Link]:
    """Links to the spans that made these records, each once."""
    return links_of(record.headers for record in records)


def links_of(headers: Iterable[Sequence[_Pair]]) -> list[Link]:
    """Links to the spans that made the records with these headers, each once."""
    found: dict[int, SpanContext] = {}
    for each in headers:
        made = get_current_span(propagate.extract(each, Context(), _HEADERS)).get_span_context()
        if made.is_valid:
            found[made.span_id] = made
            if len(found) == _MOST_LINKS:
                break
    return [Link(each) for each in found.values()]


def propagated_names() -> list[str]:
    """The headers that carry a context."""
    return sorted(propagate.get_global_textmap().fields)


def named(operation: str, topics: Iterable[str]) -> str:
    """The name of a span: the operation, and the topic if there is one."""
    names = set(topics)
    return f"{operation} {names.pop()}" if len(names) == 1 else operation


def of_sent(topic: str, value: Any, key: Any, partition: int | None, client_id: str) -> Attributes:
    """Of one record that is sent."""
    return {
        **_operation("send", "send", client_id),
        "messaging.destination.name": topic,
        **({} if partition is None else {"messaging.destination.partition.id": str(partition)}),
        **_of_message(key, value),
    }


def of_records(
    operation: str, kind: str, records: Sequence[Record[Any, Any]], client_id: str | None, group: str | None
) -> Attributes:
    """Attributes of records that were received, or are handled. Values that differ among several are left out."""
    found = _operation(operation, kind, client_id)
    if group is not None:
        found["messaging.consumer.group.name"] = group
    if len({record.topic for record in records}) == 1:
        found["messaging.destination.name"] = records[0].topic
        if len({record.partition for record in records}) == 1:
            found["messaging.destination.partition.id"] = str(records[0].partition)
    return found


def of_table(
    operation: str,
    kind: str,
    rows: int | None,
    client_id: str,
    group: str | None,
    topics: Collection[str],
    partitions: Collection[int],
) -> Attributes:
    """Attributes of rows that are sent or received together. Values that differ are left out; None: not a table."""
    found = _operation(operation, kind, client_id)
    if group is not None:
        found["messaging.consumer.group.name"] = group
    if rows is not None:
        found["messaging.batch.message_count"] = rows
    if len(topics) == 1:
        [found["messaging.destination.name"]] = topics
        if len(partitions) == 1:
            [partition] = partitions
            found["messaging.destination.partition.id"] = str(partition)
    return found


def of_one(record: Record[Any, Any]) -> Attributes:
    """Of the one record that a handler gets."""
    return {"messaging.kafka.offset": record.offset, **_of_message(record.key, record.value)}


def _operation(name: str, kind: str, client_id: str | None) -> Attributes:
    found: Attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if client_id is not None:
        found["messaging.client.id"] = client_id
    return found


def _of_message(key: Any, value: Any) -> Attributes:
    found: Attributes = {}
    if (text := _text(key)) is not None:
        found["messaging.kafka.message.key"] = text
    if value is None:
        found["messaging.kafka.message.tombstone"] = True
    elif isinstance(value, bytes):
        found["messaging.message.body.size"] = len(value)
    return found


def _text(key: Any) -> str | None:
    """A key as text; None if it has no text."""
    if isinstance(key, bytes):
        # A character has four bytes at most. The last one may be cut.
        most = 4 * _KEY_CHARACTERS
        try:
            text, _ = utf_8_decode(key[:most], "strict", len(key) <= most)
        except UnicodeDecodeError:
            return None
        return text[:_KEY_CHARACTERS]
    return str(key)[:_KEY_CHARACTERS] if isinstance(key, (str, int)) else None


def fail(span: Span, error: BaseException) -> None:
    """The span ends with this error. One that has ended already stays as it is."""
    if span.is_recording():
        # Its text may raise: it is an application's.
        with suppress(Exception):
            span.record_exception(error)
        span.set_attribute("error.type", _class_of(error))
        span.set_status(Status(StatusCode.ERROR, text_of(error)))


def _class_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def injected(context: Context | None = None) -> Mapping[str, str]:
    """A context, by default the present one, as text for another process."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier
