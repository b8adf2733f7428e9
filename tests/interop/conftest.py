"""Other people's clients against our broker: three nodes, a topic of four partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.tools import Tools, tools_jvm

from kadence_broker import Broker
from kadence_testing.kafka import Kafka


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=3, topics={"t": 4}) as running:
        yield running


@pytest.fixture(scope="session")
def tools(kafka: Kafka) -> Iterator[Tools]:
    """Kafka's tools in one JVM; real Kafka, which some tests compare with, says whether its jars are here."""
    del kafka
    with tools_jvm() as running:
        yield running
