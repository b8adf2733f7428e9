"""Clients of five makers in one group, while records come, and members are killed, stopped and closed in turn.

Whoever leads a classic group assigns for all the others. In the end every record was processed at least once, nobody
committed behind a record that was not, and each partition had one owner at a time.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import luck
from tests.interop.members import Group, Member, mixed_group
from tests.patience import until

from kadence import Admin, Producer
from kadence_broker import Broker
from kadence_testing.kafka import Kafka

PARTITIONS = 10
SESSION_MS = 4_000

CONFIG = {
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 300,
    # librdkafka waits for the answer to a heartbeat of KIP-848 for as long as the interval. It never asks again for an
    # assignment whose answer it has lost, so its partitions stay where they are until the rebalance timeout; on Apache
    # Kafka 4.3.1 as well. So the interval is longer than a busy machine pauses.
    "group.consumer.heartbeat.interval.ms": 3_000,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": 8_000,
}

FIVE = ["java", "confluent", "kafka-python", "aiokafka", "kadence"]

FOUR = ["java", "confluent", "kafka-python", "kadence"]
"""aiokafka has no cooperative assignor."""

THREE = ["java", "confluent", "kadence"]
"""The others know only the classic protocol."""


@contextmanager
def producing(broker: Broker) -> Iterator[None]:
    """A few hundred records a second, spread over all partitions."""
    over = threading.Event()

    def produce() -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            while not over.wait(0.02):
                for partition in range(PARTITIONS):
                    producer.send("t", b"v", partition=partition)

    thread = threading.Thread(target=produce, name="producing")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def owned_by(*members: Member) -> bool:
    """Each of these has something, and together they have everything."""
    owned = [member.owns for member in members]
    return all(owned) and sum(map(len, owned)) == PARTITIONS


def trouble(group: Group, killed: str, stopped: str, closed: str) -> None:
    """A member of each of these clients goes; the others take over; the stopped one comes back, and new ones come."""
    victims = [
        next(member for member in group.running if member.name.startswith(client))
        for client in (killed, stopped, closed)
    ]
    others = [member for member in group.running if member not in victims]
    victims[1].stop()
    victims[0].kill()
    victims[2].close()
    until(lambda: owned_by(*others), what=group.told)
    victims[1].go_on()
    group.start(killed)
    group.start(closed)
    until(lambda: owned_by(*group.running), what=group.told)
    if victims[1] not in group.running:
        # Java's KIP-848 member ends where a fetch of offsets, and not a heartbeat, tells it that it was thrown out.
        assert "OffsetFetch failed with UNKNOWN_MEMBER_ID" in group.log_of(victims[1]), group.told()
        group.start(stopped)
        until(lambda: owned_by(*group.running), what=group.told)


@pytest.mark.parametrize("seed", luck.seeds(1))
@pytest.mark.parametrize(
    ("protocol", "assignor", "clients", "bystanders", "rounds"),
    [
        pytest.param("classic", "range", FIVE, [], 2, marks=pytest.mark.heavy),
        pytest.param("classic", "cooperative-sticky", FOUR, [], 1, marks=pytest.mark.heavy),
        ("consumer", "uniform", THREE, ["kadence", "confluent"], 1),
    ],
    ids=["range", "cooperative-sticky", "kip-848"],
)
def test_no_record_is_lost_whoever_goes(
    kafka: Kafka,
    tmp_path: Path,
    protocol: str,
    assignor: str,
    clients: list[str],
    bystanders: list[str],
    rounds: int,
    seed: int,
) -> None:
    del kafka  # its jars are what is needed
    turns = itertools.cycle(random.Random(seed).sample(clients, len(clients)))
    with (
        Broker(nodes=3, topics={"t": PARTITIONS}, config=CONFIG) as broker,
        mixed_group(
            broker.bootstrap_servers, "t", tmp_path,
            protocol=protocol, assignor=assignor, session_ms=SESSION_MS,
        ) as group,
    ):  # fmt: skip
        with producing(broker):
            for client in (*clients, *bystanders):
                group.start(client)
            until(lambda: owned_by(*group.running), what=group.told)
            for _ in range(rounds * (3 if luck.SOAKING else 1)):
                trouble(group, *itertools.islice(turns, 3))
        with (
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ):

            def ends() -> dict[int, int]:
                return {partition: end for partition, (_, end) in enumerate(broker.offsets("t"))}

            def committed() -> dict[int, int]:
                return {
                    each.partition: at.offset
                    for each, at in admin.list_consumer_group_offsets(group.name).items()
                }

            before = dict[int, int]()

            def are_committed() -> bool:
                now, wanted = committed(), ends()
                for partition, end in wanted.items():
                    # Java's and librdkafka's members make up with the next record for a commit that was refused.
                    if now.get(partition) != end and now.get(partition) == before.get(partition):
                        producer.send("t", b"one more", partition=partition).result(10)
                before.update(now)
                return now == wanted

            until(are_committed, what=lambda: f"{committed()} of {ends()}\n{group.told()}", every=2)
        for member in group.running:
            member.close()
        assert group.unread(ends()) == set()
        assert group.skipped() == []
        assert group.shared_partitions() == []
        assert group.commits_of_strangers() == []
