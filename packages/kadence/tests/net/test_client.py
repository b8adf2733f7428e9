"""The client against peers over real sockets."""

from __future__ import annotations

import itertools
import socket
import threading
from typing import Any

import pytest
from tests.net.conftest import Connect, Driver
from tests.net.servers import Peer, accept, answering, frame, serve
from tests.patience import PATIENCE

from kadence.connection.request import ANY_NODE, ConnectionPurpose, Request
from kadence.errors import (
    ClosedError,
    ConnectError,
    DisconnectedError,
    MalformedMessageError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kadence.net.channel import Channel
from kadence.protocol.api_versions import ApiVersion
from kadence.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kadence.protocol.produce import ProduceRequest
from kadence.types import Node
from kadence_testing.clock import FakeClock

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
METADATA = MetadataRequest(topics=None)


_dead_ports = itertools.count(1)


def dead_port() -> int:
    """A port of the loopback where nobody listens: not one that another test may be given meanwhile."""
    return next(_dead_ports)


def test_a_request_and_its_answer(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="c"))) as address:
        driver = connect(address)
        done = driver.ask(METADATA)
        assert (done.error, done.response.cluster_id, done.version, done.loan) == (None, "c", 13, None)
        assert repr(driver.client) == "<NetworkClient me nodes=0 connections=1/1 in_flight=0>"
        assert driver.client.trouble() is None
        assert driver.client.api_range(ANY_NODE, 3) == (0, 13)


def test_ipv6_loopback(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="six")), host="::1") as address:
        assert connect(address).ask(METADATA).response.cluster_id == "six"


def test_every_resolved_address_is_tried(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="second"))) as (host, port):

        def lookup(name: str, _: int, **__: Any) -> list[Any]:
            assert name == "kafka.example"
            dead = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))
            alive = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
            return [dead, alive]

        driver = connect(("kafka.example", 9092), lookup=lookup)
        assert driver.ask(METADATA).response.cluster_id == "second"


def test_a_dead_bootstrap_address_first_then_a_live_one(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="alive"))) as address:
        driver = connect(("127.0.0.1", dead_port()), address)
        assert driver.ask(METADATA).response.cluster_id == "alive"


