"""`trace`: clients whose sends, polls and handlers have spans from then on."""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider, get_tracer

from kadence.consumer.application.state import ConsumerState
from kadence.consumer.decoded_records import Records
from kadence.errors import KafkaError, WakeupError
from kadence.otel.sending import traced_send
from kadence.otel.spans import Attributes, fail, links_to, named, of_one, of_records
from kadence.otel.tables import traced_poll_arrow, traced_send_arrow
from kadence.otel.working import Received, WorkTracing, process_span
from kadence.producer.async_producer import AsyncProducer
from kadence.producer.producer import Producer
from kadence.records import Record
from kadence.share.application.state import ShareConsumerState
from kadence.types import TopicPartition
from kadence.version import VERSION

__all__ = ["Tracing", "trace"]

Client = Producer | AsyncProducer | ConsumerState | ShareConsumerState


def trace(*clients: Client, tracer_provider: TracerProvider | None = None) -> Tracing:
    """Give what these consumers and producers do spans, by OpenTelemetry's conventions for messaging.

    Each record that a producer sends has a span "send", from the call to the acknowledgement, and its context in its
    headers; all rows of a table that `send_arrow` sends have one. Each poll that returns records has a span "poll" with
    links to the spans that made them, and so has each record of an iteration, which is a poll of one. With `process`
    each attempt has a span "process", within which the handler runs: records that it sends or returns, retry
    records and dead letter records belong to it. In loops of your own `Tracing.processing` makes it.

    Args:
        clients: each a `kadence.Producer`, `kadence.Consumer` or `kadence.ShareConsumer`, or their asyncio classes.
        tracer_provider: where spans go; None: OpenTelemetry's global one.

    Returns:
        The tracing, which takes more clients.

    Raises:
        TypeError: something else than these clients.
    """
    tracing = Tracing(tracer_provider)
    for client in clients:
        tracing.add(client)
    return tracing


