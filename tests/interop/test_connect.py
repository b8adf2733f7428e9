"""Apache Kafka's Connect against our broker: MirrorMaker's connectors, which Kafka itself publishes, copy a topic.

A worker keeps its own state in three compacted topics, and its group has Connect's own protocol, not a consumer's.
Connect is killed in the middle and started again.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.patience import PATIENCE, until

from kadence import Admin, Broker, Consumer, Producer, TopicPartition
from kadence.admin import ConfigResource, NewTopic
from kadence.java import find_java
from kadence_testing.kafka import free_ports
from kadence_testing.maven import maven_jars

CONNECT: Final = "4.3.1"
"""Kafka 4.4.0 has published no connectors."""

RECORDS: Final = 1_000

_JVM: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Worker:
    """A worker of Connect, and its REST interface."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        jars = maven_jars(
            f"connect-{CONNECT}",
            [
                f"org.apache.kafka:connect-runtime:{CONNECT}",
                f"org.apache.kafka:connect-mirror:{CONNECT}",
                "org.slf4j:slf4j-simple:1.7.36",
            ],
        )
        (self._port,) = free_ports(1)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "workers",
            "listeners": f"http://127.0.0.1:{self._port}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "exactly.once.source.support": "enabled",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.partitions": "2" for kind in ("offset", "status")},
        }
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._log = folder / "worker.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(find_java().executable),
                    *_JVM,
                    "-cp",
                    f"{jars}/*",
                    "org.apache.kafka.connect.cli.ConnectDistributed",
                    str(properties),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str = "GET") -> Any:
        """The worker's answer; None while it cannot give one."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except OSError:
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            return None
        finally:
            connection.close()
        # The worker has not read its topics yet, or its group rebalances.
        if answer.status in (404, 409, 500, 503):
            return None
        assert answer.status < 300, (path, answer.status, text)
        return json.loads(text) if text else {}

    def states(self, connector: str) -> set[str]:
        """What the connector and its tasks are doing."""
        status = self.ask(f"/connectors/{connector}/status")
        if status is None or not status["tasks"]:
            return set()
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(PATIENCE)


@contextmanager
def worker(folder: Path, broker: Broker) -> Iterator[Worker]:
    made = Worker(folder, broker)
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)


def write(servers: str, numbers: range) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in numbers:
            producer.send("orders", b"%d" % number, key=b"%d" % number, partition=number % 3)


def read(servers: str, topic: str) -> list[int]:
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(3)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            found += [int(record.value or b"") for record in consumer.poll(1)]
        return found


@pytest.mark.heavy
def test_mirror_maker_copies_a_topic_once_although_its_worker_is_killed(tmp_path: Path) -> None:
    with Broker() as source, Broker() as target:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 3, configs={"retention.ms": "86400000"})])
        write(source.bootstrap_servers, range(RECORDS // 2))
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": "here",
            "target.cluster.alias": "there",
            "source.cluster.bootstrap.servers": source.bootstrap_servers,
            "target.cluster.bootstrap.servers": target.bootstrap_servers,
            "topics": "orders",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
            "refresh.topics.interval.seconds": "1",
            "source.consumer.isolation.level": "read_committed",
            "exactly.once.support": "required",
            "tasks.max": "2",
        }
        with worker(tmp_path, target) as first:
            until(lambda: first.ask("/connectors/mirror/config", config, "PUT") is not None)
            until(lambda: first.states("mirror") == {"RUNNING"})
            until(lambda: "here.orders" in topics(target))
            until(lambda: read(target.bootstrap_servers, "here.orders"))
        write(source.bootstrap_servers, range(RECORDS // 2, RECORDS))
        with worker(tmp_path, target) as second:
            until(lambda: second.states("mirror") == {"RUNNING"})
            until(lambda: len(read(target.bootstrap_servers, "here.orders")) >= RECORDS)
            second.end(signal.SIGTERM)
        found = read(target.bootstrap_servers, "here.orders")
        with Admin(bootstrap_servers=target.bootstrap_servers) as admin:
            groups = {group.group_id: group for group in admin.list_groups()}
            copied = ConfigResource("topic", "here.orders")
            configs = admin.describe_configs([copied])[copied]
    assert sorted(found) == list(range(RECORDS))
    assert groups["workers"].protocol_type == "connect"
    assert configs["retention.ms"].value == "86400000"


def topics(broker: Broker) -> set[str]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return set(admin.list_topics())
