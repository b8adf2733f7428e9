"""`send_arrow()` and `poll_arrow()` with spans: one for each table.

All rows of a table that is sent belong to one span, whose context each of them carries in its headers. A table that is
polled has links to the spans that sent its rows, as far as its first rows show. pyarrow is there: the tables need it.
"""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

from kadence.consumer.application.arguments import columns_of
from kadence.errors import KafkaError, WakeupError
from kadence.otel.spans import fail, injected, links_of, named, of_table, propagated_names
from kadence.producer.arrow_delivery import ArrowDelivery
from kadence.records import MOST_HEADERS

__all__ = ["traced_poll_arrow", "traced_send_arrow"]

_LOOKED_AT: Final = 512
"""The rows of a polled table whose headers are read: there may be a million."""

_PLACE: Final = ("topic", "partition", "headers")


def traced_send_arrow(tracer: Tracer, producer: Any) -> Callable[..., Any]:
    """The replacement of `send_arrow` at one producer, which it does not keep alive."""
    send_arrow = type(producer).send_arrow
    client_id: str = producer._config.client_id
    sending = weakref.ref(producer)

    def begin(data: Any, topic: str | None) -> tuple[Span, Context]:
        topics = {topic} if topic is not None else _distinct(data, "topic")
        attributes = of_table("send", "send", _rows_of(data), client_id, None, topics, set())
        span = tracer.start_span(named("send", topics), kind=SpanKind.PRODUCER, attributes=attributes)
        return span, set_span_in_context(span)

    def on_thread(data: Any, topic: str | None = None) -> Any:
        span, context = begin(data, topic)
        try:
            delivery = send_arrow(sending(), _with_context(data, context), topic)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        _follow(span, delivery)
        return delivery

    async def on_loop(data: Any, topic: str | None = None) -> Any:
        span, context = begin(data, topic)
        try:
            delivery = await send_arrow(sending(), _with_context(data, context), topic)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        _follow(span, delivery)
        return delivery

    return on_loop if inspect.iscoroutinefunction(send_arrow) else on_thread


def traced_poll_arrow(tracer: Tracer, consumer: Any, client_id: str, group: str | None) -> Callable[..., Any]:
    """The replacement of `poll_arrow` at one consumer, which it does not keep alive."""
    poll_arrow = type(consumer).poll_arrow
    polling = weakref.ref(consumer)

    def asked_for(headers: bool, columns: Sequence[str] | None) -> tuple[tuple[str, ...], list[str]]:
        """The columns that the program wants, and those and what the span needs."""
        chosen = columns_of(columns, headers=headers)
        return chosen, [*chosen, *(name for name in _PLACE if name not in chosen)]

    def traced(began: int, table: Any, chosen: tuple[str, ...]) -> Any:
        """Empty polls have no span."""
        if table.num_rows:
            topics, partitions = _distinct(table, "topic"), _distinct(table, "partition")
            rows = table["headers"].slice(0, _LOOKED_AT).to_pylist()
            tracer.start_span(
                named("poll", topics),
                kind=SpanKind.CLIENT,
                start_time=began,
                attributes=of_table("poll", "receive", table.num_rows, client_id, group, topics, partitions),
                links=links_of([(each["key"], each["value"]) for each in row or ()] for row in rows),
            ).end()
        return table.select(list(chosen))

    def failed(began: int, error: KafkaError) -> None:
        if not isinstance(error, WakeupError):
            attributes = of_table("poll", "receive", None, client_id, group, set(), set())
            span = tracer.start_span("poll", kind=SpanKind.CLIENT, start_time=began, attributes=attributes)
            fail(span, error)
            span.end()

    def on_thread(
        *timeout: float | None, headers: bool = False, columns: Sequence[str] | None = None, **settings: Any
    ) -> Any:
        began = time.time_ns()
        chosen, needed = asked_for(headers, columns)
        try:
            table = poll_arrow(polling(), *timeout, columns=needed, **settings)
        except KafkaError as error:
            failed(began, error)
            raise
        return traced(began, table, chosen)

    async def on_loop(
        *timeout: float | None, headers: bool = False, columns: Sequence[str] | None = None, **settings: Any
    ) -> Any:
        began = time.time_ns()
        chosen, needed = asked_for(headers, columns)
        try:
            table = await poll_arrow(polling(), *timeout, columns=needed, **settings)
        except KafkaError as error:
            failed(began, error)
            raise
        return traced(began, table, chosen)

    return on_loop if inspect.iscoroutinefunction(poll_arrow) else on_thread


def _rows_of(data: Any) -> int | None:
    return getattr(data, "num_rows", None)


def _distinct(data: Any, column: str) -> set[Any]:
    """The values in a column; empty where there is none: `send_arrow` says what is wrong with that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(data, pa.Table | pa.RecordBatch) or data.schema.names.count(column) != 1:
        return set()
    return set(pc.unique(data.column(column)).to_pylist()) - {None}


def _with_context(data: Any, context: Context) -> Any:
    """The rows with that context in their headers, in place of any other.

    As they are where it says nothing, where `send_arrow` refuses them, or where a row can have no more headers.
    """
    import pyarrow as pa

    carrier = injected(context)
    if not carrier or not isinstance(data, pa.Table | pa.RecordBatch) or not data.num_rows:
        return data
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own = [{"key": name, "value": value.encode()} for name, value in carrier.items()]
    count = table.schema.names.count("headers")
    if count == 0:
        every = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
        return table.append_column("headers", pa.array([own], kind).take(every))
    if count > 1:
        return data
    index = table.schema.get_field_index("headers")
    try:
        lists = table.column(index).cast(kind).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return data
    made = _joined(lists, pa.array(own, kind.value_type))
    return data if made is None else table.set_column(index, "headers", made)


def _joined(lists: Any, own: Any) -> Any:
    """Each row's headers with ours behind them, without those that ours replace; None: a row has too many."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    theirs, rows = lists.flatten(), pc.list_parent_indices(lists)
    kept = pc.invert(pc.is_in(pc.struct_field(theirs, "key"), pa.array(propagated_names(), pa.string())))
    every = pa.array(range(len(lists)), rows.type)
    pieces = pa.concat_arrays(
        [theirs.filter(kept), *(own.take(pa.repeat(pa.scalar(n), len(lists))) for n in range(len(own)))]
    )
    rows = pa.concat_arrays([rows.filter(kept), *([every] * len(own))])
    order = pc.array_sort_indices(rows)
    ends = pc.run_end_encode(rows.take(order), run_end_type=pa.int32()).run_ends
    made = pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), pieces.take(order))
    return None if pc.max(pc.list_value_length(made)).as_py() > MOST_HEADERS else made


def _follow(span: Span, delivery: ArrowDelivery) -> None:
    """End the span when all rows are acknowledged or have failed."""

    def decided(delivery: ArrowDelivery) -> None:
        error = delivery.exception()
        if error is None:
            partitions = delivery.result().partitions
            if len(partitions) == 1:
                [place] = partitions
                span.set_attribute("messaging.destination.partition.id", str(place.partition))
        else:
            fail(span, error)
        span.end()

    # As in `sending`.
    delivery._when_done(decided)
