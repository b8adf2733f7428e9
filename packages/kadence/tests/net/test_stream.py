"""Every stream, plain and TLS, compiled and not, behaves the same."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.net.conftest import Certificates

from kadence.net import openssl, secured, sockets
from kadence.net.drain import COMPILED
from kadence.net.sockets import Stream

MADE_OF = ["plain", "tls"] + (["compiled plain", "compiled tls"] if COMPILED else [])
BIG = 3_000_000


class Pair:
    """A stream under test and the blocking socket of its peer."""

    def __init__(self, kind: str, certificates: Certificates) -> None:
        ours, theirs = socket.socketpair()
        theirs.settimeout(20)
        self.peer: socket.socket = theirs
        self.sock: socket.socket = ours
        if "tls" in kind:
            self._secure(certificates)
        self.sock.setblocking(False)
        if kind.startswith("compiled"):
            self.stream: Stream = sockets.stream_of(self.sock)
            assert type(self.stream).__name__ == "_CompiledStream"
        else:
            made: Any = secured.TlsStream if "tls" in kind else sockets.PlainStream
            self.stream = made(self.sock)

    def _secure(self, certificates: Certificates) -> None:
        def shake() -> None:
            self.peer = certificates.server_context().wrap_socket(self.peer, server_side=True)

        thread = threading.Thread(target=shake)
        thread.start()
        self.sock.settimeout(20)
        self.sock = certificates.client_context().wrap_socket(
            self.sock, server_hostname="localhost", do_handshake_on_connect=False
        )
        openssl.read_ahead(openssl.pointer(self.sock))
        self.sock.do_handshake()
        thread.join()

    def wait(self) -> None:
        """Until the peer has sent something."""
        poller = select.poll()
        poller.register(self.sock.fileno(), select.POLLIN)
        assert poller.poll(20_000)

    def read(self, count: int, read: Callable[[memoryview], int | None]) -> bytes:
        """Exactly ``count`` bytes, waiting where ``read`` does not."""
        data = bytearray(count)
        done = 0
        while done < count:
            got = read(memoryview(data)[done:])
            if got is None:
                self.wait()
            else:
                assert got > 0
                done += got
        return bytes(data)

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


@pytest.fixture(params=MADE_OF)
def pair(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Pair]:
    made = Pair(request.param, certificates)
    yield made
    made.close()


@contextlib.contextmanager
def sending(pair: Pair, *parts: bytes) -> Iterator[None]:
    """The peer sends on a thread of its own."""

    def send() -> None:
        for part in parts:
            pair.peer.sendall(part)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


def test_nothing_there_is_not_now(pair: Pair) -> None:
    into = memoryview(bytearray(10))
    assert pair.stream.read_now(into) is None


def test_a_long_message_comes_in_pieces(pair: Pair) -> None:
    data = os.urandom(BIG)
    with sending(pair, data):
        assert pair.read(BIG, pair.stream.read_now) == data


def test_read_now_takes_what_is_there(pair: Pair) -> None:
    pair.peer.sendall(b"hello")
    assert pair.read(3, pair.stream.read_now) == b"hel"
    assert pair.read(2, pair.stream.read_now) == b"lo"
    assert pair.stream.read_now(memoryview(bytearray(10))) is None


def test_the_end_of_the_stream_is_0(pair: Pair) -> None:
    pair.peer.sendall(b"last")
    if isinstance(pair.peer, ssl.SSLSocket):
        with contextlib.suppress(OSError):
            pair.peer.settimeout(0)
            pair.peer.unwrap()
    pair.peer.shutdown(socket.SHUT_WR)
    assert pair.read(4, pair.stream.read_now) == b"last"
    into = memoryview(bytearray(10))
    pair.wait()
    assert pair.stream.read_now(into) == 0
    assert pair.stream.read_now(into) == 0, "an end stays one"


def test_an_end_in_the_middle_shows_after_the_bytes(pair: Pair) -> None:
    pair.peer.sendall(b"half")
    pair.peer.shutdown(socket.SHUT_RDWR)
    into = memoryview(bytearray(10))
    pair.wait()
    assert pair.stream.read_now(into) == 4
    try:
        assert pair.stream.read_now(into[4:]) == 0
    except (ssl.SSLEOFError, BrokenPipeError):
        # TLS without a farewell: OpenSSL tells a truncation from an end. Newer ones want to tell the peer so, who is
        # gone: here OpenSSL 3.5, with a socket of Unix.
        assert isinstance(pair.sock, ssl.SSLSocket)


def test_a_reset_is_an_os_error(pair: Pair) -> None:
    if isinstance(pair.sock, ssl.SSLSocket):
        pytest.skip("the socket pair cannot reset under TLS")
    pair.sock.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        pair.stream.read_now(memoryview(bytearray(1)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        pair.stream.write_now([memoryview(b"x")])


def test_junk_under_tls_is_named_by_the_ssl_module(pair: Pair) -> None:
    if not isinstance(pair.sock, ssl.SSLSocket):
        pytest.skip("plain streams have no junk")
    os.write(pair.peer.fileno(), b"junk that is no TLS record, and long enough")
    pair.wait()
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version|packet|record|ssl"):
        pair.stream.read_now(memoryview(bytearray(10)))


def test_write_now_writes_what_fits_and_goes_on(pair: Pair) -> None:
    data = os.urandom(BIG)
    received = bytearray()

    def receive() -> None:
        while len(received) < BIG:
            part = pair.peer.recv(65_536)
            if not part:
                return
            received.extend(part)

    rest = memoryview(data)
    while (count := pair.stream.write_now([rest])) is not None:
        rest = rest[count:]
        assert rest, "the socket's buffer never filled up"
    thread = threading.Thread(target=receive)
    thread.start()
    poller = select.poll()
    poller.register(pair.sock.fileno(), select.POLLOUT)
    while rest:
        if (count := pair.stream.write_now([rest])) is None:
            assert poller.poll(20_000)
        else:
            rest = rest[count:]
    thread.join()
    assert bytes(received) == data


def test_the_pointer_is_proved_before_it_is_used(certificates: Certificates) -> None:
    pair = Pair("tls", certificates)
    secured: Any = pair.sock
    assert (openssl.pointer(secured) != 0) == (openssl.functions() is not None)

    class Impostor:
        """Shows an inner object that is somebody else's."""

        _sslobj = secured._sslobj
        context = secured.context

    impostor: Any = Impostor()
    assert openssl.pointer(impostor) == 0
    pair.close()


def test_functions_of_another_openssl_than_pythons_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "OPENSSL_VERSION_NUMBER", ssl.OPENSSL_VERSION_NUMBER + 1)
    assert openssl._library() == (None, "another OpenSSL than the one of Python's ssl is loaded")