def test_bootstrap_addresses_that_all_fail_are_named_with_step_and_cause(connect: Connect) -> None:
    def no_such_host(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def slams_the_door(listener: socket.socket) -> None:
        while True:
            listener.accept()[0].close()

    port, clock = dead_port(), FakeClock()
    with serve(slams_the_door) as (_, slamming):
        driver = connect(
            ("no.such.host", 9092),
            ("127.0.0.1", port),
            ("127.0.0.1", slamming),
            lookup=no_such_host,
            clock=clock,
        )
        request = driver.send(METADATA, within_ms=400)
        driver.until(driver.client.is_cut_off)
        clock.advance(400)
        [ended] = driver.complete()
    assert ended.request is request
    assert isinstance(ended.error, RequestTimedOutError)
    message = str(ended.error)
    assert "Metadata could not be sent in time" in message
    assert "bootstrap no.such.host:9092: name look-up: Name or service not known" in message
    assert f"cannot connect to bootstrap 127.0.0.1:{port}: Connection refused" in message
    assert f"bootstrap 127.0.0.1:{slamming}: ApiVersions: " in message
    assert "Connection reset by peer" in message or "closed the connection" in message
    assert driver.client.trouble() is not None


def test_a_dead_address_is_logged_once_for_all_that_lead_there(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kadence.net")
    port = dead_port()
    driver = connect(("127.0.0.1", port))
    driver.client.set_nodes([Node(5, "127.0.0.1", port)])
    for purpose in (ConnectionPurpose.MAIN, ConnectionPurpose.GROUP):
        driver.client.send(Request(HEARTBEAT, 5, driver.clock.now_ms() + 10_000, purpose))
    driver.send(METADATA, within_ms=300)
    driver.complete(3)
    assert caplog.messages == [f"cannot connect to broker 5 (127.0.0.1:{port}): Connection refused"]
    assert driver.client.trouble() == caplog.messages[0]


def test_a_request_to_a_dead_broker_ends_at_once_and_the_broker_is_left_alone(connect: Connect) -> None:
    driver = connect(("127.0.0.1", dead_port()))
    node = Node(5, "127.0.0.1", dead_port())
    driver.client.set_nodes([node])
    now = driver.clock.now_ms()
    assert driver.client.can_send(5, ConnectionPurpose.MAIN, now)
    done = driver.ask(HEARTBEAT, node_id=5)
    assert isinstance(done.error, ConnectError)
    assert f"cannot connect to broker 5 (127.0.0.1:{node.port}): Connection refused" == str(done.error)
    assert not driver.client.can_send(5, ConnectionPurpose.MAIN, done.received_at)
    assert driver.client.can_send(5, ConnectionPurpose.MAIN, done.received_at + 100)


def test_a_broker_that_metadata_does_not_know(connect: Connect) -> None:
    driver = connect(("127.0.0.1", dead_port()))
    done = driver.ask(HEARTBEAT, node_id=7)
    assert isinstance(done.error, ConnectError)
    assert "broker 7 is not among the cluster's nodes" in str(done.error)
    assert not driver.client.can_send(7, ConnectionPurpose.MAIN, done.received_at)


def test_each_lane_has_a_connection_of_its_own(connect: Connect) -> None:
    """A parked request delays nothing on another purpose."""
    parked = threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as first, accept(listener) as second:
            peers = {}
            for peer in (first, second):
                peer.greet()
                header, message = peer.read()
                peers[type(message)] = (peer, header)
            peer, header = peers[HeartbeatRequest]
            peer.answer(header, HeartbeatResponse())
            assert parked.wait(PATIENCE)
            peer, header = peers[MetadataRequest]
            peer.answer(header, MetadataResponse())

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        slow = driver.send(METADATA, node_id=1, purpose=ConnectionPurpose.JOIN)
        quick = driver.send(HEARTBEAT, node_id=1, purpose=ConnectionPurpose.MAIN)
        assert driver.client.in_flight(1) == 2
        [ended] = driver.complete()
        assert ended.request is quick
        assert (
            driver.client.in_flight(1, ConnectionPurpose.JOIN),
            driver.client.in_flight(1, ConnectionPurpose.MAIN),
        ) == (1, 0)
        parked.set()
        [ended] = driver.complete()
        assert ended.request is slow


def test_a_bootstrap_connection_becomes_the_brokers_own(connect: Connect) -> None:
    with serve(answering(MetadataResponse(), HeartbeatResponse())) as (host, port):
        driver = connect((host, port))
        driver.ask(METADATA)
        driver.client.set_nodes([Node(1, host, port)])
        # The server accepts one connection only.
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        assert driver.client.api_range(1, 12) == (0, 4)
        assert driver.client.nodes() == (Node(1, host, port),)


def test_one_address_twice_in_bootstrap_servers_is_one_connection(connect: Connect) -> None:
    """Also once the broker is known: only one could become its connection."""
    with serve(answering(MetadataResponse(), MetadataResponse(), HeartbeatResponse())) as (host, port):
        driver = connect((host, port), (host, port))
        requests = {driver.send(METADATA), driver.send(METADATA)}
        assert {ended.request for ended in driver.complete(2)} == requests
        driver.client.set_nodes([Node(1, host, port)])
        # The server accepts one connection only.
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        assert "connections=1/1" in repr(driver.client)


def test_two_names_of_one_broker_end_with_the_one_that_metadata_tells(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as first:
            first.greet()
            asked, _ = first.read()
            slow, _ = first.read()
            first.answer(asked, MetadataResponse())
            with accept(listener) as second:
                second.greet()
                header, _ = second.read()
                second.answer(header, HeartbeatResponse())
                first.answer(slow, MetadataResponse(cluster_id="slow"))
                second.read()

    def lookup(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    with serve(behaviour) as (host, port):
        driver = connect(("one.example", port), ("other.example", port), lookup=lookup)
        driver.send(METADATA)
        slow = driver.send(METADATA)
        driver.complete()
        driver.client.set_nodes([Node(1, host, port)])
        driver.send(HEARTBEAT, node_id=1)
        ended = {item.request: item for item in driver.complete(2)}
        assert ended[slow].response.cluster_id == "slow", "what was on its way by the other name is not lost"
        driver.until(lambda: "connections=1/1" in repr(driver.client))


def test_a_bootstrap_connection_that_is_no_broker_is_closed(connect: Connect) -> None:
    with (
        serve(answering(MetadataResponse())) as address,
        serve(answering(HeartbeatResponse())) as (host, port),
    ):
        driver = connect(address)
        driver.ask(METADATA)
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT).error is None
        assert repr(driver.client) == "<NetworkClient me nodes=1 connections=1/1 in_flight=0>"


def test_bootstrap_addresses_are_the_last_resort_when_all_brokers_are_gone(connect: Connect) -> None:
    with serve(answering(MetadataResponse(cluster_id="rescue"))) as address:
        driver = connect(address)
        driver.client.set_nodes([Node(1, "127.0.0.1", dead_port()), Node(2, "127.0.0.1", dead_port())])
        assert driver.ask(METADATA).response.cluster_id == "rescue"


def test_a_broker_that_moved_or_left_loses_its_connections(connect: Connect) -> None:
    def silent(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            peer.read()
            peer.read()

    with serve(silent) as (host, port), serve(answering(HeartbeatResponse())) as (_, new_port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port), Node(2, host, port)])
        request = driver.send(HEARTBEAT, node_id=1)
        driver.until(lambda: driver.client.api_range(1, 12) is not None)
        driver.client.set_nodes([Node(1, host, new_port)])
        [ended] = driver.complete()
        assert ended.request is request
        assert f"broker 1 at {host}:{port} moved to {host}:{new_port}" in str(ended.error)
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        assert "not among" in str(driver.ask(HEARTBEAT, node_id=2).error)


def read_all(peer: Peer, count: int) -> None:
    for _ in range(count):
        peer.read()


@pytest.mark.parametrize("step", ["accept", "versions asked", "versions half answered"])
def test_disconnects_before_the_connection_stands_are_connect_errors(connect: Connect, step: str) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            if step == "accept":
                return
            header, _ = peer.read()
            if step == "versions half answered":
                peer.sock.sendall(frame(header, MetadataResponse())[:7])

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        done = driver.ask(HEARTBEAT, node_id=1)
    assert isinstance(done.error, ConnectError)
    assert f"broker 1 ({host}:{port}): ApiVersions: " in str(done.error)


@pytest.mark.parametrize("part", [0, 3, 9])
def test_disconnects_end_everything_in_flight(connect: Connect, part: int) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            header, _ = peer.read()
            peer.read()
            peer.sock.sendall(frame(header, HeartbeatResponse())[:part])

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        first, second = driver.send(HEARTBEAT, node_id=1), driver.send(METADATA, node_id=1)
        ended = driver.complete(2)
    assert [item.request for item in ended] == [first, second]
    assert all(isinstance(item.error, DisconnectedError) for item in ended)
    assert "with Heartbeat in flight" in str(ended[0].error)
    assert ended[0].error is not ended[1].error
    assert driver.client.in_flight() == 0


def test_a_lost_connection_is_made_anew(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            peer.read()
        with accept(listener) as peer:
            peer.greet()
            header, _ = peer.read()
            peer.answer(header, HeartbeatResponse(error_code=27))
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        assert isinstance(driver.ask(HEARTBEAT, node_id=1).error, DisconnectedError)
        assert driver.ask(HEARTBEAT, node_id=1).response.error_code == 27


def test_a_web_server_is_recognised(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.read()
            peer.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert isinstance(error, ConnectError)
    assert "these bytes are an http answer" in str(error).lower()


def test_a_length_that_lies_ends_the_connection_and_names_the_broker(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            peer.read()
            peer.sock.sendall((2**31 - 1).to_bytes(4))
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert isinstance(error, MalformedMessageError)
    assert f"broker 1 ({host}:{port}) announced a message of 2147483647 bytes" in str(error)


def test_a_request_that_the_broker_cannot_take_does_not_cost_the_connection(connect: Connect) -> None:
    offered = [
        ApiVersion(api_key=18, min_version=0, max_version=4),
        ApiVersion(api_key=12, min_version=0, max_version=4),
    ]

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet(offered)
            header, _ = peer.read()
            peer.answer(header, HeartbeatResponse())
            peer.read()

    with serve(behaviour) as address:
        driver = connect(address)
        assert isinstance(driver.ask(METADATA).error, UnsupportedVersionError)
        assert driver.ask(HEARTBEAT).error is None


def test_silence_is_a_timeout_that_closes_the_connection(connect: Connect) -> None:
    asked, closed = threading.Event(), threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            read_all(peer, 2)
            asked.set()
            try:
                peer.read()
            finally:
                closed.set()

    clock = FakeClock()
    with serve(behaviour) as (host, port):
        driver = connect((host, port), request_timeout_ms=150, clock=clock)
        driver.client.set_nodes([Node(1, host, port)])
        patient = driver.send(METADATA, node_id=1, within_ms=300_000)
        hasty = driver.send(HEARTBEAT, node_id=1, within_ms=50)
        driver.until(asked.is_set)
        clock.advance(150)
        errors = {item.request: item.error for item in driver.complete(2)}
        assert closed.wait(PATIENCE)
    assert isinstance(errors[hasty], RequestTimedOutError)
    assert "did not answer Heartbeat in time" in str(errors[hasty])
    assert isinstance(errors[patient], DisconnectedError)


def test_a_silent_broker_can_be_given_up_before_its_time(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as silent:
            silent.greet()
            read_all(silent, 1)
            with accept(listener) as peer:
                peer.greet()
                header, _ = peer.read()
                peer.answer(header, HeartbeatResponse())

    with serve(behaviour) as (host, port):
        driver = connect((host, port), request_timeout_ms=60_000)
        driver.client.set_nodes([Node(1, host, port)])
        swallowed = driver.send(HEARTBEAT, node_id=1)
        while not driver.client.api_range(1, HEARTBEAT.API_KEY):
            driver.client.poll(50)
        driver.client.disconnect(1)
        again = driver.send(HEARTBEAT, node_id=1)
        ended = {item.request: item for item in driver.complete(2)}
    assert isinstance(ended[swallowed].error, DisconnectedError)
    assert "does not answer" in str(ended[swallowed].error)
    assert ended[again].response == HeartbeatResponse()


def test_a_request_for_any_node_does_not_wait_behind_a_silent_broker(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallowing(listener: socket.socket) -> None:
        with accept(listener) as silent:
            silent.greet()
            while True:
                silent.read()

    clock = FakeClock()
    heard_at = clock.now_ms()
    # Sockets note it by the system's clock.
    monkeypatch.setattr(Channel, "heard_at", property(lambda _: heard_at))
    with serve(swallowing) as silent, serve(answering(MetadataResponse(), MetadataResponse())) as healthy:
        client = (driver := connect(silent, clock=clock)).client
        driver.send(METADATA)
        driver.until(lambda: client.api_range(ANY_NODE, METADATA.API_KEY) is not None)
        client.set_nodes([Node(1, *silent), Node(2, *healthy)])
        clock.advance(499)
        driver.send(METADATA)
        client.poll(0)
        assert client.in_flight(1) == 2, "it may still answer"
        heard_at = clock.now_ms()
        clock.advance(499)
        driver.send(METADATA)
        client.poll(0)
        assert client.in_flight(1) == 3, "something came lately, such as a part of a long answer"
        clock.advance(1)
        for _ in range(2):
            assert driver.ask(METADATA).error is None
        client.set_nodes([Node(1, *silent)])
        driver.send(METADATA)
        client.poll(0)
        assert client.in_flight(1) == 4, "nobody else is there"


@pytest.mark.parametrize(("owed", "waited_ms"), [(2, 0), (1, 10)])
def test_a_request_for_any_node_does_not_wait_behind_one_that_only_that_node_can_answer(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, owed: int, waited_ms: int
) -> None:
    """Such a one may take as long as its time limit allows, and others are answered at once."""

    def swallowing(listener: socket.socket) -> None:
        with accept(listener) as silent:
            silent.greet()
            while True:
                silent.read()

    clock = FakeClock()
    monkeypatch.setattr(Channel, "heard_at", -1)
    with serve(swallowing) as slow, serve(swallowing) as busy:
        client = (driver := connect(slow, clock=clock)).client
        client.set_nodes([Node(1, *slow), Node(2, *busy)])
        for node_id, count in ((1, owed), (2, 1)):
            clock.advance(waited_ms)
            for _ in range(count):
                driver.send(HEARTBEAT, node_id=node_id)
            driver.until(lambda: client.api_range(node_id, METADATA.API_KEY) is not None)  # noqa: B023
        for count in (2, 3, 4):
            driver.send(METADATA)
            client.poll(0)
            assert client.in_flight(2) == count, client


def test_connections_on_which_something_was_heard_are_not_given_up(connect: Connect) -> None:
    with serve(answering(HeartbeatResponse(), HeartbeatResponse())) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        asked_at = driver.clock.now_ms()
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        driver.client.disconnect(1, unless_heard_since=asked_at)
        # The server accepts one connection only.
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        driver.client.disconnect(1, unless_heard_since=driver.clock.now_ms() + 1)
        assert "connections=0/0" in repr(driver.client)


def test_a_handshake_without_an_answer_is_a_timeout_of_the_connection(connect: Connect) -> None:
    asked = threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.read()
            asked.set()
            peer.read()

    clock = FakeClock()
    with serve(behaviour) as (host, port):
        driver = connect((host, port), connect_timeout_ms=100, clock=clock)
        driver.client.set_nodes([Node(1, host, port)])
        driver.send(HEARTBEAT, node_id=1)
        driver.until(asked.is_set)
        clock.advance(100)
        error = driver.complete()[0].error
    assert isinstance(error, ConnectError)
    assert f"broker 1 ({host}:{port}): ApiVersions: no answer in time" in str(error)


def test_an_address_that_swallows_everything_costs_its_share_of_the_time_only(connect: Connect) -> None:
    def swallow(listener: socket.socket) -> None:
        with accept(listener) as peer:
            read_all(peer, 2)

    with serve(swallow) as swallowing, serve(answering(MetadataResponse(cluster_id="alive"))) as living:

        def lookup(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (swallowing, living)]

        driver = connect(("kafka.example", 9092), connect_timeout_ms=1_000, lookup=lookup)
        assert driver.ask(METADATA).response.cluster_id == "alive"


def test_an_unused_connection_is_closed_without_a_backoff(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        for _ in range(2):
            with accept(listener) as peer:
                peer.greet()
                header, _ = peer.read()
                peer.answer(header, HeartbeatResponse())
                with pytest.raises(EOFError):
                    peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port), connections_max_idle_ms=50)
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        driver.until(lambda: "connections=0/0" in repr(driver.client))
        assert driver.client.can_send(1, ConnectionPurpose.MAIN, driver.clock.now_ms())
        assert driver.ask(HEARTBEAT, node_id=1).error is None


def test_a_broker_that_closes_an_unused_connection_is_not_left_alone_for_it(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        for _ in range(2):
            with accept(listener) as peer:
                peer.greet()
                header, _ = peer.read()
                peer.answer(header, HeartbeatResponse())

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        driver.until(lambda: "connections=0/0" in repr(driver.client))
        assert driver.client.can_send(1, ConnectionPurpose.MAIN, driver.clock.now_ms())
        assert driver.client.trouble() is None
        assert driver.ask(HEARTBEAT, node_id=1).error is None


def test_throttled_requests_wait(connect: Connect) -> None:
    with serve(answering(HeartbeatResponse(throttle_time_ms=200), HeartbeatResponse())) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        first = driver.ask(HEARTBEAT, node_id=1)
        assert not driver.client.can_send(1, ConnectionPurpose.MAIN, first.received_at + 199)
        assert driver.client.can_send(1, ConnectionPurpose.MAIN, first.received_at + 200)
        second = driver.ask(HEARTBEAT, node_id=1)
        assert second.received_at - first.received_at >= 200


def test_produce_without_acks_ends_without_an_answer(connect: Connect) -> None:
    seen: list[Any] = []

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            seen.append(peer.read()[1])
            header, _ = peer.read()
            peer.answer(header, HeartbeatResponse())
            peer.read()

    with serve(behaviour) as address:
        driver = connect(address)
        done = driver.ask(ProduceRequest(acks=0))
        assert (done.response, done.error) == (None, None)
        assert driver.ask(HEARTBEAT).error is None
    assert isinstance(seen[0], ProduceRequest)


def fetch_response(size: int) -> FetchResponse:
    data = PartitionData(partition_index=0, high_watermark=9, records=bytes(i % 251 for i in range(size)))
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[data])])


@pytest.mark.parametrize("size", [0, 10, 70_000, 3_000_000])
def test_fetch_responses_lie_in_a_lent_arena(connect: Connect, size: int) -> None:
    with serve(answering(fetch_response(size), fetch_response(size))) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        for _ in range(2):
            done = driver.ask(FetchRequest(), node_id=1, purpose=ConnectionPurpose.FETCH)
            assert done.error is None
            assert done.loan is not None
            assert done.loan.size >= size
            assert driver.client.arenas.in_use == done.loan.size
            records = done.response.responses[0].partitions[0].records
            assert not isinstance(records, bytes | bytearray), "no copy"
            assert bytes(records) == bytes(i % 251 for i in range(size))
            done.loan.release()
            assert driver.client.arenas.in_use == 0


def test_a_fetch_response_that_cannot_be_read_gives_its_arena_back(connect: Connect) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            header, _ = peer.read()
            peer.sock.sendall((8).to_bytes(4) + header.correlation_id.to_bytes(4) + b"junk")
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        assert isinstance(driver.ask(FetchRequest(), node_id=1).error, MalformedMessageError)
        assert driver.client.arenas.in_use == 0


def test_many_answers_in_one_piece(connect: Connect) -> None:
    """More frames than one turn reads: the rest lies in the socket, or under TLS inside the process."""
    count = 100

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            headers = [peer.read()[0] for _ in range(count)]
            peer.sock.sendall(b"".join(frame(header, HeartbeatResponse()) for header in headers))
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        requests = [driver.send(HEARTBEAT, node_id=1) for _ in range(count)]
        assert [item.request for item in driver.complete(count)] == requests


def test_large_requests_go_out_in_parts(connect: Connect) -> None:
    seen: list[Any] = []
    with serve(answering(MetadataResponse(), seen=seen)) as address:
        driver = connect(address, send_buffer_bytes=4096)
        big = MetadataRequest(topics=[MetadataRequestTopic(name=f"{i:01000}") for i in range(3000)])
        assert driver.ask(big).error is None
    assert seen[0] == big


def test_a_wake_up_ends_the_wait_and_the_one_before_it(connect: Connect) -> None:
    driver = connect(("127.0.0.1", dead_port()))
    driver.client.wakeup()
    assert driver.client.poll(None) == []
    timer = threading.Timer(0.05, driver.client.wakeup)
    timer.start()
    assert driver.client.poll(None) == []
    timer.join()


def test_next_deadline_names_the_nearest_of_anything(connect: Connect) -> None:
    driver = connect(("127.0.0.1", dead_port()))
    now = driver.clock.now_ms()
    assert driver.client.next_deadline(now) == 2**63 - 1
    driver.client.send(Request(HEARTBEAT, ANY_NODE, now + 77))
    assert driver.client.next_deadline(now) == now


def test_queued_requests_go_out_before_close(connect: Connect) -> None:
    seen: list[Any] = []
    with serve(answering(HeartbeatResponse(), seen=seen)) as address:
        driver = connect(address)
        driver.send(HEARTBEAT)
        driver.client.close(20_000)
        driver.client.close()
    assert len(seen) == 1
    assert repr(driver.client) == "<NetworkClient me nodes=0 closed>"
    with pytest.raises(ClosedError):
        driver.client.poll(0)
    with pytest.raises(ClosedError):
        driver.send(HEARTBEAT)


def test_closing_while_a_name_hangs_does_not_hang(connect: Connect) -> None:
    hangs = threading.Event()

    def lookup(*_: Any, **__: Any) -> list[Any]:
        hangs.wait(PATIENCE)
        return []

    driver: Driver = connect(("kafka.example", 9092), lookup=lookup)
    driver.send(METADATA)
    driver.client.poll(0)
    driver.client.close()
    hangs.set()
