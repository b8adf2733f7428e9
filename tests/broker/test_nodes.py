"""Several nodes in one process: one of them stops, and starts again."""

from __future__ import annotations

import socket

import pytest
from tests.broker.wire import Wire
from tests.patience import PATIENCE, until

from kadence import Consumer, Producer, TopicPartition
from kadence.broker import Broker
from kadence.errors import ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.metadata import MetadataRequest


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
