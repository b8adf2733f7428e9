"""librdkafka's share consumer (KIP-932, a preview there), through confluent-kafka, unmodified."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from conftest import FAST_GROUPS
from tests.interop.librdkafka import QUIET
from tests.patience import PATIENCE, until

from kadence_broker import Broker

admin_api: Any = confluent_kafka.admin
RECORDS = 600
CONFIG = {**FAST_GROUPS, "group.share.assignment.interval.ms": 0}
EARLIEST = "share.auto.offset.reset"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2, topics={"t": 3}, config=CONFIG) as running:
        configure(running, **{EARLIEST: "earliest"})
        yield running


def configure(broker: Broker, **settings: str) -> None:
    entries = [
        admin_api.ConfigEntry(name, value, incremental_operation=admin_api.AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    resource = admin_api.ConfigResource(admin_api.ConfigResource.Type.GROUP, "q", incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def produce(broker: Broker, count: int = RECORDS, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for number in range(first, first + count):
        producer.produce("t", b"%d" % number, partition=number % 3)
    producer.flush()


@contextmanager
def member(broker: Broker, **config: Any) -> Iterator[Any]:
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "q", **QUIET, **config}
    )
    try:
        consumer.subscribe(["t"])
        yield consumer
    finally:
        consumer.close()


def polled(consumer: Any, timeout: float = 0.2) -> list[Any]:
    messages = consumer.poll(timeout=timeout)
    assert not [each.error() for each in messages if each.error()]
    return list(messages)


def test_two_members_share_partitions_and_each_record_comes_once(broker: Broker) -> None:
    produced = 0
    seen: Counter[bytes] = Counter()
    shares = [0, 0]
    with member(broker) as first, member(broker) as second:

        def have_shared() -> bool:
            nonlocal produced
            if len(seen) == produced:
                # One may have been given all before the other had joined.
                produce(broker, RECORDS, produced)
                produced += RECORDS
            for number, consumer in enumerate((first, second)):
                messages = polled(consumer)
                shares[number] += len(messages)
                seen.update(each.value() for each in messages)
            return all(shares) and len(seen) == produced

        until(have_shared, what=lambda: f"{shares} of {produced}", every=0)
        for consumer in (first, second):
            polled(consumer)  # accepts what the last one returned
    assert set(seen.values()) == {1}


def test_what_a_member_did_not_accept_comes_to_the_next(broker: Broker) -> None:
    produce(broker, 30)
    with member(broker) as first:
        deadline = time.monotonic() + PATIENCE
        got: list[Any] = []
        while not got and time.monotonic() < deadline:
            got = polled(first)
        assert got
    again: Counter[bytes] = Counter()
    with member(broker) as second:
        while len(again) < 30 and time.monotonic() < deadline:
            again.update(each.value() for each in polled(second))
    assert set(again) == {b"%d" % number for number in range(30)}


def test_a_rejected_record_gets_a_dead_letter(broker: Broker) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    made = admin_api.NewTopic("dlq.q", 1, config={"errors.deadletterqueue.group.enable": "true"})
    for done in admin.create_topics([made]).values():
        done.result()
    configure(broker, **{EARLIEST: "earliest", "errors.deadletterqueue.topic.name": "dlq.q"})
    produce(broker, 3)

    with member(broker, **{"share.acknowledgement.mode": "explicit"}) as consumer:
        deadline = time.monotonic() + PATIENCE
        rejected = 0
        while rejected < 3 and time.monotonic() < deadline:
            for message in polled(consumer):
                consumer.acknowledge(message, AcknowledgeType.REJECT)
                rejected += 1
            consumer.commit_sync()
        while broker.offsets("dlq.q")[0] != (0, 3) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert broker.offsets("dlq.q") == [(0, 3)]
