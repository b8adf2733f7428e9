"""What comes in on the port: frames in any pieces, and any bytes at all."""

from __future__ import annotations

import logging
import random
import socket
import struct

import pytest
from tests.broker.wire import Wire

from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.registry import REQUESTS, decode_response, encode_request
from kadence_broker import Broker
from kadence_broker.handlers import HANDLERS
from kadence_broker.server.connection import Connection


def test_api_versions_in_every_version_offers_the_same(wire: Wire) -> None:
    offers = []
    for version in range(5):
        answer = wire.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)
        assert answer.error_code == codes.NONE
        offers.append([(each.api_key, each.min_version, each.max_version) for each in answer.api_keys])
    assert all(each == offers[0] for each in offers)
    offered = {key for key, _, _ in offers[0]}
    assert offered == set(HANDLERS)


def test_kip_511_an_api_versions_from_the_future_is_answered_in_v0(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00whatever comes then")
    correlation, answer = decode_response(ApiVersionsRequest, 4, wire.receive_frame())
    assert correlation == 7
    assert answer.error_code == codes.UNSUPPORTED_VERSION
    assert any(each.api_key == 18 and each.max_version == 5 for each in answer.api_keys)
    assert wire.call(ApiVersionsRequest(), 0).error_code == codes.NONE


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (struct.pack(">hhih", 999, 0, 1, -1), "999"),
        (struct.pack(">hhih", 3, 99, 1, -1) + b"\x00", "version 99"),
        (struct.pack(">hhih", 68, 0, 1, -1) + b"\x00", "ConsumerGroupHeartbeat"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\x00\xff\xff\xff\xff\x7f", "Metadata"),
        (b"12345678", "RequestHeader: truncated"),
    ],
)
def test_what_is_no_request_ends_its_connection_with_one_line(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, frame: bytes, reason: str
) -> None:
    with caplog.at_level(logging.WARNING, "kadence.broker"):
        wire.send_frame(frame)
        assert wire.is_closed()
        with Wire(broker) as other:
            assert other.call(MetadataRequest(topics=[])).brokers
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("length", [-1, 0, 7, 2**31 - 1, 200_000_000])
def test_lengths_that_lie_end_the_connection(
    wire: Wire, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kadence.broker"):
        wire.sock.sendall(struct.pack(">i", length))
        assert wire.is_closed()
    assert f"a frame of {length} bytes was announced" in caplog.text


def test_http_and_tls_are_told_apart_from_kafka(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with Wire(broker) as stranger:
            stranger.sock.sendall(greeting)
            assert stranger.is_closed()
    assert len(caplog.records) == 2


def test_a_frame_may_come_byte_by_byte_and_many_in_one_piece(wire: Wire) -> None:
    frame = encode_request(MetadataRequest(topics=[]), 12, 1, None)
    prefixed = struct.pack(">i", len(frame)) + frame
    wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(len(prefixed)):
        wire.sock.sendall(prefixed[number : number + 1])
    assert wire.receive_frame()
    # Deeper than the stack would allow if each request were served inside the one before it.
    wire.sock.sendall(prefixed * 3_000)
    for _ in range(3_000):
        wire.receive_frame()


def test_a_large_frame_arrives_in_pieces(wire: Wire) -> None:
    records = [bytes(900_000)]
    for expected in range(3):
        assert wire.produce("t", records).base_offset == expected


def test_a_client_that_sends_half_a_request_and_goes_is_forgotten(broker: Broker) -> None:
    for data in (b"\x00", b"\x00\x00\x01\x00abc", struct.pack(">i", 50_000_000) + bytes(100_000)):
        with Wire(broker) as client:
            client.sock.sendall(data)
    with Wire(broker) as wire:
        while broker._on_loop(lambda: len(broker._core.server.connections)) > 1:
            wire.call(MetadataRequest(topics=[]))


def test_memory_grows_with_what_came_not_with_what_was_announced(broker: Broker) -> None:
    with Wire(broker) as liar, Wire(broker) as wire:
        liar.sock.sendall(struct.pack(">i", 100_000_000) + bytes(70_000))
        wire.call(MetadataRequest(topics=[]))

        def held() -> int:
            return max(each.held_bytes for each in broker._core.server.connections)

        while broker._on_loop(held) == 0:
            wire.call(MetadataRequest(topics=[]))
        assert broker._on_loop(held) <= 2**20


def test_random_bytes_and_damaged_requests_never_hurt_the_others(broker: Broker) -> None:
    """The port survives anything: each damaged frame is answered or costs its own connection."""
    random_ = random.Random(20261121)
    healthy = Wire(broker)
    client = Wire(broker)
    client.sock.settimeout(0.2)
    for number in range(400):
        api_key = random_.choice(sorted(REQUESTS))
        request = REQUESTS[api_key]
        version = random_.randint(request.MIN_VERSION, request.MAX_VERSION)
        frame = bytearray(encode_request(request(), version, number, "fuzz"))
        if number % 4:
            for _ in range(random_.randint(1, 4)):
                frame[random_.randrange(8, len(frame))] = random_.randrange(256)
            if random_.random() < 0.3:
                frame += random_.randbytes(random_.randint(1, 40))
        else:
            frame = bytearray(random_.randbytes(random_.randint(8, 200)))
        try:
            client.send_frame(bytes(frame))
            if number % 8 == 0:
                client.sock.recv(1 << 16)
        except (ConnectionError, TimeoutError):
            client.sock.close()
            client = Wire(broker)
            client.sock.settimeout(0.2)
        if number % 50 == 0:
            assert healthy.call(MetadataRequest(topics=None)).brokers
    client.sock.close()
    assert healthy.call(HeartbeatRequest(group_id="g", member_id="m")).error_code == codes.UNKNOWN_MEMBER_ID
    healthy.sock.close()


def test_a_bug_in_a_handler_costs_one_connection(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with broker.faults.respond(HeartbeatRequest, lambda _call: 1 / 0):
        wire.send(HeartbeatRequest(), expect=False)
        assert wire.is_closed()
    assert "ZeroDivisionError" in caplog.text
    with Wire(broker) as other:
        assert other.call(MetadataRequest(topics=[])).brokers


def test_a_connection_says_who_it_is(broker: Broker, wire: Wire) -> None:
    wire.call(MetadataRequest(topics=[]))
    (connection,) = broker._on_loop(lambda: list[Connection](broker._core.server.connections))
    assert repr(connection).endswith("to node 1, idle>")


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, codes.NONE),
        ("here", 2, codes.NONE),
        ("here", 1, codes.REBOOTSTRAP_REQUIRED),
        ("there", 2, codes.REBOOTSTRAP_REQUIRED),
        ("here", -1, codes.INVALID_REQUEST),
        (None, 2, codes.INVALID_REQUEST),
    ],
)
def test_kip_1242_a_node_that_is_not_the_one_that_is_meant_says_so(
    cluster_id: str | None, node_id: int, code: int
) -> None:
    with Broker(nodes=2) as broker, Wire(broker, node=2) as wire:
        known = wire.call(MetadataRequest(topics=[])).cluster_id if cluster_id == "here" else cluster_id
        answer = wire.call(ApiVersionsRequest("a", "1", known, node_id))
        assert answer.error_code == code
        assert bool(answer.api_keys) == (code == codes.NONE)
