"""A running broker gets nonsense on its sockets: whole, cut off, in pieces, one behind the other.

Each connection is answered, closed, or its request is parked as long as it may be; others are served meanwhile. When
all is over the broker has logged no bug, holds no call and no connection, and little memory.
"""

from __future__ import annotations

import logging
import random
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tests.broker.wire import Wire
from tests.fuzz.dispatch import Bugs
from tests.fuzz.messages import requests
from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Story, Tally
from tests.patience import PATIENCE, until

from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.registry import encode_request
from kadence_broker import Broker

__all__ = ["STORIES"]

_CONNECTIONS: Final = 200
_GOOD: Final = 0.2
"""How many frames are as they should be: what they leave behind, others may stumble over."""
_MARK: Final = 0x5EED
"""Correlation id of the last request on each connection, a good one: its answer says that all before it are through."""
_HELD_BYTES: Final = 2 << 20
"""A frame that announces much gets 1 MiB at first."""
_STRANGERS: Final = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-x\r\n",
    bytes(64),
)


def _tell(users: dict[str, str] | None, seed: int) -> Tally:
    """Connections to one broker, one after the other."""
    chance, tally, bugs = random.Random(seed), Tally(), Bugs()
    good = [frame for _, _, frame in requests()]
    mutated = Mutator(good, seed)

    def frame() -> bytes:
        if chance.random() < _GOOD:
            return chance.choice(good)
        tally.mutations += 1
        return mutated()

    config = {"group.min.session.timeout.ms": 1, "connection.failed.authentication.delay.ms": 0}
    log = logging.getLogger("kadence.broker")
    log.addHandler(bugs)
    try:
        with Broker(topics={"t": 2}, users=users, config=config) as broker:
            for _ in range(_CONNECTIONS):
                _visit(broker, frame, chance)
                _others_are_served(broker)
            until(
                lambda: not broker._on_loop(lambda: list(broker._core.server.connections)),
                what="connections are left",
            )
            until(lambda: not broker._on_loop(lambda: _waiting(broker)), what="calls are left")
    finally:
        log.removeHandler(bugs)
    assert not bugs.found, bugs.found[0]
    return tally


def _visit(broker: Broker, frame: Callable[[], bytes], chance: random.Random) -> None:
    """One connection: some frames, a good one behind them, and an end of it."""
    frames = [frame() for _ in range(chance.choice((1, 1, 2, 8)))]
    data = b"".join(struct.pack(">i", len(each)) + each for each in frames)
    way = chance.choice(("whole", "whole", "pieces", "cut", "lying", "stranger"))
    with socket.create_connection(_address(broker), timeout=PATIENCE) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way == "cut":
            sock.sendall(data[: chance.randrange(len(data) + 1)])
            return
        if way == "lying":
            lie = chance.choice((-1, 0, 7, 8, 2**31 - 1, 100_000_000, 0x48454C4F))
            _send(sock, [struct.pack(">i", lie) + data])
        elif way == "stranger":
            _send(sock, [chance.choice(_STRANGERS) + data])
        elif way == "pieces":
            _send(sock, [data[at : at + 3] for at in range(0, min(len(data), 600), 3)] + [data[600:]])
        else:
            _send(sock, [data])
        mark = encode_request(ApiVersionsRequest("fuzz", "1"), 3, _MARK, "fuzz")
        if _send(sock, [struct.pack(">i", len(mark)) + mark]):
            _until_through(broker, sock)
        held = broker._on_loop(lambda: sum(each.held_bytes for each in broker._core.server.connections))
        assert held < _HELD_BYTES


def _send(sock: socket.socket, pieces: list[bytes]) -> bool:
    """Whether the broker has left the connection open so far."""
    try:
        for each in pieces:
            sock.sendall(each)
    except ConnectionError:
        return False
    return True


def _until_through(broker: Broker, sock: socket.socket) -> None:
    """Wait for the last answer, for the end of the connection, or until the broker waits: for time, or for bytes."""
    host, port = sock.getsockname()[:2]
    sock.settimeout(0.05)
    received = b""

    def through() -> bool:
        nonlocal received
        try:
            part = sock.recv(1 << 16)
        except TimeoutError:
            return _is_waiting(broker, f"{host}:{port}")
        except ConnectionError:
            return True
        received += part
        return not part or struct.pack(">i", _MARK) in received

    until(through, what="neither answered nor closed", every=0)


def _is_waiting(broker: Broker, peer: str) -> bool:
    """A request of this connection is parked; or less came of a frame than it announced."""

    def look() -> bool:
        found = [each for each in broker._core.server.connections if each.peer == peer]
        return not found or found[0].is_waiting_for_us or found[0]._frames.held_bytes > 0

    return broker._on_loop(look)


def _waiting(broker: Broker) -> list[Any]:
    return [
        waiter
        for topic in broker._core.cluster.topics.values()
        for each in topic.partitions
        for waiter in each.waiting
    ]


def _address(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def _others_are_served(broker: Broker) -> None:
    """Before a login there is one question, and the next one needs another connection."""
    with Wire(broker) as wire:
        assert wire.call(ApiVersionsRequest("fuzz", "1"), 3).error_code == 0
        if broker.security_protocol == "PLAINTEXT":
            assert wire.call(MetadataRequest(topics=None)).brokers


STORIES: Final = (
    Story("sockets", partial(_tell, None), share=6_000, memory=96),
    Story("sockets-with-login", partial(_tell, {"user": "password"}), share=3_000, memory=96),
)
