"""The assignors beside Kafka's own, run in a JVM on the same random groups."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ON_CI
from tests.luck import seeds

from kadence.consumer.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    LastAssignment,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Topics,
)
from kadence.errors import MissingDependencyError
from kadence.java import find_java
from kadence.types import TopicPartition
from kadence_testing.kafka import kafka_jars

JAVA = "org.apache.kafka.clients.consumer"
SEEDS = seeds(12)
Members = dict[str, MemberSubscription]


class Jvm:
    """Kafka's assignors behind a gateway."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._view = gateway.jvm
        self._kafka = gateway.jvm.org.apache.kafka

    def new(self, name: str) -> Any:
        return getattr(self._kafka.clients.consumer, name)()

    def partition(self, partition: TopicPartition) -> Any:
        return self._kafka.common.TopicPartition(partition.topic, partition.partition)

    def list(self, items: Any) -> Any:
        made = self._view.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def subscription(self, said: MemberSubscription) -> Any:
        optional = self._view.java.util.Optional
        made = getattr(self._kafka.clients.consumer, "ConsumerPartitionAssignor$Subscription")(
            self.list(sorted(said.topics)),
            None if said.user_data is None else self._view.java.nio.ByteBuffer.wrap(said.user_data),
            self.list(self.partition(p) for p in said.owned),
            said.generation,
            optional.ofNullable(said.rack),
        )
        made.setGroupInstanceId(optional.ofNullable(said.instance_id))
        return made

    def assign(self, name: str, counts: dict[str, int], members: Members) -> Assignment:
        topics, subscriptions = self._view.java.util.HashMap(), self._view.java.util.HashMap()
        for topic, count in counts.items():
            topics.put(topic, count)
        for member, said in members.items():
            subscriptions.put(member, self.subscription(said))
        got = self.new(name).assign(topics, subscriptions)
        return {m: [TopicPartition(p.topic(), p.partition()) for p in got[m]] for m in members}

    def assign_near(self, name: str, topics: Topics, members: Members) -> Assignment:
        """The same, knowing where replicas are."""
        infos, subscriptions = self._view.java.util.HashMap(), self._view.java.util.HashMap()
        for topic, count in topics.items():
            infos.put(topic, self.list(self._info(topics, TopicPartition(topic, n)) for n in range(count)))
        for member, said in members.items():
            subscriptions.put(member, self.subscription(said))
        got = self.new(name).assignPartitions(infos, subscriptions)
        return {m: [TopicPartition(p.topic(), p.partition()) for p in got[m]] for m in members}

    def _info(self, topics: Topics, partition: TopicPartition) -> Any:
        racks = sorted(topics.racks(partition))
        nodes = self._gateway.new_array(self._kafka.common.Node, len(racks))
        for number, rack in enumerate(racks):
            nodes[number] = self._kafka.common.Node(number, "h", 1, rack)
        return self._kafka.common.PartitionInfo(partition.topic, partition.partition, None, nodes, nodes)

    def sticky_user_data(self, last: LastAssignment) -> bytes:
        """What Kafka's sticky assignor says of what it was given last."""
        assignor = self.new("StickyAssignor")
        given = getattr(self._kafka.clients.consumer, "ConsumerPartitionAssignor$Assignment")(
            self.list(self.partition(p) for p in sorted(last.partitions))
        )
        group = self._kafka.clients.consumer.ConsumerGroupMetadata(
            "g", last.generation, "m", self._view.java.util.Optional.empty()
        )
        assignor.onAssignment(given, group)
        buffer = assignor.subscriptionUserData(self._view.java.util.HashSet())
        return bytes(buffer.array())


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    py4j = pytest.importorskip("py4j.java_gateway")
    try:
        jars, java = kafka_jars(), find_java()
    except MissingDependencyError as error:
        if ON_CI:
            pytest.fail(f"Kafka's jars are required on CI: {error}")
        pytest.skip(f"no Kafka: {error}")
    pyspark = pytest.importorskip("pyspark")
    (gateway_jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port = py4j.launch_gateway(
        jarpath=str(gateway_jar), classpath=f"{jars}/*", java_path=str(java.executable), die_on_exit=True
    )
    gateway = py4j.JavaGateway(gateway_parameters=py4j.GatewayParameters(port=port, auto_convert=True))
    yield Jvm(gateway)
    gateway.shutdown()


def group(rng: random.Random, *, alike: bool = False) -> tuple[dict[str, int], Members]:
    """Random topics, and members of which some are static."""
    counts = {name: rng.randint(1, 9) for name in rng.sample("abcdef", rng.randint(1, 5))}
    members: Members = {}
    for number in rng.sample(range(20), rng.randint(1, 6)):
        topics = sorted(counts) if alike else rng.sample("abcdefg", rng.randint(1, 7))
        instance = f"i{rng.randint(0, 99)}-{number}" if rng.random() < 0.4 else None
        members[f"m{number}"] = MemberSubscription(frozenset(topics), instance_id=instance)
    return counts, members


def scattered(rng: random.Random) -> tuple[Topics, Members]:
    """The same with racks: of replicas, and of most members."""
    counts, members = group(rng, alike=rng.random() < 0.5)
    if rng.random() < 0.5:
        counts = dict.fromkeys(counts, rng.randint(1, 9))
    racks = ["r1", "r2", "r3", "r4"][: rng.randint(1, 4)]
    held = {
        TopicPartition(topic, n): frozenset(rng.sample(racks, rng.randint(1, len(racks))))
        for topic, count in counts.items()
        for n in range(count)
    }
    places = [*racks, None, "far away"] if rng.random() < 0.5 else racks
    return Topics(counts, held), {
        name: dataclasses.replace(said, rack=rng.choice(places)) for name, said in members.items()
    }


def everything(counts: dict[str, int], members: Members) -> list[TopicPartition]:
    read = frozenset[str]().union(*(said.topics for said in members.values()))
    return sorted(TopicPartition(t, n) for t, count in counts.items() if t in read for n in range(count))


def unevenness(assignment: Assignment) -> int:
    return sum(len(given) ** 2 for given in assignment.values())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("ours", "theirs"), [(RangeAssignor(), "RangeAssignor"), (RoundRobinAssignor(), "RoundRobinAssignor")]
)
def test_range_and_roundrobin_are_kafkas(jvm: Jvm, ours: Any, theirs: str, seed: int) -> None:
    counts, members = group(random.Random(seed))
    expected = {m: sorted(given) for m, given in jvm.assign(theirs, counts, members).items()}
    assert {m: sorted(given) for m, given in ours.assign(counts, members).items()} == expected


