"""Several nodes in one process: one of them stops, and starts again."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_coordination import commit, offsets
from tests.broker.wire import Wire
from tests.patience import PATIENCE, until

from kadence import Consumer, Producer, TopicPartition
from kadence.errors import ConfigError, ConnectError, LocalError
from kadence.protocol import error_codes as codes
from kadence.protocol.elect_leaders import ElectLeadersRequest
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker


def leaders(wire: Wire, topic: str = "t") -> list[int]:
    (found,) = (each for each in wire.call(MetadataRequest(topics=None)).topics if each.name == topic)
    return [each.leader_id for each in sorted(found.partitions, key=lambda each: each.partition_index)]


def refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_the_others_lead_what_a_stopped_node_led() -> None:
    with Broker(nodes=3, topics={"t": 6}) as broker, Wire(broker, 1) as wire, Wire(broker, 2) as lost:
        before = leaders(wire)
        addresses = broker.bootstrap_servers
        broker.stop_node(2)
        assert lost.is_closed()
        assert refuses(addresses.split(",")[1])
        after = leaders(wire)
        assert {after[index] for index, leader in enumerate(before) if leader == 2} == {1, 3}
        assert all(after[index] == leader for index, leader in enumerate(before) if leader != 2)
        assert (broker.node_ids, broker.bootstrap_servers) == ([1, 3], addresses)
        broker.start_node(2)
        assert broker.bootstrap_servers == addresses
        assert leaders(wire) == after, "as in Kafka, leadership does not come back by itself at once"
        with Wire(broker, 2) as again:
            assert len(again.call(MetadataRequest(topics=[])).brokers) == 3


def test_a_stopped_node_keeps_its_port_until_the_broker_is_closed() -> None:
    """Else another program may get it, which listens on any free port or connects from one."""
    with Broker(nodes=2) as broker:
        host, _, port = broker.bootstrap_servers.split(",")[1].rpartition(":")
        for _ in range(2):
            broker.stop_node(2)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))
            assert refuses(f"{host}:{port}")
            broker.start_node(2)
            with Wire(broker, 2) as wire:
                assert len(wire.call(MetadataRequest(topics=[])).brokers) == 2
        broker.stop_node(2)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host, int(port)))


def test_a_node_does_not_start_while_another_program_listens_on_its_port() -> None:
    with Broker(nodes=2) as broker:
        host, _, port = broker.bootstrap_servers.split(",")[1].rpartition(":")
        broker.stop_node(2)
        with socket.create_server((host, int(port))):
            for _ in range(2):
                with pytest.raises(ConnectError, match=f":{port}: the port is in use"):
                    broker.start_node(2)
        assert broker.node_ids == [1]
        broker.start_node(2)
        assert broker.node_ids == [1, 2]


def test_without_an_election_partitions_wait_for_their_node() -> None:
    with Broker(nodes=2, topics={"t": 2}) as broker, Wire(broker, 1) as wire:
        before = leaders(wire)
        mine, other = before.index(1), before.index(2)
        assert wire.produce("t", [b"v"], partition=mine).error_code == codes.NONE
        broker.stop_node(2, elect=False)
        assert leaders(wire)[other] == -1
        assert wire.produce("t", [b"v"], partition=other).error_code == codes.NOT_LEADER_OR_FOLLOWER
        broker.start_node(2)
        assert leaders(wire) == before
        with Wire(broker, 2) as again:
            assert again.produce("t", [b"v"], partition=other).error_code == codes.NONE


def test_all_nodes_may_stop_and_come_back_with_their_records() -> None:
    with Broker(nodes=2, topics={"t": 2}) as broker:
        with Wire(broker, 1) as wire:
            before = leaders(wire)
            wire.produce("t", [b"v"], partition=before.index(1))
        for node_id in (1, 2):
            broker.stop_node(node_id, elect=False)
        with pytest.raises(ConfigError, match="all are stopped"):
            broker.create_topic("new")
        assert broker.coordinator_of("g") == -1
        for node_id in (2, 1):
            broker.start_node(node_id)
        with Wire(broker, 1) as wire:
            assert leaders(wire) == before
        assert broker.offsets("t")[before.index(1)] == (0, 1)


def test_a_client_lives_through_the_loss_of_each_node() -> None:
    with (
        Broker(nodes=3, topics={"t": 3}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.subscribe(["t"])
        seen: list[bytes] = []
        for number, node_id in enumerate((1, 2, 3)):
            broker.stop_node(node_id)
            for partition in range(3):
                producer.send("t", b"%d-%d" % (number, partition), partition=partition)
            producer.flush(PATIENCE)

            def has_all(count: int = 3 * (number + 1)) -> bool:
                seen.extend(record.value for record in consumer.poll(0.2) if record.value is not None)
                return len(set(seen)) >= count

            until(has_all, every=0)
            broker.start_node(node_id)
        consumer.commit()
        committed = consumer.committed([TopicPartition("t", each) for each in range(3)])
        assert len(committed) == 3


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether the disk is full."""
    real, is_full = os.pwrite, False

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    def say(full: bool) -> None:
        nonlocal is_full
        is_full = full

    monkeypatch.setattr(os, "pwrite", pwrite)
    return say


