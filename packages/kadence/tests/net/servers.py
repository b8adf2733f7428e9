"""Hostile and honest peers: a server is a function given a listening socket, on a thread of its own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from tests.patience import PATIENCE

from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

Behaviour = Callable[[socket.socket], None]

"""Seconds after which a stuck server thread ends by an error instead of hanging the run."""

OFFERED = [
    ApiVersion(api_key=cls.API_KEY, min_version=cls.MIN_VERSION, max_version=cls.MAX_VERSION)
    for cls in registry.REQUESTS.values()
]


class Listener(socket.socket):
    """Remembers what it accepted, so that the end of a test ends a server that still waits."""

    accepted: list[socket.socket]

    def end(self) -> None:
        for sock in (self, *getattr(self, "accepted", ())):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def serve(behaviour: Behaviour, *, host: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Run ``behaviour`` beside the test; yields (host, port). What it raises fails the test, but for broken pipes."""
    with Listener(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.bind((host, 0))
        listener.listen()
        listener.settimeout(PATIENCE)
        failures: list[Exception] = []

        def run() -> None:
            try:
                behaviour(listener)
            except (OSError, EOFError):
                # The client went away first, or the test is over: both are ordinary ends of a server.
                pass
            except Exception as error:  # noqa: BLE001 - raised on the test's thread
                failures.append(error)

        thread = threading.Thread(target=run, name="server", daemon=True)
        thread.start()
        try:
            yield host, listener.getsockname()[1]
        finally:
            listener.end()
            thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"
        if failures:
            raise failures[0]


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class Peer:
    """One accepted connection that speaks frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        self.sock = sock

    def read(self) -> tuple[Any, Any]:
        """The next request: (header, message)."""
        length = int.from_bytes(read_exactly(self.sock, 4))
        return registry.decode_request(read_exactly(self.sock, length))

    def answer(self, header: Any, response: Any) -> None:
        self.sock.sendall(frame(header, response))

    def greet(self, offered: list[ApiVersion] | None = None) -> None:
        """Answer ApiVersions."""
        header, message = self.read()
        assert isinstance(message, ApiVersionsRequest)
        self.answer(header, ApiVersionsResponse(api_keys=OFFERED if offered is None else offered))

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame(header: Any, response: Any) -> bytes:
    body = registry.encode_response(response, header.request_api_version, header.correlation_id)
    return len(body).to_bytes(4) + body


def accept(listener: socket.socket, context: ssl.SSLContext | None = None) -> Peer:
    sock, _ = listener.accept()
    if context is not None:
        sock.settimeout(PATIENCE)
        try:
            sock = context.wrap_socket(sock, server_side=True)
        except OSError:
            sock.close()
            raise
    if isinstance(listener, Listener):
        listener.accepted = [*getattr(listener, "accepted", ()), sock]
    return Peer(sock)


def answering(
    *answers: Any, context: ssl.SSLContext | None = None, seen: list[Any] | None = None
) -> Behaviour:
    """A broker of one connection that gives ``answers`` in turn and then closes once the client has."""

    def behaviour(listener: socket.socket) -> None:
        with accept(listener, context) as peer:
            peer.greet()
            for response in answers:
                header, message = peer.read()
                if seen is not None:
                    seen.append(message)
                peer.answer(header, response)
            peer.read()

    return behaviour
