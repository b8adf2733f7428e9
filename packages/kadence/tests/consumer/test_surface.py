"""The two consumers offer the same, and it is what Kafka's own consumer offers (D2, G1)."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.consumer.support import partitions
from tests.virtual import VirtualCluster

from kadence import AsyncConsumer, Broker, ConfigError, Consumer, Producer
from kadence_testing.kafka import Kafka, kafka_jars

JAVA = {
    "assignment": "assignment",
    "subscription": "subscription",
    "subscribe": "subscribe",
    "assign": "assign",
    "unsubscribe": "unsubscribe",
    "poll": "poll",
    "commitSync": "commit",
    "commitAsync": "commit_async",
    "seek": "seek",
    "seekToBeginning": "seek_to_beginning",
    "seekToEnd": "seek_to_end",
    "position": "position",
    "committed": "committed",
    "metrics": "metrics",
    "partitionsFor": "partitions_for",
    "listTopics": "list_topics",
    "paused": "paused",
    "pause": "pause",
    "resume": "resume",
    "offsetsForTimes": "offsets_for_times",
    "beginningOffsets": "beginning_offsets",
    "endOffsets": "end_offsets",
    "currentLag": "current_lag",
    "groupMetadata": "group_metadata",
    "enforceRebalance": "enforce_rebalance",
    "close": "close",
    "wakeup": "wakeup",
}
"""Each method of Java's `Consumer`, and ours."""

NOT_HERE = {"clientInstanceId", "registerMetricForSubscription", "unregisterMetricFromSubscription"}
"""KIP-714: metrics are not pushed to brokers. The docstring of `Consumer` says so."""

WAITS = {
    "assign",
    "assign_topics",
    "beginning_offsets",
    "close",
    "commit",
    "committed",
    "end_offsets",
    "incremental_assign",
    "incremental_unassign",
    "list_topics",
    "offsets_for_times",
    "partitions_for",
    "poll",
    "poll_arrow",
    "position",
    "seek",
    "seek_to_beginning",
    "seek_to_end",
    "unsubscribe",
}
"""What can wait for the network: each has a ``timeout``."""


def public(cls: type) -> dict[str, Callable[..., Any]]:
    """The calls; `stopping` is a value."""
    found = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_") and hasattr(cls, name)}
    return {name: each for name, each in found.items() if callable(each)}