def test_with_a_full_disk_no_node_stops_or_starts_halfway(
    tmp_path: Path, full_disk: Callable[[bool], None]
) -> None:
    with Broker(nodes=2, topics={"t": 4, "u": 2}, data_dir=tmp_path) as broker, Wire(broker, 1) as wire:
        address = broker.bootstrap_servers.split(",")[1]
        before = leaders(wire), leaders(wire, "u")
        full_disk(True)
        with pytest.raises(LocalError, match=r"was not made.*No space left on device"):
            broker.stop_node(2)
        assert (broker.node_ids, leaders(wire), leaders(wire, "u")) == ([1, 2], *before)
        with Wire(broker, 2) as running:
            assert leaders(running) == before[0]
        full_disk(False)
        broker.stop_node(2, elect=False)
        stopped = leaders(wire), leaders(wire, "u")
        assert -1 in stopped[0]
        full_disk(True)
        with pytest.raises(LocalError, match="No space left on device"):
            broker.start_node(2)
        assert refuses(address)
        assert (broker.node_ids, leaders(wire), leaders(wire, "u")) == ([1], *stopped)
        full_disk(False)
        broker.start_node(2)
        assert (leaders(wire), leaders(wire, "u")) == before


def test_with_a_full_disk_nobody_else_leads(tmp_path: Path, full_disk: Callable[[bool], None]) -> None:
    with Broker(nodes=2, topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker, 1) as wire:
        broker.move_leader("t", 0, 1)
        assert wire.produce("t", [b"v"]).error_code == codes.NONE
        full_disk(True)
        acts: list[Callable[[], None]] = [
            lambda: broker.move_leader("t", 0, 2),
            lambda: broker.elect_uncleanly("t", 0, 0, 2),
            lambda: broker.create_topic("new"),
        ]
        for act in acts:
            with pytest.raises(LocalError, match="No space left on device"):
                act()
        assert (leaders(wire), broker.offsets("t")) == ([1], [(0, 1)])


def test_an_elected_leader_coordinates_and_is_kept(tmp_path: Path, full_disk: Callable[[bool], None]) -> None:
    """A group's partition gets its leader back by ElectLeaders."""
    elect = ElectLeadersRequest(election_type=0, topic_partitions=None)
    with Broker(nodes=2, topics={"t": 1}, data_dir=tmp_path) as broker, Wire(broker, 1) as wire:
        broker.move_coordinator("g", 1)
        assert wire.call(commit(5), 8).topics[0].partitions[0].error_code == codes.NONE
        broker.move_coordinator("g", -1)
        full_disk(True)
        assert wire.call(elect).error_code == codes.KAFKA_STORAGE_ERROR
        assert broker.coordinator_of("g") == -1
        full_disk(False)
        assert wire.call(elect).error_code == codes.NONE
        assert broker.coordinator_of("g") == 1
        found = wire.call(offsets(), 8).groups[0].topics[0].partitions[0]
        assert found.committed_offset == 5


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda broker: broker.stop_node(9), "no node 9 runs"),
        (lambda broker: broker.start_node(1), "was not stopped"),
    ],
)
def test_nodes_that_are_not_there(broker: Broker, act: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        act(broker)  # type: ignore[operator]
