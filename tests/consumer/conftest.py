"""One set of consumer tests, three brokers: ours, real Apache Kafka, librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.consumer.support import Cluster


@pytest.fixture(params=["embedded", "kafka", "mock"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    fixture = {"embedded": "broker", "kafka": "kafka", "mock": "mock_cluster"}[request.param]
    broker = request.getfixturevalue(fixture)
    running = Cluster(request.param, broker.bootstrap_servers, broker if request.param == "mock" else None)
    yield running
    for consumer in running.consumers:
        consumer.close(timeout=5)
