"""A broker, and a producer whose batches this thread sends by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.producer.direct_sends.world import PARTITIONS, Ways, settle

from kadence import Producer
from kadence_broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": PARTITIONS}) as broker:
        yield broker


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def producer(broker: Broker, ways: Ways) -> Iterator[Producer]:
    """With some records behind it, the last of each partition sent by this thread."""
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        retry_backoff_ms=10,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    ) as producer:
        settle(producer, ways)
        yield producer
