"""Back to the bootstrap addresses when every known broker is gone (KIP-899, KIP-1102)."""

from __future__ import annotations

import socket
from typing import Any

from tests.net.conftest import Connect
from tests.net.servers import answering, serve
from tests.net.test_client import HEARTBEAT, METADATA, dead_port

from kadence.connection.request import ANY_NODE, ConnectionPurpose
from kadence.errors import ConnectError, DisconnectedError, RequestTimedOutError
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