class Tracing:
    """Clients that are traced with one provider. Made by `trace`; any thread may call its methods."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = get_tracer("kadence", VERSION, tracer_provider)

    def add(self, client: Client) -> None:
        """Trace this client, too. Calls in progress have no span.

        Raises:
            TypeError: it is not a client of Kadence.
        """
        if isinstance(client, Producer | AsyncProducer):
            vars(client)["send"] = traced_send(self._tracer, client)
            vars(client)["send_arrow"] = traced_send_arrow(self._tracer, client)
        elif isinstance(client, ConsumerState | ShareConsumerState):
            self._add_consumer(client)
        else:
            raise TypeError(f"trace() takes consumers and producers of Kadence, not {client!r}")

    def remove(self, client: Client) -> None:
        """Stop tracing this client. Calls in progress keep their span until they end."""
        for name in ("send", "send_arrow", "poll", "poll_arrow", "_next"):
            vars(client).pop(name, None)
        if isinstance(client, ConsumerState | ShareConsumerState):
            client._core.tracing = None

    @contextmanager
    def processing(
        self, records: Record[Any, Any] | Sequence[Record[Any, Any]], *, group: str | None = None
    ) -> Iterator[Span]:
        """A span "process" around work on a record, or on several, for loops of your own.

        An exception that passes is recorded in the span. `Consumer.process` makes its spans by itself.

        Args:
            group: the ``group.id``, to be named in the span.
        """
        several = [records] if isinstance(records, Record) else list(records)
        span, context = process_span(self._tracer, several, group, None, None, {})
        token = contexts.attach(context)
        try:
            yield span
        except BaseException as error:
            fail(span, error)
            raise
        finally:
            contexts.detach(token)
            span.end()

    def _add_consumer(self, consumer: ConsumerState | ShareConsumerState) -> None:
        config = consumer._core.config
        received = Received()
        polls = _Polls(self._tracer, consumer, config.client_id, config.group_id, received)
        vars(consumer).update(
            poll=polls.traced_poll(),
            poll_arrow=traced_poll_arrow(self._tracer, consumer, config.client_id, config.group_id),
        )
        if isinstance(consumer, ConsumerState):
            # A step of a share consumer's iteration is a poll by itself.
            vars(consumer)["_next"] = polls.traced_next()
        consumer._core.tracing = WorkTracing(
            self._tracer, config.group_id, config.client_id, received, self.add
        )


class _Polls:
    """The replacement of `poll` and of the steps of iterations at one consumer, which it does not keep alive."""

    def __init__(
        self, tracer: Tracer, consumer: Any, client_id: str, group: str | None, received: Received
    ) -> None:
        self._tracer = tracer
        self._class: Any = type(consumer)
        self._consumer = weakref.ref(consumer)
        self._client_id = client_id
        self._group = group
        self._received = received
        self._is_iterating = False
        """A step of an iteration polls, and has a span itself."""

    def traced_poll(self) -> Callable[..., Any]:
        poll = self._class.poll

        def on_thread(*timeout: float | None, **settings: Any) -> Records[Any, Any]:
            if self._is_iterating:
                found: Records[Any, Any] = poll(self._consumer(), *timeout, **settings)
                return found
            began = time.time_ns()
            try:
                records: Records[Any, Any] = poll(self._consumer(), *timeout, **settings)
            except KafkaError as error:
                self._failed(began, error)
                raise
            several = list(records)
            self._traced(began, several, {"messaging.batch.message_count": len(several)})
            return records

        async def on_loop(*timeout: float | None, **settings: Any) -> Records[Any, Any]:
            if self._is_iterating:
                found: Records[Any, Any] = await poll(self._consumer(), *timeout, **settings)
                return found
            began = time.time_ns()
            try:
                records: Records[Any, Any] = await poll(self._consumer(), *timeout, **settings)
            except KafkaError as error:
                self._failed(began, error)
                raise
            several = list(records)
            self._traced(began, several, {"messaging.batch.message_count": len(several)})
            return records

        return on_loop if inspect.iscoroutinefunction(poll) else on_thread

    def traced_next(self) -> Callable[..., Any]:
        following = self._class._next

        def on_thread(deadline: int) -> Record[Any, Any] | None:
            began = time.time_ns()
            self._is_iterating = True
            try:
                record: Record[Any, Any] | None = following(self._consumer(), deadline)
            except KafkaError as error:
                self._failed(began, error)
                raise
            finally:
                self._is_iterating = False
            if record is not None:
                self._traced(began, [record], of_one(record))
            return record

        async def on_loop(deadline: int) -> Record[Any, Any] | None:
            began = time.time_ns()
            self._is_iterating = True
            try:
                record: Record[Any, Any] | None = await following(self._consumer(), deadline)
            except KafkaError as error:
                self._failed(began, error)
                raise
            finally:
                self._is_iterating = False
            if record is not None:
                self._traced(began, [record], of_one(record))
            return record

        return on_loop if inspect.iscoroutinefunction(following) else on_thread

    def _traced(self, began: int, records: list[Record[Any, Any]], more: Attributes) -> None:
        """Polls that bring nothing have no span."""
        if not records:
            return
        span = self._tracer.start_span(
            named("poll", (record.topic for record in records)),
            kind=SpanKind.CLIENT,
            start_time=began,
            attributes={
                **of_records("poll", "receive", records, self._client_id, self._group),
                **more,
            },
            links=links_to(records),
        )
        lasts = {TopicPartition(record.topic, record.partition): record.offset for record in records}
        for partition, last in lasts.items():
            self._received.add(partition, last, span.get_span_context())
        span.end()

    def _failed(self, began: int, error: KafkaError) -> None:
        if not isinstance(error, WakeupError):
            span = self._tracer.start_span(
                "poll",
                kind=SpanKind.CLIENT,
                start_time=began,
                attributes=of_records("poll", "receive", [], self._client_id, self._group),
            )
            fail(span, error)
            span.end()
