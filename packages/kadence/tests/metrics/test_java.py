"""Our metrics beside those of Kafka's own client in a JVM: the same statistics, the same names."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kadence import Consumer, Producer
from kadence.admin import Admin
from kadence.java import find_java
from kadence.metrics.sensors import Meter
from kadence_testing.kafka import Kafka, kafka_jars

NOT_OURS = {
    # The end of docs/metrics.md names them.
    ("app-info", "commit-id"),
    ("app-info", "start-time-ms"),
    ("app-info", "version"),
    ("kafka-metrics-count", "count"),
    ("consumer-metrics", "successful-authentication-no-reauth-total"),
    ("producer-metrics", "successful-authentication-no-reauth-total"),
    ("producer-metrics", "record-size-avg"),
    ("producer-metrics", "record-size-max"),
    ("producer-metrics", "requests-in-flight"),
    ("producer-metrics", "metadata-age"),
    ("producer-metrics", "txn-begin-time-ns-total"),
    ("producer-metrics", "txn-prepare-time-ns-total"),
}


@pytest.fixture(scope="module")
def jvm(kafka: Kafka) -> Iterator[Any]:
    """Kafka's classes behind py4j's gateway, which PySpark brings."""
    py4j = pytest.importorskip("py4j.java_gateway")
    pyspark = pytest.importorskip("pyspark")
    (gateway_jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port = py4j.launch_gateway(
        jarpath=str(gateway_jar),
        classpath=f"{kafka_jars()}/*",
        java_path=str(find_java().executable),
        die_on_exit=True,
    )
    gateway = py4j.JavaGateway(gateway_parameters=py4j.GatewayParameters(port=port, auto_convert=True))
    yield gateway.jvm
    gateway.shutdown()


def same(ours: float, theirs: float) -> bool:
    return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=1e-9)


def test_rates_averages_and_extremes_are_those_of_kafkas_sampled_statistics(jvm: Any) -> None:
    kinds, config = (
        jvm.org.apache.kafka.common.metrics.stats,
        jvm.org.apache.kafka.common.metrics.MetricConfig(),
    )
    rng = random.Random(4)
    steps = (0, 1, 10, 500, 3_000, 9_000, 29_999, 30_000, 30_001, 59_999, 60_000, 61_000)
    for _ in range(60):
        stats = [kinds.Rate(), kinds.Rate(kinds.WindowedCount()), kinds.Avg(), kinds.Max(), kinds.Min()]
        meter, now = Meter(), rng.randrange(10_000)
        told = []
        for _ in range(rng.randrange(1, 30)):
            now += rng.choice(steps) if rng.random() < 0.3 else rng.randrange(4_000)
            value = rng.randrange(1_000)
            told.append((now, value))
            meter.record(now, value)
            for stat in stats:
                stat.record(config, float(value), now)
        now += rng.choice(steps)
        ours = (
            meter.rate(now),
            meter.frequency(now),
            meter.average(now),
            meter.highest(now),
            meter.lowest(now),
        )
        theirs = [stat.measure(config, now) for stat in stats]
        assert all(map(same, ours, theirs)), f"{told} at {now}: {ours} is not {theirs}"


Shape = tuple[str, str, str]
"""Group, name, tags."""


def theirs(jvm: Any, kafka: Kafka, protocol: str, topic: str) -> set[Shape]:
    """What Kafka's consumer measures once it has read 10 records and committed."""
    reader = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"java-{protocol}",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    properties = jvm.java.util.Properties()
    for key, value in settings.items():
        properties.put(key, value)
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties, reader(), reader())
    try:
        consumer.subscribe([topic])
        read = 0
        while read < 10:
            count = consumer.poll(jvm.java.time.Duration.ofSeconds(30)).count()
            assert count
            read += count
        consumer.commitSync()
        return {
            (name.group(), name.name(), ",".join(sorted(name.tags().keySet())))
            for name in consumer.metrics().keySet()
        }
    finally:
        consumer.close()


def ours(kafka: Kafka, protocol: str, topic: str) -> set[Shape]:
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"ours-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(topic)
        read = 0
        while read < 10:
            records = consumer.poll(timeout=30)
            assert records
            read += len(records)
        return {(name.group, name.name, ",".join(sorted(name.tags))) for name in consumer.metrics()}


def test_every_metric_of_kafkas_consumers_has_its_name_here_or_is_named_as_missing(
    jvm: Any, kafka: Kafka
) -> None:
    topic = "names-of-metrics"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({topic: 1})
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send(topic, b"value")
    all_theirs: set[Shape] = set()
    all_ours: set[Shape] = set()
    for protocol in ("classic", "consumer"):
        java_has = theirs(jvm, kafka, protocol, topic)
        assert len(java_has) > 100
        we_have = ours(kafka, protocol, topic)
        missing = {row for row in java_has - we_have if row[:2] not in NOT_OURS}
        assert not missing, "\n".join(map(str, sorted(missing)))
        all_theirs |= java_has
        all_ours |= we_have
    assert {group for group, _, _ in all_ours - all_theirs} == {"kadence-consumer-metrics"}


def test_every_metric_of_kafkas_producer_has_its_name_here_or_is_named_as_missing(
    jvm: Any, kafka: Kafka
) -> None:
    topic = "names-of-producer-metrics"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({topic: 1})
    writer = jvm.org.apache.kafka.common.serialization.StringSerializer
    properties = jvm.java.util.Properties()
    properties.put("bootstrap.servers", kafka.bootstrap_servers)
    java_producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(properties, writer(), writer())
    try:
        java_producer.send(jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, "value")).get()
        java_has = {
            (name.group(), name.name(), ",".join(sorted(name.tags().keySet())))
            for name in java_producer.metrics().keySet()
        }
    finally:
        java_producer.close()
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send_and_wait(topic, b"value")
        we_have = {(name.group, name.name, ",".join(sorted(name.tags))) for name in producer.metrics()}
    missing = {row for row in java_has - we_have if row[:2] not in NOT_OURS}
    assert not missing, "\n".join(map(str, sorted(missing)))
    assert we_have <= java_has, sorted(we_have - java_has)
