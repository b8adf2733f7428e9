"""A broker with one topic of two partitions, and a bare connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.wire import Wire

from kadence_broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}, config={"group.min.session.timeout.ms": 100}) as running:
        yield running


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker) as connected:
        yield connected
