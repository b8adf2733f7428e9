"""`send()` with a span: from the call to the acknowledgement, its context in the headers of the record."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

from kadence.otel.spans import fail, named, of_sent, with_context
from kadence.producer.arguments import Headers
from kadence.producer.futures import RecordFuture

__all__ = ["traced_send"]


def traced_send(tracer: Tracer, producer: Any) -> Callable[..., Any]:
    """The replacement of `Producer.send` or `AsyncProducer.send` at one producer, which it does not keep alive."""
    # Through its class, so that a producer that is traced twice has one span for each record.
    send = type(producer).send
    client_id: str = producer._config.client_id
    sending = weakref.ref(producer)

    def begin(topic: str, value: Any, key: Any, partition: int | None) -> tuple[Span, Context]:
        span = tracer.start_span(
            named("send", [topic]),
            kind=SpanKind.PRODUCER,
            attributes=of_sent(topic, value, key, partition, client_id),
        )
        return span, set_span_in_context(span)

    def on_thread(
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Any:
        span, context = begin(topic, value, key, partition)
        try:
            pairs: Sequence[Any] = with_context(headers, context)
            future = send(
                sending(), topic, value, key, partition=partition, timestamp=timestamp, headers=pairs
            )
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        _follow(span, future)
        return future

    async def on_loop(
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Any:
        span, context = begin(topic, value, key, partition)
        try:
            pairs = with_context(headers, context)
            future = await send(
                sending(), topic, value, key, partition=partition, timestamp=timestamp, headers=pairs
            )
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        _follow(span, future)
        return future

    return on_loop if inspect.iscoroutinefunction(send) else on_thread


def _follow(span: Span, future: RecordFuture) -> None:
    """End the span when the record is acknowledged or has failed."""
    if not span.is_recording():
        span.end()
        return

    def decided(future: RecordFuture) -> None:
        error = future.exception()
        if error is None:
            written = future.result()
            span.set_attribute("messaging.destination.partition.id", str(written.partition))
            if written.offset >= 0:
                span.set_attribute("messaging.kafka.offset", written.offset)
        else:
            fail(span, error)
        span.end()

    # On the network thread with an event loop, too: the loop may be closed by then.
    future._when_done(decided)
