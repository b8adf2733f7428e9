"""Traces of producers, polls and `process`, with OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from tests.consumer.support import Cluster, Shell
from tests.otel import handlers
from tests.otel.conftest import Spans
from tests.patience import PATIENCE, until

from kadence import AsyncProducer, Consumer, Producer, Record, TopicPartition
from kadence.errors import KafkaError
from kadence.otel import Tracing, trace
from kadence.records import MOST_HEADERS
from kadence.work import Context, ProducerRecord, Retry
from kadence_testing.kafka import Kafka

GROUP = "g"


def produce(cluster: Cluster, spans: Spans | None, *values: bytes, key: bytes | None = b"k") -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        if spans is not None:
            trace(producer, tracer_provider=spans.provider)
        for value in values:
            producer.send("orders", value, key, partition=0)


def member(cluster: Cluster, shell: Shell, spans: Spans, **settings: Any) -> Any:
    consumer = shell.make(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=GROUP,
        client_id="me",
        auto_offset_reset="earliest",
        **settings,
    )
    trace(consumer, tracer_provider=spans.provider)
    shell.do(lambda: consumer.subscribe("orders"))
    return consumer


def read(cluster: Cluster, topic: str) -> list[Record[Any, Any]]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign({partition: (0, consumer.end_offsets([partition])[partition])})
        return list(consumer)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def by_attempt(found: list[ReadableSpan]) -> list[ReadableSpan]:
    """One may end while the next one runs: an event loop hears later that its record is to be tried again."""
    return sorted(found, key=lambda each: attributes(each)["kadence.attempt"])


def handled_by(shell: Shell, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work as a coroutine function where the shell has a loop."""
    if shell.runner is None:
        return work

    async def awaited(record: Any) -> Any:
        await asyncio.sleep(0)
        return work(record)

    return awaited


def test_one_trace_goes_from_a_producer_through_a_handler_to_the_next_consumer(
    cluster: Cluster, shell: Shell, spans: Spans
) -> None:
    produce(cluster, spans, b"1")
    consumer = member(cluster, shell, spans)
    inside: list[int] = []

    def work(record: Record[Any, Any]) -> ProducerRecord:
        inside.append(get_current_span().get_span_context().span_id)
        consumer.stop()
        return ProducerRecord("out", b"made", b"key")

    shell.do(lambda: consumer.process(handled_by(shell, work)))
    shell.do(consumer.close)
    [sent], [polled] = spans.named("send orders"), spans.named("poll orders")
    [handled], [output] = spans.named("process orders"), spans.named("send out")
    assert [each.kind for each in (sent, polled, handled, output)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.PRODUCER,
    ]
    assert sent.parent is None
    assert parent_of(handled) == id_of(sent)
    assert parent_of(output) == id_of(handled)
    assert linked(polled) == {id_of(sent)}
    assert linked(handled) == {id_of(polled)}
    assert inside == [id_of(handled)]
    assert attributes(sent) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": attributes(sent)["messaging.client.id"],
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 1,
    }
    assert attributes(handled) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "me",
        "messaging.consumer.group.name": GROUP,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 1,
        "kadence.attempt": 1,
    }
    assert attributes(polled)["messaging.batch.message_count"] == 1
    [record] = read(cluster, "out")
    carried = b"00-%032x-%016x-" % (trace_of(sent), id_of(output))
    assert (dict(record.headers)["traceparent"] or b"").startswith(carried)
    assert spans.open() == []