def declared_methods(data: bytes) -> set[str]:
    """Names of the methods of a Java class file (JVM specification, 4.1)."""
    sizes = {
        3: 4,
        4: 4,
        5: 8,
        6: 8,
        7: 2,
        8: 2,
        9: 4,
        10: 4,
        11: 4,
        12: 4,
        15: 3,
        16: 2,
        17: 4,
        18: 4,
        19: 2,
        20: 2,
    }
    names: dict[int, str] = {}
    (count,) = struct.unpack_from(">H", data, 8)
    at, index = 10, 1
    while index < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            names[index] = data[at + 3 : at + 3 + length].decode()
            at += 3 + length
        else:
            at += 1 + sizes[tag]
        index += 2 if tag in (5, 6) else 1
    (interfaces,) = struct.unpack_from(">H", data, at + 6)
    at += 8 + 2 * interfaces
    found: set[str] = set()
    for what in ("fields", "methods"):
        (members,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(members):
            _, name, _, attributes = struct.unpack_from(">4H", data, at)
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
            if what == "methods":
                found.add(names[name])
    return found


def as_threads(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter as `Consumer` has it."""
    return parameter.replace(annotation=re.sub(r"^Async(?=RebalanceListener)", "", str(parameter.annotation)))


def test_g1_both_consumers_have_the_same_calls_with_the_same_parameters() -> None:
    sync, awaited = public(Consumer), public(AsyncConsumer)
    assert sync.keys() == awaited.keys()
    for name, method in sync.items():
        ours, theirs = inspect.signature(method), inspect.signature(awaited[name])
        assert list(map(as_threads, ours.parameters.values())) == list(
            map(as_threads, theirs.parameters.values())
        ), name
        returned = re.sub(r"^Async(?=Iterator)", "", str(theirs.return_annotation))
        assert str(ours.return_annotation) == returned, name


def test_g1_exactly_what_can_wait_is_awaited_and_takes_a_timeout() -> None:
    awaited = {name for name, method in public(AsyncConsumer).items() if inspect.iscoroutinefunction(method)}
    assert awaited == WAITS | {"subscribe", "process"}
    for cls in (Consumer, AsyncConsumer):
        with_timeout = {
            name for name, call in public(cls).items() if "timeout" in inspect.signature(call).parameters
        }
        assert with_timeout == WAITS | {"process"}


def test_each_method_of_javas_consumer_has_ours() -> None:
    assert set(JAVA.values()) <= public(Consumer).keys()


@pytest.mark.kafka
def test_javas_consumer_has_no_method_that_is_not_answered_for(kafka: Kafka) -> None:
    """Its interface, as the jar beside the broker has it."""
    (jar,) = kafka_jars().glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as classes:
        methods = declared_methods(classes.read("org/apache/kafka/clients/consumer/Consumer.class"))
    assert methods == JAVA.keys() | NOT_HERE


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("t", b"%d" % number)
    return broker


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_iteration_with_an_idle_timeout_ends_when_nothing_comes_any_more(cluster: VirtualCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.produce("t", 5, partitions=1)
    (at,) = partitions("t", 1)
    with cluster.consumer(group_id="g", auto_commit_interval_ms=0) as subject:
        subject.assign([at])
        assert next(iter(subject)).offset == 0
        assert [record.offset for record in subject.records(idle_timeout=0.5)] == [1, 2, 3, 4]
        began = cluster.now()
        assert list(subject.records(idle_timeout=0.2)) == []
        assert (cluster.now() - began).total_seconds() == 0.2
        # The polls that came back empty proved the last record.
        subject.commit({})
        assert subject.committed([at])[at] is not None
        assert subject.position(at) == 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_time_until_a_group_gives_partitions_is_not_idle(protocol: str) -> None:
    delays = {"group.initial.rebalance.delay.ms": 7_000, "group.consumer.assignment.interval.ms": 7_000}
    with closing(VirtualCluster(config=delays)) as cluster:
        cluster.create_topic("t", 1)
        cluster.produce("t", 1, partitions=1)
        for _ in range(2):
            # The second comes when the first has just left, so a KIP-848 coordinator waits before it assigns anew.
            with cluster.consumer(group_id="g", group_protocol=protocol, enable_auto_commit=False) as subject:
                subject.subscribe("t")
                assert [record.value for record in subject.records(idle_timeout=0.3)] == [b"0"]


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_a_group_that_gives_no_partitions_ends_the_iteration_too(cluster: VirtualCluster) -> None:
    with cluster.consumer(group_id="g", default_api_timeout_ms=5_000) as subject:
        subject.subscribe("is-not-there")
        began = cluster.now()
        assert list(subject.records(idle_timeout=0.1)) == []
        assert 5 <= (cluster.now() - began).total_seconds() <= 5.2


def test_a_consumer_that_is_pickled_or_copied_says_why_it_cannot_be(broker: Broker) -> None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        attempts: list[Callable[[object], object]] = [pickle.dumps, copy.copy]
        for what in attempts:
            with pytest.raises(TypeError, match="Consumer has connections and a thread"):
                what(consumer)


def test_settings_that_are_no_mapping_are_refused_with_what_is_wanted() -> None:
    address: Any = "localhost:9092"
    with pytest.raises(ConfigError, match=r"a mapping such as \{'bootstrap.servers'"):
        Consumer(address)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"session_timeout_ms": 6_000}, "group.consumer.session.timeout.ms on the broker"),
        ({"heartbeat_interval_ms": 500}, "group.consumer.heartbeat.interval.ms on the broker"),
        ({"partition_assignment_strategy": "range"}, "group.remote.assignor"),
    ],
)
def test_a_key_that_the_protocol_ignores_is_refused_with_advice(
    settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(ConfigError, match=advice):
        Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", group_protocol="consumer", **settings)
