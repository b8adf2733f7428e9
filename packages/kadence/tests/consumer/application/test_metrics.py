"""consumer.metrics(): what a consumer tells of its work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import isnan

import pytest
from tests.consumer.support import Cluster, member_settings, partitions, poll_until, read
from tests.virtual import VirtualCluster

from kadence import (
    AsyncConsumer,
    KafkaTimeoutError,
    MetricName,
    NotFetchedReason,
    RebalanceListener,
    TopicPartition,
)
from kadence.consumer.application.metrics import CLIENT, COORDINATOR, FETCH, KADENCE, NODE

pytestmark = [pytest.mark.needs("reading"), pytest.mark.brokers("virtual")]


def value(metrics: Mapping[MetricName, float], name: str, group: str, **tags: str) -> float:
    """The one metric with these tags beside the client's."""
    found = [
        one
        for key, one in metrics.items()
        if (key.name, key.group) == (name, group)
        and {tag: what for tag, what in key.tags.items() if tag != "client-id"} == tags
    ]
    assert len(found) == 1, f"{name} {tags}: {found}"
    return found[0]


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual", "kafka")
def test_what_was_read_is_counted_in_all_and_by_topic(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 1_000, size=100)
    consumer = cluster.consumer(group_id=cluster.name("g"), client_id="metered")
    consumer.subscribe(topic)
    read(consumer, 1_000)
    consumer.commit()
    metrics = consumer.metrics()
    assert all(name.tags["client-id"] == "metered" for name in metrics)
    assert all(name.description for name in metrics)
    for tags in ({}, {"topic": topic}):
        assert value(metrics, "records-consumed-total", FETCH, **tags) == 1_000
        assert value(metrics, "records-consumed-rate", FETCH, **tags) > 0
        assert value(metrics, "bytes-consumed-total", FETCH, **tags) > 100_000
    assert value(metrics, "fetch-total", FETCH) >= 1
    assert value(metrics, "fetch-size-max", FETCH) > 10_000
    assert value(metrics, "records-lag-max", FETCH) >= 250 / 2
    assert value(metrics, "records-lead-min", FETCH) == 0
    assert value(metrics, "commit-total", COORDINATOR) >= 1
    assert value(metrics, "assigned-partitions", COORDINATOR) == 4
    assert value(metrics, "rebalance-total", COORDINATOR) >= 1
    assert value(metrics, "failed-rebalance-total", COORDINATOR) == 0
    assert value(metrics, "rebalance-cause-total", KADENCE, cause="first join") == 1
    assert value(metrics, "commit-sync-time-ns-total", CLIENT) >= 0
    assert value(metrics, "connection-count", CLIENT) >= 2
    assert 0 <= value(metrics, "last-poll-seconds-ago", CLIENT) < 60
    assert value(metrics, "application-events-expired-count", CLIENT) == 0


@pytest.mark.needs("groups")
def test_the_time_of_calls_that_raise_counts_too(cluster: VirtualCluster) -> None:
    cluster.create_topic("t", 1)
    consumer = cluster.make(group_id="g")
    consumer.committed([TopicPartition("t", 0)], timeout=20)
    cluster.simulation.broker.crash()
    before = consumer.metrics()
    with pytest.raises(KafkaTimeoutError):
        consumer.commit({TopicPartition("t", 0): 1}, timeout=2)
    with pytest.raises(KafkaTimeoutError):
        consumer.committed([TopicPartition("t", 0)], timeout=3)
    for name, seconds in (("commit-sync-time-ns-total", 2), ("committed-time-ns-total", 3)):
        assert value(consumer.metrics(), name, CLIENT) - value(before, name, CLIENT) == seconds * 1e9


def test_a_partition_tells_its_lag_without_a_request_and_is_gone_when_it_is_not_ours(
    cluster: Cluster,
) -> None:
    topic = cluster.topic(partitions=2)
    cluster.produce(topic, 20, partitions=2)
    consumer = cluster.consumer()
    first, second = partitions(topic, 2)
    consumer.assign([first, second])
    consumer.pause([second])
    for partition in (first, second):
        consumer.seek(partition, 0)
    read(consumer, 10, max_records=5)
    metrics = consumer.metrics()
    at = {"topic": topic, "partition": "0"}
    assert value(metrics, "records-lag", FETCH, **at) == 0
    assert value(metrics, "records-lag-max", FETCH, **at) == 10
    assert value(metrics, "records-lead", FETCH, **at) == 10
    assert value(metrics, "preferred-read-replica", FETCH, **at) == -1
    assert value(metrics, "partitions-not-fetched", KADENCE, reason="paused") == 1
    lag = value(metrics, "records-lag", FETCH, topic=topic, partition="1")
    assert isnan(lag) or lag == 10, "a fetch may have been under way when it was paused"
    assert not [name for name in metrics if name.group == COORDINATOR], "it is in no group"
    consumer.assign([second])
    assert {name.tags["partition"] for name in consumer.metrics() if "partition" in name.tags} == {"1"}


