"""A live group goes from one protocol to the other and back, and nobody loses a record (C4)."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.consumer.support import Cluster, numbers, partitions, poll_until, read
from tests.patience import PATIENCE, until
from tests.virtual import VirtualCluster

from kadence import RebalanceListener, TopicPartition
from kadence.errors import BrokerError, CommitFailedError, KafkaError, RebalanceInProgressError
from kadence_testing.kafka import Kafka

PARTITIONS = 6
CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 200}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}


pytestmark = pytest.mark.needs("migration", "admin")


@dataclass
class Ledger:
    """What all members together read, committed and owned."""

    read: Counter[tuple[int, int]] = field(default_factory=Counter)
    uncommitted: set[tuple[int, int]] = field(default_factory=set)
    """What somebody read and was refused to commit."""
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    quarrels: list[tuple[TopicPartition, str, str]] = field(default_factory=list)
    lost: set[tuple[TopicPartition, str]] = field(default_factory=set)

    def in_two_hands(self) -> list[tuple[TopicPartition, str, str]]:
        """What somebody was given while another one had it, and had not lost it already without knowing."""
        return [quarrel for quarrel in self.quarrels if quarrel[:2] not in self.lost]

    def repeated(self) -> set[tuple[int, int]]:
        return {record for record, times in self.read.items() if times > 1}


class Owner(RebalanceListener):
    """Tells the ledger what a member owns: nobody may own what another one has not given up."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name = name
        self._ledger = ledger

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            other = self._ledger.owner.setdefault(partition, self._name)
            if other != self._name:
                self._ledger.quarrels.append((partition, other, self._name))
                self._ledger.owner[partition] = self._name

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if self._ledger.owner.get(partition) == self._name:
                del self._ledger.owner[partition]

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._ledger.lost |= {(partition, self._name) for partition in partitions}
        self.on_partitions_revoked(partitions)


class Member:
    """Reads, and commits after each poll, whenever it is its turn."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str, topic: str, **settings: Any) -> None:
        self._ledger = ledger
        self._consumer = cluster.consumer(enable_auto_commit=False, **settings)
        self._consumer.subscribe(topic, listener=Owner(name, ledger))
        self.assigned: frozenset[TopicPartition] = frozenset()

    def turn(self) -> None:
        records = self._consumer.poll(0.02)
        found = {(record.partition, record.offset) for record in records}
        if found:
            self._ledger.read.update(found)
            try:
                self._consumer.commit(records)
            except (CommitFailedError, RebalanceInProgressError):
                self._ledger.uncommitted |= found
        self.assigned = self._consumer.assignment()

    def stop(self) -> None:
        """It leaves the group."""
        self._consumer.close()


class Team:
    """The members that run, each of which has its turn while somebody waits; and what writes a record each turn."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.members: list[Member] = []
        self.count = 0
        self._topic = topic
        self._producer = cluster.producer() if topic else None

    def until(
        self, done: Callable[[], bool], what: Callable[[], object] | str, *, writing: bool = True
    ) -> None:
        def turned() -> bool:
            if writing and self._producer is not None:
                self._producer.send(self._topic, b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
            for member in self.members:
                member.turn()
            return done()

        until(turned, what=what, every=0)

    def is_shared(self) -> bool:
        """Everything is assigned, and everybody has some of it."""
        held = [len(member.assigned) for member in self.members]
        return all(held) and sum(held) == PARTITIONS

    def finish_writing(self) -> int:
        """How many records there are."""
        assert self._producer is not None
        self._producer.flush()
        self._producer.close()
        return self.count


ROADS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "upgrade": (CLASSIC, KIP_848, ["classic", "consumer", "consumer", "consumer"]),
    "downgrade": (KIP_848, CLASSIC, ["consumer", "consumer", "consumer", "classic"]),
    # auto is one of the classic members as long as there are any.
    "classic to auto": (CLASSIC, {"group_protocol": "auto"}, ["classic"] * 4),
    # And of the others, where there are none of those.
    "consumer to auto": (KIP_848, {"group_protocol": "auto"}, ["consumer"] * 4),
}


@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("road", ROADS)
def test_c4_members_bounced_one_by_one_lose_nothing(cluster: Cluster, road: str) -> None:
    bounce(cluster, *ROADS[road])