def test_attempts_are_spans_and_retries_and_dead_letters_belong_to_them(
    cluster: Cluster, shell: Shell, spans: Spans
) -> None:
    produce(cluster, spans, b"1")
    consumer = member(cluster, shell, spans)
    attempts = []

    def work(record: Record[Any, Any]) -> None:
        attempts.append(record.topic)
        if len(attempts) == 3:
            consumer.stop()
        raise ValueError("never")

    retry = Retry(attempts=3, backoff=0.001, topic="again")
    shell.do(lambda: consumer.process(handled_by(shell, work), retry=retry, dead_letter="dead"))
    shell.do(consumer.close)
    assert attempts == ["orders", "again", "again"]
    [sent], [first] = spans.named("send orders"), spans.named("process orders")
    again, [dead] = by_attempt(spans.named("process again")), spans.named("send dead")
    assert [attributes(each)["kadence.attempt"] for each in (first, *again)] == [1, 2, 3]
    for each in (first, *again):
        assert each.status.status_code is StatusCode.ERROR
        assert attributes(each)["error.type"] == "ValueError"
        assert [event.name for event in each.events] == ["exception"]
    resent = sorted(spans.named("send again"), key=lambda each: each.start_time or 0)
    assert [parent_of(each) for each in resent] == [id_of(first), id_of(again[0])]
    assert [parent_of(each) for each in again] == [id_of(each) for each in resent]
    assert parent_of(dead) == id_of(again[1])
    assert {trace_of(each) for each in spans.ended if not each.name.startswith("poll")} == {trace_of(sent)}
    [letter] = read(cluster, "dead")
    assert [name for name, _ in letter.headers].count("traceparent") == 1
    assert spans.open() == []


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_an_output_that_is_refused_keeps_its_dead_letter_in_the_trace(
    cluster: Cluster, shell: Shell, spans: Spans, transactional_id: str | None
) -> None:
    produce(cluster, spans, b"1")
    consumer = member(cluster, shell, spans, isolation_level="read_committed")

    def work(record: Record[Any, Any]) -> ProducerRecord:
        consumer.stop()
        return ProducerRecord("out", b"1", partition=7)

    shell.do(
        lambda: consumer.process(
            handled_by(shell, work), dead_letter="dead", transactional_id=transactional_id
        )
    )
    shell.do(consumer.close)
    [sent], [refused], [dead] = (spans.named(name) for name in ("send orders", "send out", "send dead"))
    assert refused.status.status_code is StatusCode.ERROR
    assert trace_of(refused) == trace_of(dead) == trace_of(sent)
    assert spans.open() == []


def test_a_batch_has_many_parents_as_links(cluster: Cluster, shell: Shell, spans: Spans) -> None:
    produce(cluster, spans, b"1", b"2", b"3")
    produce(cluster, None, b"4")
    consumer = member(cluster, shell, spans)
    sizes = []

    def work(records: list[Record[Any, Any]]) -> None:
        sizes.append(len(records))
        if len(records) > 1:
            raise ValueError("one of these")
        if len(sizes) == 7:
            consumer.stop()

    shell.do(lambda: consumer.process(handled_by(shell, work), batch=(4, 60), halve=True, workers=1))
    shell.do(consumer.close)
    assert sorted(sizes) == [1, 1, 1, 1, 2, 2, 4]
    sent = {id_of(each) for each in spans.named("send orders")}
    polls = {id_of(each) for each in spans.named("poll orders")}
    whole = next(
        each
        for each in spans.named("process orders")
        if attributes(each).get("messaging.batch.message_count") == 4
    )
    assert whole.parent is None
    assert sent <= linked(whole) <= sent | polls
    assert whole.status.status_code is StatusCode.ERROR
    single = [
        each
        for each in spans.named("process orders")
        if "messaging.batch.message_count" not in attributes(each)
    ]
    assert {parent_of(each) for each in single} == {*sent, None}
    assert spans.open() == []


def test_spans_end_that_nobody_waits_for_any_longer(cluster: Cluster, shell: Shell, spans: Spans) -> None:
    produce(cluster, spans, b"1")
    consumer = member(cluster, shell, spans)
    go_on, is_over = threading.Event(), threading.Event()

    def work(record: Record[Any, Any]) -> None:
        consumer.stop()
        go_on.wait(PATIENCE)
        is_over.set()

    shell.do(lambda: consumer.process(work, drain=0.01))
    [handled] = spans.named("process orders")
    assert handled.status.status_code is StatusCode.ERROR
    go_on.set()
    assert is_over.wait(PATIENCE)
    shell.do(consumer.close)
    assert len(spans.named("process orders")) == 1
    assert spans.open() == []


