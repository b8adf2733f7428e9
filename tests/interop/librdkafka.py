"""A group member of librdkafka's, and polling several of them by turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer
from tests.patience import PATIENCE

from kadence_broker import Broker

QUIET: dict[str, Any] = {"log_level": 0}


@contextmanager
def consuming(broker: Broker, group: str = "g", **config: Any) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **QUIET,
            **config,
        }
    )
    try:
        consumer.subscribe(["t"])
        yield consumer
    finally:
        consumer.close()


def poll_until(consumers: list[Any], done: Callable[[], bool], seen: dict[bytes, int] | None = None) -> None:
    """Poll all of them until ``done``; values go to ``seen`` with how often they came."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "the group did not get there"
        for consumer in consumers:
            for message in consumer.consume(200, 0.02):
                assert message.error() is None, message.error()
                if seen is not None:
                    seen[message.value()] = seen.get(message.value(), 0) + 1