@pytest.mark.parametrize("seed", seeds(20))
def test_kip_881_range_with_racks_is_kafkas(jvm: Jvm, seed: int) -> None:
    topics, members = scattered(random.Random(seed))
    expected = {m: sorted(given) for m, given in jvm.assign_near("RangeAssignor", topics, members).items()}
    assert {m: sorted(given) for m, given in RangeAssignor().assign(topics, members).items()} == expected


def with_history(members: Members, before: Assignment, *, cooperative: bool) -> Members:
    """The members as they rejoin after ``before``, which was generation 7."""
    rejoining = {}
    for name, said in members.items():
        had = tuple(before.get(name, ()))
        rejoining[name] = MemberSubscription(
            said.topics,
            had if cooperative else (),
            7 if had and cooperative else -1,
            None if cooperative or not had else StickyAssignor().user_data(LastAssignment(frozenset(had), 7)),
            instance_id=said.instance_id,
        )
    return rejoining


def moved(before: Assignment, after: Assignment) -> int:
    return sum(len(set(had) - set(after.get(member, ()))) for member, had in before.items())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("ours", "theirs", "cooperative"),
    [
        (StickyAssignor(), "StickyAssignor", False),
        (CooperativeStickyAssignor(), "CooperativeStickyAssignor", True),
    ],
)
def test_sticky_is_as_even_as_kafkas_and_moves_no_more(
    jvm: Jvm, ours: Any, theirs: str, cooperative: bool, seed: int
) -> None:
    """From nothing, and again after a member came and another went. Kafka reads our user data here."""
    rng = random.Random(seed)
    counts, members = group(rng, alike=True)
    first = ours.assign(counts, members)
    assert unevenness(first) == unevenness(jvm.assign(theirs, counts, members))
    if len(members) > 1:
        del members[rng.choice(sorted(members))]
    members["new"] = MemberSubscription(frozenset(counts))
    rejoining = with_history(members, first, cooperative=cooperative)
    stayed = {member: given for member, given in first.items() if member in members}
    mine, kafkas = ours.assign(counts, rejoining), jvm.assign(theirs, counts, rejoining)
    assert moved(stayed, mine) == moved(stayed, kafkas)
    assert sorted(len(given) for given in mine.values()) == sorted(len(given) for given in kafkas.values())
    if not cooperative:
        assert sorted(p for given in mine.values() for p in given) == everything(counts, members)


@pytest.mark.parametrize("seed", SEEDS)
def test_sticky_with_unequal_subscriptions_is_never_less_even_than_kafkas(jvm: Jvm, seed: int) -> None:
    counts, members = group(random.Random(seed))
    mine = StickyAssignor().assign(counts, members)
    assert sorted(p for given in mine.values() for p in given) == everything(counts, members)
    assert unevenness(mine) <= unevenness(jvm.assign("StickyAssignor", counts, members))


def test_user_data_of_sticky_is_kafkas_byte_for_byte(jvm: Jvm) -> None:
    last = LastAssignment(frozenset(TopicPartition("orders", n) for n in (0, 3, 7)), 41)
    assert StickyAssignor().user_data(last) == jvm.sticky_user_data(last)
    # Of several topics Kafka writes the bytes in the order of a hash map; what they say is the same.
    more = LastAssignment(last.partitions | {TopicPartition("clicks", 1), TopicPartition("x", 0)}, 5)
    claim = {
        "m": MemberSubscription(frozenset({"orders", "clicks", "x"}), user_data=jvm.sticky_user_data(more))
    }
    counts = {"orders": 8, "clicks": 2, "x": 1}
    rival = {"a": MemberSubscription(frozenset({"orders", "clicks", "x"}))}
    assert more.partitions <= set(StickyAssignor().assign(counts, {**rival, **claim})["m"])