def test_a_handler_that_is_cancelled_by_its_timeout_has_a_span_that_ends(
    cluster: Cluster, shell: Shell, spans: Spans
) -> None:
    produce(cluster, spans, b"1")
    consumer = member(cluster, shell, spans)

    async def work(record: Record[Any, Any], context: Context) -> None:
        if context.attempt == 1:
            await asyncio.sleep(PATIENCE)
        consumer.stop()

    retry = Retry(attempts=2, backoff=0.001)
    shell.do(lambda: consumer.process(work, timeout=0.05, retry=retry))
    shell.do(consumer.close)
    late, done = by_attempt(spans.named("process orders"))
    assert late.status.status_code is StatusCode.ERROR
    assert done.status.status_code is StatusCode.UNSET
    assert spans.open() == []


def test_handlers_in_processes_run_within_the_trace_and_a_dead_child_ends_its_span(
    cluster: Cluster, shell: Shell, spans: Spans
) -> None:
    produce(cluster, spans, b"1", b"die")
    consumer = member(cluster, shell, spans)
    processing = threading.Thread(target=until, args=(lambda: _stops(consumer, spans),))
    processing.start()
    shell.do(lambda: consumer.process(handlers.work, executor="processes", workers=1, dead_letter="dead"))
    processing.join()
    shell.do(consumer.close)
    done, died = spans.named("process orders")
    assert attributes(died)["error.type"] == "kadence.errors.WorkerDiedError"
    [record] = read(cluster, "out")
    assert record.value == b"%032x" % trace_of(done)
    assert spans.open() == []


def _stops(consumer: Any, spans: Spans) -> bool:
    if spans.named("send dead"):
        consumer.stop()
        return True
    return False


def test_a_handler_that_outlasts_its_partition_has_a_span_that_says_so(
    cluster: Cluster, spans: Spans
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(2):
            producer.send("orders", b"1", partition=partition)
    shell = Shell("threads")
    first, second = member(cluster, shell, spans), member(cluster, shell, Spans())
    began, is_over = threading.Barrier(3), threading.Event()

    def held(record: Record[Any, Any], context: Context) -> None:
        began.wait(PATIENCE)
        until(lambda: context.lost or is_over.is_set())

    running = threading.Thread(target=lambda: first.process(held, drain=0))
    running.start()
    began.wait(PATIENCE)
    until(lambda: bool(second.poll(0.05)))
    is_over.set()
    first.stop()
    running.join(PATIENCE)
    first.close()
    second.close()
    until(lambda: not spans.open())
    lost = [attributes(each).get("kadence.lost") for each in spans.named("process orders")]
    assert len(lost) == 2
    assert True in lost


def test_an_async_producer_and_errors_of_sends(cluster: Cluster, spans: Spans) -> None:
    async def run() -> None:
        async with AsyncProducer(
            bootstrap_servers=cluster.bootstrap_servers, max_request_size=1000
        ) as producer:
            tracing = trace(producer, tracer_provider=spans.provider)
            await producer.send_and_wait("orders", b"1")
            with pytest.raises(KafkaError):
                await producer.send("orders", b"1" * 2000)
            tracing.remove(producer)
            await producer.send_and_wait("orders", b"untraced")

    asyncio.run(run())
    # The network thread ends a span after it has told who awaits the record.
    until(lambda: len(spans.begun) == 2 and not spans.open())
    good, bad = sorted(spans.ended, key=lambda span: span.start_time or 0)
    assert good.status.status_code is StatusCode.UNSET
    assert bad.status.status_code is StatusCode.ERROR
    assert spans.open() == []


def test_headers_that_are_there_already(cluster: Cluster, spans: Spans) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        trace(producer, tracer_provider=spans.provider)
        producer.send("out", b"1", headers={"traceparent": b"of another", "mine": b"1"})
        producer.send("out", b"2", headers=[("h", b"")] * MOST_HEADERS)
        with pytest.raises(KafkaError):
            producer.send("out", b"3", headers=[("h", 5)])  # type: ignore[list-item]
    first, second = read(cluster, "out")
    assert [name for name, _ in first.headers] == ["mine", "traceparent"]
    assert first.headers[1][1] != b"of another"
    assert len(second.headers) == MOST_HEADERS
    assert spans.open() == []


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (("é" * 300).encode(), "é" * 256),
        (b"a" + ("é" * 300).encode(), "a" + "é" * 255),
        (("\N{BOOKS}" * 300).encode(), "\N{BOOKS}" * 256),
        (b"a" * 5_000, "a" * 256),
        ("é".encode()[:1], None),
        (b"a" * 100 + b"\xff", None),
    ],
)
def test_a_key_is_named_by_its_first_256_characters(
    cluster: Cluster, spans: Spans, key: bytes, named: str | None
) -> None:
    produce(cluster, spans, b"1", key=key)
    (sent,) = spans.named("send orders")
    assert attributes(sent).get("messaging.kafka.message.key") == named


