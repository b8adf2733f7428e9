"""A tracer provider that keeps what it gets, a broker, and both shells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import FAST_GROUPS
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from tests.consumer.support import Cluster, Shell

from kadence import Broker

TOPICS = {"orders": 2, "out": 1, "dead": 1, "again": 1}


class Spans(SpanProcessor):
    """Every span that began, and every one that has ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self.provider.add_span_processor(self)
        self.begun: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.begun.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def open(self) -> list[str]:
        """Spans that never ended."""
        return [span.name for span in self.begun if span.end_time is None]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(topics=TOPICS, config=FAST_GROUPS) as broker:
        yield Cluster("embedded", broker.bootstrap_servers, broker=broker)


@pytest.fixture(params=["threads", "asyncio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    if shell.runner is not None:
        shell.runner.close()
