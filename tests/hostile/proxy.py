"""A proxy before an honest broker, which lies: each answer passes through a function of the test.

Clients are told that the broker is where the proxy listens, so they never find the honest address.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.net.servers import read_exactly
from tests.patience import PATIENCE

from kadence.protocol import registry
from kadence.protocol.describe_cluster import DescribeClusterResponse
from kadence.protocol.fetch import FetchResponse
from kadence.protocol.find_coordinator import FindCoordinatorResponse
from kadence.protocol.metadata import MetadataResponse
from kadence.protocol.produce import ProduceResponse
from kadence_broker import Broker

__all__ = ["Answer", "Lie", "lying_proxy"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer on its way to a client."""

    request: Any
    """The message that is answered."""
    version: int
    correlation_id: int
    response: Any
    """The honest answer as a message, with the proxy's address in it."""

    def encoded(self, response: Any = None) -> bytes:
        """A frame without its length: of ``response``, or of the honest answer."""
        answer = self.response if response is None else response
        return registry.encode_response(answer, self.version, self.correlation_id)


Lie = Callable[[Answer], bytes | None]
"""What goes to the client in an answer's place, as a frame without its length; None: the connection is closed."""


class _Proxy:
    def __init__(self, broker: Broker, lie: Lie) -> None:
        self._lie = lie
        host, port = broker.bootstrap_servers.split(",")[0].rsplit(":", 1)
        self._honest = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket, threading.Thread]] = []
        self.failures: list[Exception] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End the threads first: each closes its sockets itself, so none is left to the next test."""
        _shut_down(self._listener)
        self._accepting.join(PATIENCE)
        self._listener.close()
        for client, server, thread in self._pairs:
            _shut_down(client)
            _shut_down(server)
            thread.join(PATIENCE)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._honest)
                except OSError:
                    client.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(client, server), daemon=True)
                self._pairs.append((client, server, thread))
                thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One request after the other: a broker answers a connection in the order of its requests, too."""
        with client, server, suppress(OSError, EOFError):
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(PATIENCE)
            while True:
                length = read_exactly(client, 4)
                request = read_exactly(client, int.from_bytes(length))
                server.sendall(length + request)
                header, message = registry.decode_request(request)
                if getattr(message, "acks", None) == 0:
                    continue
                frame = read_exactly(server, int.from_bytes(read_exactly(server, 4)))
                correlation_id, response = registry.decode_response(
                    type(message), header.request_api_version, frame
                )
                self._move(response)
                try:
                    told = self._lie(Answer(message, header.request_api_version, correlation_id, response))
                except Exception as error:
                    self.failures.append(error)
                    raise
                if told is None:
                    return
                client.sendall(len(told).to_bytes(4) + told)

    def _move(self, response: Any) -> None:
        """Brokers are where the proxy is."""
        places: Sequence[Any] = ()
        if isinstance(response, MetadataResponse | DescribeClusterResponse):
            places = response.brokers
        elif isinstance(response, FindCoordinatorResponse):
            places = [response, *response.coordinators]
        elif isinstance(response, ProduceResponse | FetchResponse):
            places = response.node_endpoints
        for each in places:
            if each.port > 0:
                each.host, each.port = "127.0.0.1", self.port


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def lying_proxy(broker: Broker, lie: Lie) -> Iterator[str]:
    """Where clients are to go. What ``lie`` raises fails the test."""
    proxy = _Proxy(broker, lie)
    try:
        yield f"127.0.0.1:{proxy.port}"
    finally:
        proxy.close()
    if proxy.failures:
        raise proxy.failures[0]
