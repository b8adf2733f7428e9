"""kafka-python, unmodified."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence_broker import Broker

with warnings.catch_warnings():
    # It reads its own schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

RECORDS = 300


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With an initial delay, as Kafka has by default.

    This client joins before it knows the topic's partitions; when they come while its first assignment is
    on the way, it may stop asking for anything at all.
    """
    config = {"group.initial.rebalance.delay.ms": 300}
    with Broker(nodes=3, topics={"t": 4}, config=config) as running:
        yield running


def produce(broker: Broker, **config: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers.split(","), **config)
    with closing(producer):
        sent = [
            producer.send("t", b"v%d" % number, key=b"k%d" % (number % 50), headers=[("n", b"%d" % number)])
            for number in range(RECORDS)
        ]
        producer.flush(PATIENCE)
        assert all(each.get(1).offset >= 0 for each in sent)


def consumer(broker: Broker) -> Any:
    return KafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers.split(","),
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=100,
    )


def poll_until(consumers: list[Any], done: Callable[[], bool], seen: dict[bytes, int] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "the group did not get there"
        for each in consumers:
            for records in each.poll(timeout_ms=50).values():
                for record in records:
                    if seen is not None:
                        seen[record.value] = seen.get(record.value, 0) + 1


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_two_members_share_and_commit(broker: Broker, compression: str | None) -> None:
    produce(broker, compression_type=compression)
    seen: dict[bytes, int] = {}
    with ExitStack() as opened:
        first = opened.enter_context(closing(consumer(broker)))
        poll_until([first], lambda: len(seen) == RECORDS, seen)
        first.commit()
        second = opened.enter_context(closing(consumer(broker)))
        poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2, seen)
        committed = [second.committed(TopicPartition("t", each)) for each in range(4)]
        assert committed == [end for _, end in broker.offsets("t")]
    assert set(seen.values()) == {1}
    assert "Empty" in broker.describe_groups()["g"]


def test_administration(broker: Broker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers.split(","))) as admin:
        admin.create_topics([NewTopic("made", 3, 1)])
        assert set(admin.list_topics()) == {"t", "made"}
        admin.delete_topics(["made"])
        assert set(admin.list_topics()) == {"t"}