@pytest.mark.brokers("embedded")
def test_metrics_may_be_read_by_another_thread_while_one_polls(cluster: Cluster) -> None:
    """Rule C7: they are one of the calls that a second thread may make."""
    topic = cluster.topic()
    cluster.produce(topic, 400)
    consumer = cluster.consumer()
    consumer.assign(partitions(topic))
    consumer.seek_to_beginning()
    totals: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            totals.append(value(consumer.metrics(), "records-consumed-total", FETCH))

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            read(consumer, 400, max_records=1)
            poll_until(consumer, lambda: watching.done() or (bool(totals) and totals[-1] == 400))
        finally:
            done.set()
        watching.result()
    assert totals == sorted(totals)


@pytest.mark.brokers("embedded")
def test_an_async_consumer_has_the_same_metrics(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 40)

    async def use() -> Mapping[MetricName, float]:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            await consumer.assign(partitions(topic))
            await consumer.seek_to_beginning()
            count = 0
            while count < 40:
                count += len(await consumer.poll(10))
            return consumer.metrics()

    metrics = asyncio.run(use())
    assert value(metrics, "records-consumed-total", FETCH) == 40
    thread = cluster.consumer()
    thread.assign([TopicPartition(topic, 0)])
    assert {name.name for name in thread.metrics()} <= {name.name for name in metrics}


def test_the_buffer_is_a_metric_beside_its_cap(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 100, size=1_000)
    consumer = cluster.consumer(
        buffer_memory=8 << 20, fetch_max_bytes=1 << 20, max_partition_fetch_bytes=1 << 20
    )
    consumer.assign(partitions(topic))
    consumer.seek_to_beginning()
    read(consumer, 1, max_records=1)
    metrics = consumer.metrics()
    assert value(metrics, "buffer-memory-bytes", KADENCE) == 8 << 20
    assert 20_000 < value(metrics, "buffer-held-bytes", KADENCE) <= 8 << 20
    assert 20_000 < value(metrics, "buffer-held-bytes-max", KADENCE) <= 8 << 20
    assert value(metrics, "buffer-exceeded-total", KADENCE) == 0
    read(consumer, 99)
    poll_until(consumer, lambda: value(consumer.metrics(), "buffer-held-bytes", KADENCE) == 0)


@pytest.mark.needs("groups")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_membership_is_measured_under_both_protocols(cluster: VirtualCluster, protocol: str) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    settings = member_settings(protocol, group_id=group, heartbeat_interval_ms=1_000)
    consumer = cluster.consumer(**settings)
    listener = Listener(cluster)
    consumer.subscribe(topic, listener=listener)
    assert value(consumer.metrics(), "last-heartbeat-seconds-ago", COORDINATOR) == -1
    assert value(consumer.metrics(), "last-rebalance-seconds-ago", COORDINATOR) == -1

    def heartbeats() -> float:
        return value(consumer.metrics(), "heartbeat-total", COORDINATOR)

    poll_until(consumer, lambda: len(consumer.assignment()) == 4 and heartbeats() >= 2)
    metrics = consumer.metrics()
    assert value(metrics, "last-heartbeat-seconds-ago", COORDINATOR) >= 0
    assert value(metrics, "heartbeat-rate", COORDINATOR) > 0
    assert value(metrics, "heartbeat-response-time-max", COORDINATOR) >= 0
    joins = value(metrics, "join-total", COORDINATOR)
    assert joins == (0 if protocol == "consumer" else 2), "the first one asks for a member id (KIP-394)"
    assert value(metrics, "rebalance-total", COORDINATOR) >= 1
    assert value(metrics, "rebalance-latency-max", COORDINATOR) >= 0
    assert value(metrics, "partition-assigned-latency-max", COORDINATOR) >= listener.seconds * 1000
    assert isnan(value(metrics, "partition-lost-latency-max", COORDINATOR))
    consumer.unsubscribe()
    assert value(consumer.metrics(), "partition-revoked-latency-max", COORDINATOR) >= listener.seconds * 1000
    assert value(consumer.metrics(), "assigned-partitions", COORDINATOR) == 0
    assert value(consumer.metrics(), "failed-rebalance-total", COORDINATOR) == 0


