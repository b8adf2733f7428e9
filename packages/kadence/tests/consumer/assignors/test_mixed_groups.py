"""Groups of Kadence and librdkafka together: each assignor with each of them as the leader, on a real socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from tests.patience import PATIENCE

from kadence import Admin, Broker, Consumer

PARTITIONS = 6
GROUP = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}


def ours(broker: Broker, strategy: str) -> Any:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "mixed", **GROUP},
        partition_assignment_strategy=strategy,
    )
    consumer.subscribe(["t"])
    return consumer


def theirs(broker: Broker, strategy: str) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "mixed",
            "partition.assignment.strategy": strategy,
            **GROUP,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def owned(consumer: Any) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


def poll_until(consumers: list[Any], done: Callable[[], bool]) -> None:
    """Each consumer polls in turn, until ``done``; fails with what each owns after 30 s."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, [owned(consumer) for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.02)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("makers", [(ours, theirs), (theirs, ours)], ids=["we lead", "they lead"])
def test_mixed_group_shares_everything(makers: Any, strategy: str) -> None:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({"t": PARTITIONS})
        first = makers[0](broker, strategy)
        second = None
        try:
            poll_until([first], lambda: owned(first) == list(range(PARTITIONS)))
            second = makers[1](broker, strategy)
            both = [first, second]
            poll_until(both, lambda: [len(owned(consumer)) for consumer in both] == [3, 3])
            shares = [owned(consumer) for consumer in both]
            assert sorted(shares[0] + shares[1]) == list(range(PARTITIONS))
            if strategy == "range":
                assert sorted(shares) == [[0, 1, 2], [3, 4, 5]], "librdkafka's range and ours are one"
            first.close()
            poll_until([second], lambda: owned(second) == list(range(PARTITIONS)))
        finally:
            first.close()
            if second is not None:
                second.close()
