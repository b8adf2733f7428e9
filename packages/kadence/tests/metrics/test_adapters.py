"""The adapters with the real libraries, against a consumer that reads from the embedded broker."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping, Sequence

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kadence import Broker, Consumer, MetricName, Producer
from kadence.metrics.otel import ClientInstruments, _unit, otel_name
from kadence.metrics.prometheus import ClientCollector, prometheus_name

FETCH = "consumer-fetch-manager-metrics"


class Told:
    """Stands for a consumer with one counter, one gauge and one value that was never measured."""

    def __init__(self, client_id: str, total: float) -> None:
        self.client_id = client_id
        self.total = total
        self.reads = 0

    def metrics(self) -> Mapping[MetricName, float]:
        self.reads += 1
        values = (self.total, 3.5, math.nan)
        return dict(zip(self._names(self.client_id), values, strict=True))

    def metric_names(self) -> Sequence[MetricName]:
        return self._names("")

    def _names(self, client_id: str) -> list[MetricName]:
        client = {"client-id": client_id}
        return [
            MetricName("fetch-total", FETCH, client, "fetches"),
            MetricName("records-lag", FETCH, {**client, "topic": "t", "partition": "0"}, "behind"),
            MetricName("fetch-latency-max", FETCH, client, "the longest"),
        ]


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send("flights", b"value")
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", client_id="me", auto_offset_reset="earliest"
    ) as reading:
        reading.subscribe("flights")
        count = 0
        while count < 100:
            count += len(reading.poll(10))
        yield reading


# ---------------------------------------------------------------- Prometheus


def scrape(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_names_labels_and_kinds() -> None:
    registry, one, two = CollectorRegistry(), Told("one", 7), Told("two", 8)
    collector = ClientCollector(one)
    collector.add(two)
    registry.register(collector)
    assert one.reads == 0, "registering asks for nothing"
    found = scrape(registry)
    assert found == {
        ("kafka_consumer_fetch_manager_fetch_total", frozenset({("client_id", "one")})): 7,
        ("kafka_consumer_fetch_manager_fetch_total", frozenset({("client_id", "two")})): 8,
        **{
            (
                "kafka_consumer_fetch_manager_partition_records_lag",
                frozenset({("client_id", client), ("topic", "t"), ("partition", "0")}),
            ): 3.5
            for client in ("one", "two")
        },
    }
    text = generate_latest(registry).decode()
    assert "# TYPE kafka_consumer_fetch_manager_fetch_total counter" in text
    assert "# HELP kafka_consumer_fetch_manager_fetch_total fetches" in text
    assert "# TYPE kafka_consumer_fetch_manager_partition_records_lag gauge" in text
    collector.remove(two)
    assert len(scrape(registry)) == 2


def test_prometheus_reads_a_consumer(consumer: Consumer) -> None:
    registry = CollectorRegistry()
    registry.register(ClientCollector(consumer))
    found = scrape(registry)
    me = ("client_id", "me")
    of_topic = frozenset({me, ("topic", "flights")})
    assert found["kafka_consumer_fetch_manager_records_consumed_total", frozenset({me})] == 100
    assert found["kafka_consumer_fetch_manager_topic_records_consumed_total", of_topic] == 100
    assert found["kadence_consumer_rebalance_cause_total", frozenset({me, ("cause", "first join")})] == 1
    assert ("kafka_consumer_reauthentication_latency_max", frozenset({me})) not in found
    assert not any(math.isnan(value) for value in found.values())


def test_every_name_is_one_family_with_one_set_of_labels() -> None:
    labels: dict[str, set[frozenset[str]]] = {}
    for name in Consumer.metric_names():
        labels.setdefault(prometheus_name(name), set()).add(frozenset(name.tags))
        labels.setdefault(otel_name(name), set()).add(frozenset(name.tags))
    assert len(labels) == 2 * len(Consumer.metric_names())
    assert all(len(sets) == 1 for sets in labels.values())


def test_adapters_do_not_keep_a_consumer_alive() -> None:
    registry, one = CollectorRegistry(), Told("one", 7)
    registry.register(ClientCollector(one))
    reader = InMemoryMetricReader()
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), one)
    del one
    gc.collect()
    assert scrape(registry) == {}
    assert collected(reader) == {}
    assert instruments is not None


# ---------------------------------------------------------------- OpenTelemetry


def collected(reader: InMemoryMetricReader) -> dict[tuple[str, frozenset[tuple[str, object]]], float]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        (metric.name, frozenset((point.attributes or {}).items())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


def test_otel_names_attributes_and_kinds() -> None:
    reader, one, two = InMemoryMetricReader(), Told("one", 7), Told("two", 8)
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), one)
    instruments.add(two)
    assert one.reads == 0
    found = collected(reader)
    assert found == {
        ("org.apache.kafka.consumer.fetch.manager.fetch.total", frozenset({("client_id", "one")})): 7,
        ("org.apache.kafka.consumer.fetch.manager.fetch.total", frozenset({("client_id", "two")})): 8,
        **{
            (
                "org.apache.kafka.consumer.fetch.manager.partition.records.lag",
                frozenset({("client_id", client), ("topic", "t"), ("partition", "0")}),
            ): 3.5
            for client in ("one", "two")
        },
    }
    assert one.reads == 1, "a collection reads each consumer once, however many instruments there are"
    one.total = 9
    again = collected(reader)
    assert (
        again["org.apache.kafka.consumer.fetch.manager.fetch.total", frozenset({("client_id", "one")})] == 9
    )
    instruments.remove(two)
    assert not [key for key in collected(reader) if ("client_id", "two") in key[1]]


def test_otel_counters_are_sums_that_only_grow() -> None:
    reader, one = InMemoryMetricReader(), Told("one", 7)
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), one)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    total = metrics["org.apache.kafka.consumer.fetch.manager.fetch.total"]
    assert getattr(total.data, "is_monotonic", False)
    assert total.description == "fetches"
    assert instruments is not None


def test_otel_reads_a_consumer(consumer: Consumer) -> None:
    reader = InMemoryMetricReader()
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), consumer)
    before = {otel_name(name) for name, value in consumer.metrics().items() if not math.isnan(value)}
    found = collected(reader)
    of_topic = frozenset({("client_id", "me"), ("topic", "flights")})
    assert found["org.apache.kafka.consumer.fetch.manager.topic.records.consumed.total", of_topic] == 100
    assert found["kadence.consumer.buffer.memory.bytes", frozenset({("client_id", "me")})] > 0
    assert before <= {name for name, _ in found}
    assert instruments is not None


def test_the_catalogue_has_every_name_and_no_other(consumer: Consumer) -> None:
    def shape(name: MetricName) -> tuple[str, str, frozenset[str]]:
        return name.group, name.name, frozenset(name.tags)

    every = {shape(name) for name in Consumer.metric_names()}
    # Those of `process` come with its first call: tests/work/test_meters.py.
    of_process = {each for each in every if each[1].startswith("work-")}
    assert {shape(name) for name in consumer.metrics()} == every - of_process


def test_otel_units() -> None:
    units = {name.name: _unit(name.name) for name in Consumer.metric_names()}
    expected = {
        "last-poll-seconds-ago": "s",
        "commit-sync-time-ns-total": "ns",
        "incoming-byte-rate": "By/s",
        "incoming-byte-total": "By",
        "fetch-size-max": "By",
        "buffer-held-bytes": "By",
        "fetch-latency-avg": "ms",
        "rebalance-latency-total": "ms",
        "time-between-poll-max": "ms",
        "network-thread-lateness": "ms",
        "poll-idle-ratio-avg": "1",
        "unsent-requests-queue-size": "{item}",
        "records-lag": "",
        "heartbeat-rate": "",
        "heartbeat-total": "",
        "records-consumed-total": "",
    }
    assert {name: units[name] for name in expected} == expected


def test_an_instrument_is_made_once_for_consumers_and_producers_each(broker: Broker) -> None:
    reader = InMemoryMetricReader()
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), Told("one", 7))
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="a") as one,
        Producer(bootstrap_servers=broker.bootstrap_servers, client_id="b") as two,
    ):
        instruments.add(one)
        instruments.add(two)
        for producer in (one, two):
            producer.send_and_wait("flights", b"value")
        sent = {
            dict(attributes)["client_id"]: value
            for (name, attributes), value in collected(reader).items()
            if name == "org.apache.kafka.producer.record.send.total"
        }
    assert sent == {"a": 1, "b": 1}