@pytest.mark.brokers("kafka")
@pytest.mark.parametrize("road", ["upgrade", "downgrade"])
def test_c4_members_bounced_one_by_one_lose_nothing_with_kafka(cluster: Cluster, road: str) -> None:
    bounce(cluster, *ROADS[road])


def bounce(cluster: Cluster, before: dict[str, Any], after: dict[str, Any], kinds: list[str]) -> None:
    """Replace the members of a group one by one, while records are written and read."""
    topic, group, ledger = cluster.topic(PARTITIONS), cluster.name("g"), Ledger()
    team = Team(cluster, topic)

    def member(name: str, settings: dict[str, Any]) -> Member:
        return Member(cluster, ledger, name, topic, group_id=group, **settings)

    team.members = [member(f"old {number}", before) for number in range(3)]
    team.until(team.is_shared, "the group forms")
    assert cluster.group_type(group) == kinds[0]
    for number in range(3):
        team.members[number].stop()
        team.members[number] = member(f"new {number}", after)
        team.until(team.is_shared, lambda: [each.assigned for each in team.members])
        assert cluster.group_type(group) == kinds[number + 1]
    count = team.finish_writing()
    team.until(lambda: len(ledger.read) == count, "every record is read", writing=False)
    for each in team.members:
        each.stop()
    assert ledger.in_two_hands() == []
    if kinds[-1] == "consumer" or kinds[0] == "classic":
        # Kafka gives a group that goes back to classic the generation of its epoch: members behind that lose all.
        assert ledger.lost == set()
    if kinds == ["consumer"] * 4:
        assert ledger.uncommitted == set(), "a commit of an epoch that is over is sent again with the new one"
    assert ledger.repeated() <= ledger.uncommitted
    with closing(cluster.consumer(group_id=group)) as reader:
        committed = reader.committed(partitions(topic, PARTITIONS))
    assert sum(at.offset for at in committed.values() if at is not None) >= count - len(ledger.uncommitted)


@pytest.mark.brokers("virtual", "kafka")
def test_c4_auto_finds_the_emptied_group_free_and_takes_kip_848(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    classic = cluster.consumer(group_id=group, **CLASSIC)
    classic.subscribe(topic)
    read(classic, 40)
    classic.close()
    assert cluster.group_type(group) == "classic"
    auto = cluster.consumer(group_id=group, group_protocol="auto")
    auto.subscribe(topic)
    poll_until(auto, lambda: len(auto.assignment()) == 4)
    assert cluster.group_type(group) == "consumer"
    cluster.produce(topic, 8, start=40)
    assert sorted(numbers(read(auto, 8))) == list(range(40, 48)), "offsets carry over"


# ---------------------------------------------------------------- members of other clients


class Java:
    """Kafka's own consumer, by the tool that prints what happens to it as lines of JSON."""

    def __init__(self, servers: str, kafka: Kafka, topic: str, group: str, folder: Path) -> None:
        config = folder / "java.properties"
        config.write_text("heartbeat.interval.ms=200\nauto.offset.reset=earliest\n")
        command = kafka.tool_command(
            "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", servers,
            "--topic", topic, "--group-id", group, "--group-protocol", "classic", "--verbose",
            "--command-config", str(config),
            "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        )  # fmt: skip
        self.read: Counter[tuple[int, int]] = Counter()
        self.assigned: set[int] = set()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._heard(json.loads(line) if line.startswith("{") else {"name": ""})

    def _heard(self, event: dict[str, Any]) -> None:
        if event["name"] == "record_data":
            self.read[event["partition"], event["offset"]] += 1
        elif event["name"] == "partitions_assigned":
            self.assigned |= {each["partition"] for each in event["partitions"]}
        elif event["name"] == "partitions_revoked":
            self.assigned -= {each["partition"] for each in event["partitions"]}

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)


class Librdkafka:
    """confluent-kafka's consumer, polled by a thread, with cooperative assignments."""

    def __init__(self, servers: str, kafka: Kafka, topic: str, group: str, folder: Path) -> None:
        del kafka, folder
        self.read: Counter[tuple[int, int]] = Counter()
        self.assigned: set[int] = set()
        self._stop_asked = threading.Event()
        self._settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky",
        }
        self._topic = topic
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stop_asked.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read[message.partition() or 0, message.offset() or 0] += 1
                with suppress(confluent_kafka.KafkaException):
                    consumer.commit(message=message, asynchronous=False)
            self.assigned = {each.partition for each in consumer.assignment()}
        consumer.close()

    def stop(self) -> None:
        self._stop_asked.set()
        self._thread.join(PATIENCE)