def test_foreign_headers_say_nothing(cluster: Cluster, shell: Shell, spans: Spans) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for value in (b"\xff\xfe", b"", None, b"00-0-0-0"):
            producer.send("orders", b"1", b"\xff", partition=0, headers=[("traceparent", value)])
    consumer = member(cluster, shell, spans)
    count = [0]

    def work(record: Record[Any, Any]) -> None:
        count[0] += 1
        if count[0] == 4:
            consumer.stop()

    shell.do(lambda: consumer.process(handled_by(shell, work)))
    shell.do(consumer.close)
    assert [each.parent for each in spans.named("process orders")] == [None] * 4


def test_loops_of_ones_own(cluster: Cluster, spans: Spans) -> None:
    produce(cluster, spans, b"1", b"2")
    tracing = Tracing(spans.provider)
    records = read(cluster, "orders")
    with tracing.processing(records[0], group=GROUP) as span:
        assert get_current_span() is span
    with pytest.raises(ValueError, match="bad"), tracing.processing(records):
        raise ValueError("bad")
    first, both = spans.named("process orders")
    sent = spans.named("send orders")
    assert parent_of(first) == id_of(sent[0])
    assert linked(both) == {id_of(each) for each in sent}
    assert both.status.status_code is StatusCode.ERROR
    with pytest.raises(TypeError, match="consumers and producers"):
        tracing.add("a consumer")  # type: ignore[arg-type]


def test_what_is_not_traced_has_no_step_more(cluster: Cluster, shell: Shell) -> None:
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        tracing = trace(producer, consumer)
        tracing.remove(producer)
        tracing.remove(consumer)
        assert not {"send", "send_arrow"} & vars(producer).keys()
        assert not {"poll", "poll_arrow", "_next"} & vars(consumer).keys()
        assert consumer._core.tracing is None
    shell.do(consumer.close)


def test_each_record_of_an_iteration_has_a_span(cluster: Cluster, shell: Shell, spans: Spans) -> None:
    produce(cluster, spans, b"1", b"22", b"333")
    consumer = member(cluster, shell, spans)

    async def three() -> list[bytes]:
        found: list[bytes] = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == 3:
                break
        return found

    def on_thread() -> list[bytes]:
        return [record.value for _, record in zip(range(3), consumer, strict=False)]

    assert shell.do(three if shell.runner is not None else on_thread)[:3] == [b"1", b"22", b"333"]
    shell.do(consumer.close)
    sent, polled = spans.named("send orders"), spans.named("poll orders")
    assert [linked(each) for each in polled[:3]] == [{id_of(each)} for each in sent]
    assert [attributes(each)["messaging.kafka.offset"] for each in polled[:3]] == [0, 1, 2]
    assert attributes(polled[0]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.client.id": "me",
        "messaging.consumer.group.name": GROUP,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "k",
        "messaging.message.body.size": 1,
    }
    assert not spans.open()


def sent_table(cluster: Cluster, shell: Shell, spans: Spans, table: Any) -> Any:
    """What becomes of a table that a traced producer sends."""
    if shell.runner is None:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="p") as producer:
            trace(producer, tracer_provider=spans.provider)
            return producer.send_arrow(table, "orders").result(PATIENCE)

    async def send() -> Any:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="p") as producer:
            trace(producer, tracer_provider=spans.provider)
            return await (await producer.send_arrow(table, "orders"))

    return shell.do(send)


