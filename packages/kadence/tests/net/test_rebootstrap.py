"""Back to the bootstrap addresses when every known broker is gone (KIP-899, KIP-1102)."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from tests.net.conftest import Connect
from tests.net.servers import OFFERED, accept, answering, serve
from tests.net.test_client import HEARTBEAT, METADATA, dead_port
from tests.patience import PATIENCE

from kadence import Admin, Broker, Consumer, Producer, TopicPartition
from kadence.connection.connection import WrongNodeError
from kadence.connection.request import ANY_NODE, ConnectionPurpose
from kadence.errors import ConnectError, DisconnectedError, RequestTimedOutError
from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.error_codes import NONE, REBOOTSTRAP_REQUIRED
from kadence.protocol.heartbeat import HeartbeatResponse
from kadence.protocol.metadata import MetadataResponse
from kadence.types import Node


def test_kip899_when_no_known_broker_answers_the_bootstrap_names_are_looked_up_anew(connect: Connect) -> None:
    looked_up: list[int] = []
    with (
        serve(answering(MetadataResponse(cluster_id="old"))) as (_, old),
        serve(answering(MetadataResponse(cluster_id="new"))) as (_, new),
    ):

        def lookup(name: str, _: int, **__: Any) -> list[Any]:
            """The name moves to another address after the first look-up."""
            looked_up.append(1)
            port = old if len(looked_up) == 1 else new
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        driver = connect(("kafka.example", 9092), lookup=lookup)
        assert driver.ask(METADATA).response.cluster_id == "old"
        driver.client.set_nodes([Node(1, "127.0.0.1", dead_port())])
        driver.client.rebootstrap()
        assert driver.client.nodes() == ()
        assert driver.ask(METADATA).response.cluster_id == "new"
        assert len(looked_up) == 2


def test_kip1102_forgetting_the_brokers_ends_what_is_on_its_way_to_them(connect: Connect) -> None:
    def silent(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            while accepted.recv(4_096):
                pass

    with (
        serve(silent) as (host, port),
        serve(answering(MetadataResponse(cluster_id="c"))) as address,
    ):
        driver = connect(address)
        driver.client.set_nodes([Node(1, host, port)])
        request = driver.send(HEARTBEAT, node_id=1)
        driver.client.poll(10)
        driver.client.rebootstrap()
        (ended,) = driver.complete()
        assert ended.request is request
        assert isinstance(ended.error, DisconnectedError)
        assert "begin again at bootstrap.servers" in str(ended.error)
        assert isinstance(driver.ask(HEARTBEAT, node_id=1).error, ConnectError)
        assert driver.ask(METADATA).response.cluster_id == "c"


@pytest.mark.parametrize("checks", [True, False])
def test_kip_1242_a_broker_that_is_not_who_metadata_says_is_left(connect: Connect, checks: bool) -> None:
    asked: list[ApiVersionsRequest] = []

    def another(listener: socket.socket) -> None:
        with accept(listener) as peer:
            header, message = peer.read()
            asked.append(message)
            code = REBOOTSTRAP_REQUIRED if message.cluster_id else NONE
            peer.answer(header, ApiVersionsResponse(code, OFFERED))
            header, _ = peer.read()
            peer.answer(header, HeartbeatResponse())

    told: list[bool] = []
    with serve(another) as (host, port):
        driver = connect(("127.0.0.1", dead_port()), checks_cluster=checks)
        driver.client.on_wrong_node = lambda: told.append(True)
        driver.client.set_nodes([Node(1, host, port)], "c")
        ended = driver.ask(HEARTBEAT, node_id=1)
        assert (asked[0].cluster_id, asked[0].node_id) == (("c", 1) if checks else (None, -1))
        if checks:
            assert isinstance(ended.error, WrongNodeError)
            assert ended.error.retriable
            assert told == [True]
        else:
            assert (ended.error, told) == (None, [])


def test_kip_1242_after_the_brokers_were_forgotten_nobody_is_taken_for_one_of_them(connect: Connect) -> None:
    """The next metadata may be of another cluster: until then each broker is whoever answers."""
    asked: list[ApiVersionsRequest] = []

    def listening(listener: socket.socket) -> None:
        with accept(listener) as peer:
            header, message = peer.read()
            asked.append(message)
            peer.answer(header, ApiVersionsResponse(api_keys=OFFERED))
            header, _ = peer.read()
            peer.answer(header, HeartbeatResponse())

    with serve(listening) as (host, port):
        driver = connect(("127.0.0.1", dead_port()))
        driver.client.set_nodes([Node(2, "127.0.0.1", dead_port())], "c")
        driver.client.rebootstrap()
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        assert asked[0].cluster_id is None


def test_kip899_with_strategy_none_the_bootstrap_address_serves_until_brokers_are_known(
    connect: Connect,
) -> None:
    with serve(answering(MetadataResponse(cluster_id="c"))) as address:
        driver = connect(address, returns_to_bootstrap=False)
        assert driver.ask(METADATA).response.cluster_id == "c"
        driver.client.set_nodes([Node(1, "127.0.0.1", dead_port())])
        driver.client.poll(50)
        driver.send(METADATA, within_ms=300)
        (ended,) = driver.complete()
        assert isinstance(ended.error, RequestTimedOutError)
        driver.client.set_nodes(())
        assert driver.client.can_send(ANY_NODE, ConnectionPurpose.MAIN, driver.clock.now_ms()), (
            "now they are all there is"
        )


def test_b7_nobody_is_there_once_every_address_has_failed(connect: Connect) -> None:
    """A connection that was lost is no such thing: the broker may take the next one."""
    with serve(answering(MetadataResponse(cluster_id="c"))) as address:
        driver = connect(address)
        assert not driver.client.is_cut_off(), "nothing was tried"
        driver.ask(METADATA)
        assert not driver.client.is_cut_off()
        driver.client.set_nodes([Node(1, "127.0.0.1", dead_port())])
        assert isinstance(driver.ask(HEARTBEAT, node_id=1).error, ConnectError)
        assert not driver.client.is_cut_off(), "the bootstrap address may be tried"
    driver.send(METADATA)
    driver.until(driver.client.is_cut_off)


@pytest.mark.parametrize("kind", ["producer", "admin", "consumer"])
def test_kip_1242_each_client_begins_again_when_a_broker_is_another(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def is_of_node_2(call: Any) -> bool:
        return call.node_id == 2 and call.message.cluster_id is not None

    with (
        Broker(topics={"t": 1}, nodes=2) as broker,
        broker.faults.error(ApiVersionsRequest, REBOOTSTRAP_REQUIRED, where=is_of_node_2, times=1) as refused,
    ):
        broker.move_leader("t", 0, 2)
        servers = broker.bootstrap_servers.partition(",")[0]
        if kind == "producer":
            with Producer(bootstrap_servers=servers) as producer:
                assert producer.send("t", b"v").result(PATIENCE).offset == 0
        elif kind == "admin":
            with Admin(bootstrap_servers=servers) as admin:
                (found,) = admin.list_offsets({("t", 0): "latest"}).values()
                assert found is not None
                assert found.offset == 0
        else:
            with Consumer(bootstrap_servers=servers) as consumer:
                assert consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}
    assert refused.hits == 1
    assert "a broker said so: asking bootstrap.servers" in caplog.text
