"""`kadence.otel.trace` on a share consumer: polls and attempts have spans, until it is removed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.queue import HandNetwork

from kadence import Broker, Producer, Record, ShareConsumer
from kadence.admin import Admin, ConfigResource

pytest.importorskip("opentelemetry.sdk")

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


def test_polls_and_steps_of_an_iteration_have_spans(made: Made) -> None:
    from tests.otel.conftest import Spans

    from kadence.otel import trace

    consumer, network = made
    spans = Spans()
    tracing = trace(consumer, tracer_provider=spans.provider)
    network.put(3)
    consumer.poll(max_records=2)
    next(consumer)
    found = spans.named("poll jobs")
    counts = [dict(span.attributes or {})["messaging.batch.message_count"] for span in found]
    assert counts == [2, 1]
    tracing.remove(consumer)
    network.put(1, first=3)
    assert consumer.poll()
    assert len(spans.named("poll jobs")) == 2


def test_each_attempt_of_process_has_a_span(broker: Broker) -> None:
    from tests.otel.conftest import Spans

    from kadence.otel import trace

    spans = Spans()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({"jobs": 1})
        admin.incremental_alter_configs(
            {ConfigResource("group", "q"): {"share.auto.offset.reset": "earliest"}}
        )
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("jobs", b"1")
    with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="q") as consumer:
        trace(consumer, tracer_provider=spans.provider)
        consumer.subscribe("jobs")

        def handle(record: Record[Any, Any]) -> None:
            consumer.stop()

        assert consumer.process(handle).done == 1
    assert len(spans.named("process jobs")) == 1
    assert spans.open() == []
