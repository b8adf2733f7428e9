"""The table of capabilities against the brokers themselves, and the rule that a test declares what it needs."""

from __future__ import annotations

import socket
import struct

import pytest
from tests.consumer.capabilities import BROKERS, CAPABILITIES, NO_REQUEST, by_name, declared, mark, unmet
from tests.consumer.support import Cluster, read
from tests.patience import until

from kadence import TopicPartition
from kadence.protocol import error_codes
from kadence.protocol.fetch import FetchRequest

API_VERSIONS = 18


def requests_of(bootstrap_servers: str) -> dict[int, tuple[int, int]]:
    """API key → oldest and newest version, by an ApiVersions v0 written by hand."""
    host, port = bootstrap_servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), 10) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1))
        (size,) = struct.unpack(">i", answers.read(4))
        body = answers.read(size)
    _, error, count = struct.unpack_from(">ihi", body)
    assert error == 0
    rows = (struct.unpack_from(">hhh", body, 10 + 6 * index) for index in range(count))
    return {key: (oldest, newest) for key, oldest, newest in rows}


@pytest.mark.brokers("embedded", "kafka", "mock")
@pytest.mark.needs("reading")
def test_what_the_table_says_of_requests_is_what_the_broker_answers(cluster: Cluster) -> None:
    answered = requests_of(cluster.bootstrap_servers)
    for capability in CAPABILITIES:
        if capability.request is None:
            continue
        key, version = capability.request
        oldest, newest = answered.get(key, (0, -1))
        has = oldest <= version <= newest
        if cluster.kind not in capability.lacks:
            assert has, f"{capability.name}: {BROKERS[cluster.kind]} answers {key} from {oldest} to {newest}"
        elif capability.lacks[cluster.kind] == NO_REQUEST:
            assert not has, f"{BROKERS[cluster.kind]} has {capability.name!r} by now: change the table"


@pytest.mark.parametrize("name", [each.name for each in CAPABILITIES])
def test_every_capability_is_had_by_a_broker_and_says_why_others_lack_it(name: str) -> None:
    capability = by_name(name)
    assert set(capability.lacks) < set(BROKERS)
    assert all(reason for reason in capability.lacks.values())


def test_what_classic_members_need_is_not_asked_of_the_other_protocol() -> None:
    assert unmet(["classic rebalances"], "mock") is not None
    assert unmet(["classic rebalances"], "mock", "consumer") is None
    assert unmet(["groups", "migration"], "mock") is not None
    assert unmet(["groups"], "embedded") is None


class Item:
    """A collected test, as far as the table looks at one."""

    def __init__(self, broker: str, *needs: str) -> None:
        self.callspec = self
        self.params = {"cluster": broker}
        self.marks: list[pytest.MarkDecorator] = [pytest.mark.needs(*needs)] if needs else []

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [each.mark for each in self.marks if each.name == name]

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks.append(marker)


def test_a_test_that_declares_nothing_or_nonsense_fails() -> None:
    with pytest.raises(ValueError, match="declares what it needs"):
        declared(Item("mock"))
    with pytest.raises(ValueError, match="no capability 'kip-849'"):
        declared(Item("mock", "groups", "kip-849"))


def test_a_broker_without_what_is_needed_is_skipped_with_the_reason() -> None:
    items = [Item(broker, "reading", "strict topics") for broker in BROKERS]
    asked = mark(items)  # type: ignore[arg-type]
    assert asked == {"reading": 3, "strict topics": 3}
    skipped = {item.params["cluster"]: item.iter_markers("skip") for item in items}
    assert skipped["embedded"] == skipped["kafka"] == []
    assert "makes every topic" in skipped["mock"][0].kwargs["reason"]
    assert items[1].iter_markers("kafka")


@pytest.mark.brokers("embedded", "mock")
@pytest.mark.needs("reading", "several brokers", "leader moves")
def test_several_brokers_are_three_with_the_leaders_spread_and_movable(cluster: Cluster) -> None:
    topic = cluster.topic(6)
    consumer = cluster.consumer(metadata_max_age_ms=50)
    leaders = [info.leader for info in consumer.partitions_for(topic)]
    assert len(set(leaders)) == 3
    elsewhere = next(node for node in set(leaders) if node is not None and node != leaders[0])
    cluster.move_leader(TopicPartition(topic, 0), elsewhere)
    until(lambda: consumer.partitions_for(topic)[0].leader == elsewhere)


@pytest.mark.brokers("embedded", "virtual")
@pytest.mark.needs("reading", "faults")
def test_faults_are_of_the_broker_that_has_them(cluster: Cluster) -> None:
    assert cluster.broker is not None
    topic = cluster.topic(1)
    cluster.produce(topic, 1, partitions=1)
    consumer = cluster.consumer()
    with cluster.broker.faults.error(FetchRequest, error_codes.UNKNOWN_SERVER_ERROR, times=1) as refused:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(read(consumer, 1)) == 1
    assert refused.hits == 1