def test_tables_have_one_span_each(cluster: Cluster, shell: Shell, spans: Spans) -> None:
    table = pa.table({"value": [b"1", b"2", b"3"], "partition": pa.array([0, 0, 0], pa.int32())})
    assert sent_table(cluster, shell, spans, table).rows == 3
    consumer = member(cluster, shell, spans)
    found: list[Any] = []

    def polled() -> bool:
        found.append(shell.do(lambda: consumer.poll_arrow(0.1, columns=["value", "offset"])))
        return bool(sum(each.num_rows for each in found) == 3)

    until(polled)
    shell.do(consumer.close)
    assert all(each.column_names == ["value", "offset"] for each in found)
    [sent], received = spans.named("send orders"), spans.named("poll orders")
    assert sent.kind is SpanKind.PRODUCER
    assert attributes(sent) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "p",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 3,
    }
    assert sum(attributes(each)["messaging.batch.message_count"] for each in received) == 3
    assert attributes(received[0]) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.client.id": "me",
        "messaging.consumer.group.name": GROUP,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": attributes(received[0])["messaging.batch.message_count"],
    }
    assert all(linked(each) == {id_of(sent)} for each in received)
    assert not spans.open()
    assert {header[0] for record in read(cluster, "orders") for header in record.headers} == {"traceparent"}


@pytest.mark.parametrize("form", [pa.list_, pa.large_list])
def test_headers_of_tables_are_kept_but_for_an_older_context(
    cluster: Cluster, spans: Spans, form: Callable[..., Any]
) -> None:
    kind = form(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [
        [("a", b"1"), ("traceparent", b"old"), ("b", None)],
        None,
        [],
        [("traceparent", b"old")],
        [("c", b"3")],
    ]
    values = pa.array([b"%d" % n for n in range(5)])
    table = pa.table({"value": values, "headers": pa.chunked_array([pa.array(headers, kind)])})
    batch = pa.record_batch({"value": values[:1], "headers": pa.array([[("x", b"y")]], kind)})
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        trace(producer, tracer_provider=spans.provider)
        for data in (table.slice(1), table.slice(0, 1), batch):
            producer.send_arrow(
                data.append_column("partition", pa.array([0] * data.num_rows, pa.int32()))
                if isinstance(data, pa.Table)
                else data,
                "out",
            ).result(PATIENCE)
    found = read(cluster, "out")
    contexts = [record.headers[-1] for record in found]
    assert {name for name, _ in contexts} == {"traceparent"}
    assert [record.headers[:-1] for record in found] == [
        (),
        (),
        (),
        (("c", b"3"),),
        (("a", b"1"), ("b", None)),
        (("x", b"y"),),
    ]
    assert [value[36:52].decode() for _, value in contexts if value] == [
        f"{id_of(each):016x}" for each in [spans.named("send out")[n] for n in (0, 0, 0, 0, 1, 2)]
    ]


def test_tables_that_are_refused_end_their_spans(cluster: Cluster, spans: Spans) -> None:
    full = [[("h", b"")] * MOST_HEADERS]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        trace(producer, tracer_provider=spans.provider)
        for data in ("no table", pa.table({"key": [b"k"]}), pa.table({"value": [b"v"], "headers": [1]})):
            with pytest.raises(KafkaError):
                producer.send_arrow(data, "out")
        whole = pa.table({"value": [b"v"], "headers": pa.array(full, kind)})
        producer.send_arrow(whole, "out").result(PATIENCE)
        producer.send_arrow(pa.table({"value": pa.array([], pa.binary())}), "out").result(PATIENCE)
    assert len(read(cluster, "out")[0].headers) == MOST_HEADERS
    assert not spans.open()
    assert [each.status.status_code for each in spans.ended if each.name == "send out"].count(
        StatusCode.ERROR
    ) == 3


def test_real_brokers_keep_the_context(kafka: Kafka, spans: Spans) -> None:
    cluster = Cluster("kafka", kafka.bootstrap_servers)
    topic = cluster.topic(1)
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        trace(producer, tracer_provider=spans.provider)
        producer.send(topic, b"1")
    with Consumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        trace(consumer, tracer_provider=spans.provider)
        consumer.assign({TopicPartition(topic, 0): 0})
        until(lambda: bool(consumer.poll(0.5)))
    [sent], [polled] = spans.named(f"send {topic}"), spans.named(f"poll {topic}")
    assert linked(polled) == {id_of(sent)}
    assert spans.open() == []
