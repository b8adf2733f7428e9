"""Leaders that change on real Kafka with two brokers: by reassignment, by a broker's death, and uncleanly (KIP-320)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ON_CI
from tests.consumer.support import numbers, read
from tests.patience import PATIENCE

from kadence import Consumer, Producer
from kadence.admin import Admin, ConfigResource
from kadence.admin.calls import Ask
from kadence.errors import MissingDependencyError
from kadence.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kadence.types import PartitionInfo
from kadence_testing.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]

_SETTINGS = {
    "unclean.leader.election.enable": "true",
    "auto.leader.rebalance.enable": "false",
    # A follower that lags is out of the in-sync replicas after a second, a dead broker is noticed after three.
    "replica.lag.time.max.ms": "1000",
    "broker.session.timeout.ms": "3000",
}
FIRST, SECOND = 1, 2


class Pair:
    """Two brokers; the first is the controller too, so only the second may die."""

    def __init__(self, first: Kafka, second: Kafka, scratch: Path) -> None:
        self.first, self.second = first, second
        self._scratch = scratch
        self.bootstrap_servers = first.bootstrap_servers

    def topic(self, name: str, replicas: list[int], **config: str) -> None:
        """A topic of one partition with these replicas, led by the first of them."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            # No public call names the replicas.
            question = Ask(CreateTopicsRequest(topics=[topic], timeout_ms=int(PATIENCE * 1_000)))
            answer = admin._shell.run(PATIENCE, lambda calls, deadline: calls.ask(question, deadline))
        assert answer.topics[0].error_code == 0
        self.until(
            name, lambda info: info.leader == replicas[0] and len(info.in_sync_replicas) == len(replicas)
        )

    def partition(self, topic: str) -> PartitionInfo:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_topics([topic])[topic].partitions[0]

    def until(self, topic: str, done: Callable[[PartitionInfo], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done(info := self.partition(topic)):
            assert time.monotonic() < end, f"it stays so: {info}"
            time.sleep(0.1)

    def reassign(self, topic: str, replicas: list[int]) -> None:
        """Move a partition; the first of ``replicas`` is preferred."""
        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]}
        path = self._scratch / f"{topic}.json"
        path.write_text(json.dumps(plan))
        self._tool("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(path), "--execute")
        self.until(topic, lambda info: list(info.replicas) == replicas)

    def stop_copying(self) -> None:
        """The first broker copies (nearly) nothing of throttled topics any more."""
        broker = ConfigResource("broker", str(FIRST))
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.incremental_alter_configs({broker: {"follower.replication.throttled.rate": 1}})

    def _tool(self, name: str, *arguments: str) -> None:
        self.first.run_tool(
            f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap_servers, *arguments
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    first = Kafka(_SETTINGS)
    second = Kafka({**_SETTINGS, "node.id": str(SECOND)}, join=first)
    try:
        with first, second:
            yield Pair(first, second, tmp_path_factory.mktemp("pair"))
    except MissingDependencyError as error:
        if ON_CI:
            pytest.fail(f"real Kafka is required on CI: {error}")
        pytest.skip(f"no real Kafka: {error}")


def send(pair: Pair, topic: str, values: range, acks: str = "all", size: int = 0) -> None:
    with Producer(
        bootstrap_servers=pair.bootstrap_servers, acks=acks, enable_idempotence=acks == "all"
    ) as producer:
        sent = [producer.send(topic, b"%d" % value + b"." * size) for value in values]
        for future in sent:
            future.result(PATIENCE)


def reader(pair: Pair, topic: str) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=pair.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=50
    )
    consumer.assign([(topic, 0)])
    return consumer


def test_a_partition_that_is_moved_while_we_read_goes_on_at_its_new_leader(pair: Pair) -> None:
    pair.topic("moved", [FIRST, SECOND])
    with closing(reader(pair, "moved")) as consumer:
        send(pair, "moved", range(50))
        found = numbers(read(consumer, 50))
        pair.reassign("moved", [SECOND])
        pair.until("moved", lambda info: info.leader == SECOND)
        send(pair, "moved", range(50, 100))
        found += numbers(read(consumer, 50))
        found += numbers(list(consumer.poll(0.5)))
    assert found == list(range(100))


def test_a_leader_that_dies_costs_nothing_where_its_follower_had_all_and_is_told_where_not(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """The last test of this file: there is one broker less after it."""
    pair.topic("clean", [SECOND, FIRST])
    pair.topic("torn", [SECOND], **{"follower.replication.throttled.replicas": "0:1"})
    with closing(reader(pair, "clean")) as clean, closing(reader(pair, "torn")) as torn:
        send(pair, "clean", range(50))
        send(pair, "torn", range(5))
        assert numbers(read(clean, 50)) == list(range(50))
        assert numbers(read(torn, 5)) == list(range(5))
        pair.stop_copying()
        # A new follower takes a megabyte at once, and is throttled by what it has taken: it lacks most of these.
        send(pair, "torn", range(5, 11), size=500_000)
        pair.reassign("torn", [SECOND, FIRST])
        assert numbers(read(torn, 6)) == list(range(5, 11))
        assert pair.partition("torn").in_sync_replicas == (SECOND,)

        pair.second.stop()
        for topic in ("clean", "torn"):
            pair.until(topic, lambda info: info.leader == FIRST)
        send(pair, "clean", range(50, 100))
        send(pair, "torn", range(100, 110))
        assert numbers(read(clean, 50)) == list(range(50, 100))
        after = numbers(read(torn, 10))
        while len(after) < 10 or after[-1] < 109:
            after += numbers(read(torn, 1))
    # What the follower had not copied is gone; what came in its place is all there, from its first record on.
    assert after[-10:] == list(range(100, 110))
    assert len(after) == 10
    assert "torn-0 was truncated by an unclean leader election" in caplog.text
    assert "clean-0 was truncated" not in caplog.text
