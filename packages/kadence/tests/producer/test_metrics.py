"""`Producer.metrics()`: what the sender did, in Kafka's names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import FAST_GROUPS
from prometheus_client import CollectorRegistry, generate_latest
from tests.patience import until
from tests.worlds.producer import World

from kadence import AsyncProducer, Broker, Consumer, GroupMetadata, MetricName, Producer, TopicPartition
from kadence.errors import KafkaTimeoutError
from kadence.metrics.otel import otel_name
from kadence.metrics.prometheus import ClientCollector, prometheus_name
from kadence.producer.metrics import CLIENT, NODE, TOPIC, Metrics
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest


def values(found: Any, group: str = CLIENT, **tags: str) -> dict[str, float]:
    return {
        name.name: value
        for name, value in found.items()
        if name.group == group and all(name.tags.get(tag) == text for tag, text in tags.items())
    }


def test_what_was_sent_is_counted_by_records_batches_and_requests(broker: Broker) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, client_id="me", compression_type="gzip", linger_ms=60_000
    ) as producer:
        for _ in range(100):
            producer.send("counted", b"a" * 1000, partition=0)
        producer.flush()
        found = producer.metrics()
        client, topic = values(found), values(found, TOPIC, topic="counted")
        assert client["record-send-total"] == topic["record-send-total"] == 100
        assert client["record-error-total"] == client["record-retry-total"] == 0
        assert 0 < client["compression-rate-avg"] < 0.5
        assert client["compression-rate-avg"] == topic["compression-rate"]
        assert 0 < topic["byte-total"] < 50_000
        assert client["batch-size-max"] <= topic["byte-total"]
        assert 1 <= client["records-per-request-avg"] <= 100
        assert client["request-latency-avg"] >= 0
        assert client["record-queue-time-max"] >= client["record-queue-time-avg"] >= 0
        assert client["buffer-total-bytes"] == client["buffer-available-bytes"] == 32 << 20
        assert client["waiting-threads"] == client["buffer-exhausted-total"] == 0
        assert client["flush-time-ns-total"] >= 0
        assert client["connection-count"] >= 1
        node = values(found, NODE, **{"node-id": "node-1"})
        # Nothing is on its way any more. What the connection asks for itself, ApiVersions, counts as any request.
        assert node["request-total"] == node["response-total"] >= 2
        assert client["request-total"] == client["response-total"]
        assert {name.tags["client-id"] for name in found} == {"me"}


def test_every_name_is_in_the_catalogue_and_has_names_elsewhere(broker: Broker) -> None:
    known = {(name.group, name.name, frozenset(name.tags)) for name in Producer.metric_names()}
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_and_wait("counted", b"1")
        found = producer.metrics()
        registry = CollectorRegistry()
        registry.register(ClientCollector(producer))
        assert "kafka_producer_topic_record_send_total" in generate_latest(registry).decode().replace(
            "producer_topic_topic", "producer_topic"
        )
    assert {(name.group, name.name, frozenset(name.tags)) for name in found} == known
    names: tuple[MetricName, ...] = (*Producer.metric_names(), *Consumer.metric_names())
    assert len({prometheus_name(name) for name in names}) == len(names)
    assert len({otel_name(name) for name in names}) == len(names)


def test_an_async_producer_has_them_too(broker: Broker) -> None:
    async def run() -> float:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("counted", b"1")
            return values(producer.metrics())["record-send-total"]

    assert asyncio.run(run()) == 1


def test_records_that_are_repeated_and_given_up() -> None:
    world = World(retries=1)
    metrics = Metrics("me", world.accumulator)
    world.append(b"1")
    world.append(b"2")
    world.ready()
    world.acknowledge(world.ask(ProduceRequest), code=ec.NOT_LEADER_OR_FOLLOWER)
    once = values(metrics.read(world.now))
    assert (once["record-send-total"], once["record-retry-total"]) == (2, 2)
    world.advance(1_000)
    world.acknowledge(world.ask(ProduceRequest), code=ec.NOT_LEADER_OR_FOLLOWER)
    twice = values(metrics.read(world.now))
    assert (twice["record-send-total"], twice["record-error-total"]) == (4, 2)


def test_waiting_for_memory(broker: Broker) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        buffer_memory=2_000,
        batch_size=1_000,
        linger_ms=60_000,
        max_block_ms=50,
    ) as producer:
        until(lambda: _is_known(producer))
        frozen = broker.faults.freeze()
        producer.send("counted", b"a" * 900)
        producer.send("counted", b"a" * 900)
        with pytest.raises(KafkaTimeoutError):
            producer.send("counted", b"a" * 900)
        found = values(producer.metrics())
        frozen.thaw()
        assert found["buffer-exhausted-total"] == 1
        assert found["bufferpool-wait-time-ns-total"] > 0
        assert found["buffer-available-bytes"] < 2_000


def _is_known(producer: Producer) -> bool:
    try:
        return bool(producer.partitions_for("counted"))
    except KafkaTimeoutError:
        return False


def test_time_in_transactions() -> None:
    with (
        Broker(topics={"t": 1}, config=FAST_GROUPS) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx") as producer,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"1")
            producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, GroupMetadata("g"))
        found = values(producer.metrics())
        for name in ("txn-init", "txn-send-offsets", "txn-commit", "txn-abort"):
            assert found[f"{name}-time-ns-total"] >= 0