@pytest.mark.needs("groups")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_last_heartbeat_is_that_of_the_present_membership(cluster: VirtualCluster, protocol: str) -> None:
    topic = cluster.topic()
    consumer = cluster.consumer(
        **member_settings(protocol, group_id=cluster.name("g"), max_poll_interval_ms=60_000)
    )

    def last_heartbeat() -> float:
        return value(consumer.metrics(), "last-heartbeat-seconds-ago", COORDINATOR)

    def join() -> None:
        consumer.subscribe(topic)
        poll_until(consumer, lambda: len(consumer.assignment()) == 4 and last_heartbeat() >= 0)

    assert last_heartbeat() == -1, "it was in no group yet"
    join()
    consumer.unsubscribe()
    cluster.sleep(40)
    assert last_heartbeat() == -1, "it has unsubscribed"
    consumer.subscribe(topic)
    consumer.poll(0)
    assert last_heartbeat() < 40, "that was the membership before"
    join()
    cluster.sleep(61)
    assert last_heartbeat() == -1, "it has left, because it did not poll"
    join()
    cluster.simulation.broker.crash()
    cluster.sleep(40)
    assert last_heartbeat() > 30, "its coordinator does not answer"
    consumer.close()
    cluster.sleep(40)
    assert last_heartbeat() == -1, "it is closed"


def test_only_of_a_partition_that_is_to_be_fetched_the_time_without_a_fetch_counts(
    cluster: VirtualCluster,
) -> None:
    topic = cluster.topic(partitions=3)
    cluster.produce(topic, 30, partitions=3)
    paused, ranged, whole = partitions(topic, 3)
    consumer = cluster.consumer()
    consumer.assign({paused: 0, ranged: (0, 5), whole: 0})
    consumer.pause([paused])
    read(consumer, 15)

    def seconds(partition: TopicPartition) -> float:
        tags = {"topic": topic, "partition": str(partition.partition)}
        return value(consumer.metrics(), "not-fetched-seconds", KADENCE, **tags)

    cluster.sleep(400)
    why = consumer.not_fetched()
    assert {partition: each.reason for partition, each in why.items()} == {
        paused: NotFetchedReason.PAUSED,
        ranged: NotFetchedReason.RANGE_FETCHED,
    }
    assert all(each.since >= 400 for each in why.values())
    assert [seconds(each) for each in (paused, ranged, whole)] == [0, 0, 0]
    cluster.simulation.broker.crash()
    poll_until(consumer, lambda: seconds(whole) >= 30)
    assert [seconds(each) for each in (paused, ranged)] == [0, 0]


class Listener(RebalanceListener):
    """Takes its time."""

    seconds = 0.02

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._cluster.sleep(self.seconds)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._cluster.sleep(self.seconds)


@pytest.mark.brokers("virtual", "kafka")
def test_a_broker_is_measured_by_its_number(cluster: Cluster) -> None:
    topic = cluster.topic()
    consumer = cluster.consumer()
    consumer.end_offsets(partitions(topic))
    metrics = consumer.metrics()
    nodes = {name.tags["node-id"] for name in metrics if "node-id" in name.tags}
    assert any(node.removeprefix("node-").isdigit() for node in nodes), nodes
    for node in nodes:
        assert value(metrics, "request-total", NODE, **{"node-id": node}) >= 1
        assert value(metrics, "request-latency-max", NODE, **{"node-id": node}) >= 0
        assert value(metrics, "incoming-byte-total", NODE, **{"node-id": node}) > 0


def test_metrics_can_be_read_after_the_consumer_is_closed(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 8)
    consumer = cluster.consumer()
    consumer.assign(partitions(topic))
    consumer.seek_to_beginning()
    read(consumer, 8)
    consumer.close()
    metrics = consumer.metrics()
    assert value(metrics, "records-consumed-total", FETCH) == 8
    assert value(metrics, "connection-count", CLIENT) == 0
    assert value(metrics, "buffer-held-bytes", KADENCE) == 0


def test_bad_records_that_are_passed_over_are_counted(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=1)
    cluster.produce(topic, 20, partitions=1)

    def odd_only(data: bytes) -> int:
        if int(data) % 2 == 0:
            raise ValueError("even")
        return int(data)

    consumer = cluster.consumer(value_deserializer=odd_only, deserialization_errors="skip")
    consumer.assign(partitions(topic, 1))
    consumer.seek_to_beginning()
    read(consumer, 10)
    poll_until(consumer, lambda: value(consumer.metrics(), "records-skipped-total", KADENCE) == 10)
    assert value(consumer.metrics(), "records-dead-lettered-total", KADENCE) == 0