@pytest.mark.brokers("kafka")
@pytest.mark.parametrize("other", [Java, Librdkafka])
def test_c4_a_group_of_another_client_is_converted_by_an_explicit_member_and_back(
    cluster: Cluster, kafka: Kafka, tmp_path: Path, other: type[Java | Librdkafka]
) -> None:
    topic, group, ledger = cluster.topic(PARTITIONS), cluster.name("g"), Ledger()
    cluster.produce(topic, 60, partitions=PARTITIONS)
    classic, team = other(cluster.bootstrap_servers, kafka, topic, group, tmp_path), Team(cluster, "")
    try:
        until(lambda: len(classic.read) == 60, what="the classic member reads all")
        assert cluster.group_type(group) == "classic"
        ours = Member(cluster, ledger, "ours", topic, group_id=group, **KIP_848)
        team.members = [ours]
        half = PARTITIONS // 2
        team.until(lambda: len(ours.assigned) == len(classic.assigned) == half, "the members share")
        assert cluster.group_type(group) == "consumer"
        cluster.produce(topic, 60, partitions=PARTITIONS, start=60)
        team.until(lambda: len(classic.read + ledger.read) == 120, "both read")
        assert {partition for partition, _ in ledger.read} == {p.partition for p in ours.assigned}
        ours.stop()
        until(lambda: len(classic.assigned) == PARTITIONS, what="the classic member takes all back")
        assert cluster.group_type(group) == "classic"
        cluster.produce(topic, 60, partitions=PARTITIONS, start=120)
        until(lambda: len(classic.read + ledger.read) == 180, what="it reads all again")
        assert ledger.in_two_hands() == []
        assert ledger.lost == set()
        assert ledger.repeated() == set()
    finally:
        classic.stop()


# ---------------------------------------------------------------- brokers that do not convert, or have no KIP-848


def on(settings: dict[str, str]) -> Iterator[Cluster]:
    with closing(VirtualCluster(config=settings)) as cluster:
        yield cluster


@pytest.fixture
def unmoved() -> Iterator[Cluster]:
    """A broker that converts no group."""
    yield from on({"group.consumer.migration.policy": "disabled"})


@pytest.fixture
def older() -> Iterator[Cluster]:
    """A broker on which KIP-848 is switched off."""
    yield from on({"group.coordinator.rebalance.protocols": "classic"})


def test_c4_a_group_that_may_not_be_converted_refuses_with_advice(unmoved: Cluster) -> None:
    topic, group = unmoved.topic(2), unmoved.name("g")
    classic = unmoved.consumer(group_id=group, **CLASSIC)
    classic.subscribe(topic)
    poll_until(classic, lambda: len(classic.assignment()) == 2)
    explicit = unmoved.consumer(group_id=group, **KIP_848)
    explicit.subscribe(topic)
    with pytest.raises(BrokerError, match=r"group\.consumer\.migration\.policy"):
        poll_until(explicit, lambda: False)
    assert len(classic.assignment()) == 2
    auto = unmoved.consumer(group_id=group, group_protocol="auto")
    auto.subscribe(topic)

    def both() -> bool:
        auto.poll(0.02)
        return len(auto.assignment()) == len(classic.assignment()) == 1

    poll_until(classic, both)


def test_c4_where_kip_848_is_switched_off_auto_is_classic_and_consumer_an_error(older: Cluster) -> None:
    topic, group = older.topic(2), older.name("g")
    older.produce(topic, 10, partitions=2)
    auto = older.consumer(group_id=group, group_protocol="auto")
    auto.subscribe(topic)
    assert sorted(numbers(read(auto, 10))) == list(range(10))
    assert older.group_type(group) == "classic"
    explicit = older.consumer(group_id=older.name("g"), **KIP_848)
    explicit.subscribe(topic)
    with pytest.raises(KafkaError, match=r"group\.protocol=classic"):
        poll_until(explicit, lambda: False)
