"""Spans of `process`: one for each attempt, around the handler and what is sent for it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from kadence.otel.spans import (
    Attributes,
    context_of,
    fail,
    injected,
    links_to,
    named,
    of_one,
    of_records,
)
from kadence.records import Record
from kadence.types import TopicPartition
from kadence.work.scheduler import Task

__all__ = ["Carried", "Received", "WorkTracing", "process_span"]

_MOST_RECEIVED: Final = 200
"""The number of the latest polls that are remembered for each partition, so that handlers' spans can name theirs."""


class Received:
    """The poll that returned a record: the latest polls of each partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The last offset of each poll, with its span. The first entry stands for all polls before them.
        self._polls: dict[TopicPartition, tuple[list[int], list[SpanContext | None]]] = {}

    def add(self, partition: TopicPartition, last_offset: int, span: SpanContext) -> None:
        """A poll brought records of the partition up to this offset."""
        with self._lock:
            lasts, spans = self._polls.setdefault(partition, ([-1], [None]))
            if lasts[-1] >= last_offset:
                # It is read again, from further below.
                lasts[:], spans[:] = [-1], [None]
            lasts.append(last_offset)
            spans.append(span)
            if len(lasts) > _MOST_RECEIVED + 1:
                del lasts[0], spans[0]
                spans[0] = None

    def span_of(self, record: Record[Any, Any]) -> SpanContext | None:
        """The poll that brought it, if it is known."""
        with self._lock:
            found = self._polls.get(TopicPartition(record.topic, record.partition))
            if found is None:
                return None
            lasts, spans = found
            at = bisect_left(lasts, record.offset)
            return spans[at] if at < len(spans) else None


def process_span(
    tracer: Tracer,
    records: Sequence[Record[Any, Any]],
    group: str | None,
    client_id: str | None,
    received: Received | None,
    more: Mapping[str, int],
) -> tuple[Span, Context]:
    """A span of handling these records, begun, and the context in which their handler runs.

    One record: the span is a child of the one that made it. Several have many parents, which are links.
    """
    attributes: Attributes = {**of_records("process", "process", records, client_id, group), **more}
    polls = [] if received is None else [each for each in map(received.span_of, records) if each is not None]
    links = [Link(each) for each in {poll.span_id: poll for poll in polls}.values()]
    if len(records) == 1:
        parent = context_of(records[0])
        attributes.update(of_one(records[0]))
    else:
        parent = Context()
        links = links_to(records) + links
        attributes["messaging.batch.message_count"] = len(records)
    span = tracer.start_span(
        named("process", (record.topic for record in records)),
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=links,
    )
    return span, set_span_in_context(span, parent)


class WorkTracing:
    """The callbacks of `kadence.work` for one consumer, as `kadence.work.tracing.Tracing` describes them.

    Args:
        follow: traces the sends of a producer.
    """

    def __init__(
        self,
        tracer: Tracer,
        group: str | None,
        client_id: str,
        received: Received,
        follow: Callable[[Any], None],
    ) -> None:
        self._tracer = tracer
        self._group = group
        self._client_id = client_id
        self._received = received
        self._open: dict[Span, Sequence[Task]] = {}
        self.follow = follow

    @contextmanager
    def attempt(self, tasks: Sequence[Task]) -> Iterator[None]:
        span, context = process_span(
            self._tracer,
            [task.record for task in tasks],
            self._group,
            self._client_id,
            self._received,
            {"kadence.attempt": max(task.attempts for task in tasks) + 1},
        )
        self._open[span] = tasks
        token = contexts.attach(context)
        try:
            yield
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            contexts.detach(token)
            self._end(span, tasks)

    def failed(self, error: BaseException) -> None:
        fail(get_current_span(), error)

    def carried(self) -> Carried:
        return Carried(injected())

    def end(self, running: Collection[Task]) -> None:
        for span, tasks in tuple(self._open.items()):
            if any(task in running for task in tasks):
                problem = TimeoutError("process() ended before this handler; its record is handled again")
                self._end(span, tasks, problem)

    def _end(self, span: Span, tasks: Sequence[Task], error: BaseException | None = None) -> None:
        """End a span once: the end of its handler and the end of `process` may both come here."""
        if self._open.pop(span, None) is None:
            return
        if error is not None:
            fail(span, error)
        for name, is_so in (
            ("kadence.lost", any(task.is_lost for task in tasks)),
            ("kadence.timed_out", any(task.timed_out for task in tasks)),
        ):
            if is_so:
                span.set_attribute(name, True)
        span.end()


class Carried:
    """A context on its way to a child process, which enters it around the handler."""

    def __init__(self, carrier: Mapping[str, str]) -> None:
        self._carrier = dict(carrier)

    def __enter__(self) -> None:
        self._token = contexts.attach(propagate.extract(self._carrier, Context()))

    def __exit__(self, *raised: object) -> None:
        contexts.detach(self._token)

    def __reduce__(self) -> tuple[object, ...]:
        return Carried, (self._carrier,)
