"""A broker behind a mapping of ports: every answer has the addresses of `advertised.listeners`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import Wire
from tests.consumer.blackhole import mapped
from tests.patience import PATIENCE

from kadence import Admin, Consumer, Producer, ShareConsumer
from kadence.admin import ConfigResource
from kadence.errors import ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.describe_cluster import DescribeClusterRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import encode_batch
from kadence_broker import Broker

LISTENERS = "PLAINTEXT://one.example:19092, plaintext://[2001:db8::1]:19093"


def listening(broker: Broker) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in broker._core.nodes.ports.values())


def address(each: Any) -> tuple[int, str, int]:
    return each.node_id, each.host, each.port


def test_every_answer_has_the_advertised_address_and_port() -> None:
    config = {"advertised.listeners": LISTENERS}
    with Broker(nodes=2, topics={"t": 1}, config=config) as broker, Wire(listening(broker)) as wire:
        assert broker.bootstrap_servers == "one.example:19092,[2001:db8::1]:19093"
        nodes = [(1, "one.example", 19092), (2, "2001:db8::1", 19093)]
        topics = wire.call(MetadataRequest(topics=None))
        assert [address(each) for each in topics.brokers] == nodes
        described = wire.call(DescribeClusterRequest()).brokers
        assert [(each.broker_id, each.host, each.port) for each in described] == nodes
        for key_type in (0, 1):
            found = wire.call(
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b", "c", "d"])
            )
            assert {address(each) for each in found.coordinators} <= set(nodes)
            assert {each.error_code for each in found.coordinators} == {codes.NONE}
        broker.move_leader("t", 0, 2)
        data = PartitionProduceData(index=0, records=encode_batch([(1_000, b"k", b"v", ())]))
        topic_id = topics.topics[0].topic_id
        produced = wire.call(
            ProduceRequest(
                acks=-1,
                timeout_ms=1_000,
                topic_data=[TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])],
            )
        )
        assert [address(each) for each in produced.node_endpoints] == nodes[1:]


def test_a_node_that_starts_again_listens_where_it_did() -> None:
    with Broker(nodes=2, config={"advertised.listeners": LISTENERS}) as broker:
        before = listening(broker)
        broker.stop_node(2)
        broker.start_node(2)
        with Wire(before, 2) as wire:
            assert len(wire.call(MetadataRequest(topics=None)).brokers) == 2
        assert broker.bootstrap_servers.endswith(",[2001:db8::1]:19093")


def test_clients_go_through_the_mapped_ports() -> None:
    with mapped(2) as (broker, paths):
        broker.create_topic("t", 2)
        servers = f"127.0.0.1:{paths[0].port}"
        with Producer(bootstrap_servers=servers) as producer:
            for partition in (0, 1):
                producer.send("t", b"%d" % partition, partition=partition).result(PATIENCE)
        assert [each.accepted > 0 for each in paths] == [True, True]
        seen: set[bytes | None] = set()
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            while len(seen) < 2:
                seen |= {each.value for each in consumer.poll(PATIENCE)}
            consumer.commit()
        with Admin(bootstrap_servers=servers) as admin:
            admin.incremental_alter_configs(
                {ConfigResource("group", "q"): {"share.auto.offset.reset": "earliest"}}
            )
        shared: set[bytes | None] = set()
        with ShareConsumer(bootstrap_servers=servers, group_id="q") as queue:
            queue.subscribe("t")
            while len(shared) < 2:
                shared |= {each.value for each in queue.poll(PATIENCE)}
            queue.commit()
        assert seen == shared == {b"0", b"1"}
        assert broker.bootstrap_servers == ",".join(f"127.0.0.1:{each.port}" for each in paths)


PORT = "is no address with a port, such as PLAINTEXT://localhost:19092"


@pytest.mark.parametrize(
    ("listeners", "said"),
    [
        ("PLAINTEXT://localhost", f"'PLAINTEXT://localhost' {PORT}"),
        ("localhost:9092", f"'localhost:9092' {PORT}"),
        ("PLAINTEXT://:9092", f"'PLAINTEXT://:9092' {PORT}"),
        ("PLAINTEXT://localhost:9092,", f"'' {PORT}"),
        ("PLAINTEXT://localhost:" + "9" * 5000, PORT),
        ("PLAINTEXT://localhost:0", "clients cannot connect to port 0; name one from 1 to 65535"),
        ("PLAINTEXT://localhost:65536", "clients cannot connect to port 65536; name one from 1 to 65535"),
        (
            "INTERNAL://localhost:9092",
            "there is no listener INTERNAL; the one of this broker is PLAINTEXT, after its TLS and logins",
        ),
        (
            "PLAINTEXT://0.0.0.0:9092",
            "0.0.0.0 is for listening only; name the address that clients connect to",
        ),
        ("PLAINTEXT://[::]:9092", ":: is for listening only; name the address that clients connect to"),
        ("PLAINTEXT://a b:9092", "'a b' is no host, such as localhost or 192.0.2.1"),
    ],
)
def test_an_address_that_no_client_could_use_is_refused(listeners: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^advertised\.listeners: .*{re.escape(said)}$"):
        Broker(data_dir=tmp_path / "data", config={"advertised.listeners": listeners})
    assert not (tmp_path / "data").exists()


def test_each_node_needs_an_address_of_its_own() -> None:
    one = "PLAINTEXT://localhost:9092"
    with pytest.raises(ConfigError, match=r"one address for each node, in the order of their ids: 2, not 1$"):
        Broker(nodes=2, config={"advertised.listeners": one})
    with pytest.raises(ConfigError, match=r"has an address twice; clients could not tell the nodes apart$"):
        Broker(nodes=2, config={"advertised.listeners": f"{one},{one}"})


def test_a_listener_is_named_after_tls_and_logins() -> None:
    config = {"advertised.listeners": "SASL_PLAINTEXT://localhost:9092"}
    with Broker(users={"u": "p"}, config=config) as broker:
        assert broker.bootstrap_servers == "localhost:9092"
    with pytest.raises(ConfigError, match="no listener SASL_PLAINTEXT; the one of this broker is PLAINTEXT"):
        Broker(config=config)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("localhost:9092", "'localhost:9092' is no host, such as localhost or 192.0.2.1"),
        ("0.0.0.0", "0.0.0.0 is for listening only; name the address that clients connect to"),
    ],
)
def test_an_advertised_host_that_no_client_could_use_is_refused(host: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^advertised\.host\.name: {re.escape(said)}$"):
        Broker(config={"advertised.host.name": host})


def test_hosts_are_named_once() -> None:
    config = {"advertised.host.name": "a", "advertised.listeners": "PLAINTEXT://b:9092"}
    with pytest.raises(
        ConfigError, match=r"^advertised\.listeners has the host, too; leave out advertised\."
    ):
        Broker(config=config)
