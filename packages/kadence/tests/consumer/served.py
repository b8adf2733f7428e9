"""An embedded broker with the topic "t", and consumers of it, for tests of whole consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import Broker, Consumer, Producer

__all__ = ["Served", "served"]


class Served:
    """An embedded broker with the topic "t", and what a test wants of it in a word."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.faults = broker.faults
        self.consumers: list[Consumer] = []

    def produce(self, count: int, *, start: int = 0, partitions: int = 1, size: int = 0) -> None:
        """Values are numbers, padded to ``size``; round robin over the partitions of "t"."""
        with Producer(bootstrap_servers=self.broker.bootstrap_servers) as producer:
            sent = [
                producer.send("t", (b"%d" % number).ljust(size, b"."), partition=number % partitions)
                for number in range(start, start + count)
            ]
            for future in sent:
                future.result(PATIENCE)

    def consumer(self, **settings: Any) -> Consumer:
        """One that starts at the beginning; closed at the end of the test."""
        made = Consumer(
            bootstrap_servers=self.broker.bootstrap_servers, **{"auto_offset_reset": "earliest", **settings}
        )
        self.consumers.append(made)
        return made


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Parametrise it indirectly with (partitions, nodes); (1, 1) by default."""
    partitions, nodes = getattr(request, "param", (1, 1))
    with Broker(
        topics={"t": partitions}, nodes=nodes, config={"group.min.session.timeout.ms": 500}
    ) as broker:
        running = Served(broker)
        yield running
        with ExitStack() as closing:
            for consumer in running.consumers:
                closing.callback(consumer.close, timeout=5)
