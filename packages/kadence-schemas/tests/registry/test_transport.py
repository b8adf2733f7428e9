"""How a registry is reached: client certificates, and servers that never come to an end."""

from __future__ import annotations

import base64
import contextlib
import gzip
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
from tests.net.conftest import Certificates, certificates

from kadence.errors import ConfigError, SchemaRegistryError
from kadence_schemas import SchemaRegistryClient, http
from kadence_schemas.settings import RegistryOptions
from kadence_testing import FakeClock
from kadence_testing.schema_registry import SchemaRegistryServer

__all__ = ["certificates"]

PASSWORD = "keysecret"


def of(url: str, *, clock: FakeClock | None = None, **more: Any) -> SchemaRegistryClient:
    return SchemaRegistryClient._of(RegistryOptions((url,), **{"retries": 0, **more}), lambda _: None, clock)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens. It stays bound, or another program could get its port and listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("retries", [0, 1])
def test_each_address_is_asked_even_with_few_retries(nobody: str, retries: int) -> None:
    with SchemaRegistryServer() as server:
        server.add("orders-value", '"long"')
        options = RegistryOptions((nobody, nobody, server.url), retries=retries)
        assert SchemaRegistryClient._of(options, lambda _: None).get_subjects() == ["orders-value"]
        options = RegistryOptions((nobody, nobody), retries=retries)
        with pytest.raises(SchemaRegistryError, match="in 2 attempts"):
            SchemaRegistryClient._of(options, lambda _: None).get_subjects()


def test_addresses_are_a_text_or_a_list() -> None:
    urls = ["http://one:8081", "http://two:8081"]
    made = [SchemaRegistryClient(given) for given in (",".join(urls), urls, tuple(urls), {"url": urls})]
    made.append(SchemaRegistryClient(url=urls))
    assert {repr(each) for each in made} == {"SchemaRegistryClient('http://one:8081,http://two:8081')"}
    wrong: tuple[Any, ...] = (5, b"http://one:8081", [5])
    for each in wrong:
        with pytest.raises(ConfigError, match="takes an address, or a list"):
            SchemaRegistryClient(each)


@pytest.fixture
def locked(tmp_path: Path, certificates: Certificates) -> tuple[Path, Path]:
    """The client's certificate, and its key with a password."""
    from cryptography.hazmat.primitives import serialization

    pem = certificates.client.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    made = tmp_path / "cert.pem", tmp_path / "key.pem"
    made[0].write_bytes(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    made[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    return made


@pytest.fixture
def demanding(certificates: Certificates) -> Iterator[SchemaRegistryServer]:
    """A registry that speaks TLS, and only with who has a certificate."""
    context = certificates.server_context(wants_client=True)
    with SchemaRegistryServer(ssl_context=context) as server:
        server.add("orders-value", '"long"')
        yield server


def test_a_client_certificate(
    demanding: SchemaRegistryServer, certificates: Certificates, locked: tuple[Path, Path]
) -> None:
    assert demanding.url.startswith("https://")
    ca = str(certificates.ca)
    givens: tuple[dict[str, Any], ...] = (
        {"certificate": str(certificates.client)},
        {"certificate": str(locked[0]), "key": str(locked[1]), "key_password": PASSWORD},
    )
    for given in givens:
        assert of(demanding.url, ca=ca, **given).get_subjects() == ["orders-value"]


def test_without_a_certificate_the_registry_is_not_reached(
    demanding: SchemaRegistryServer, certificates: Certificates
) -> None:
    with pytest.raises(SchemaRegistryError, match="did not return /subjects in 1 attempts"):
        of(demanding.url, ca=str(certificates.ca)).get_subjects()
    # A server that we do not trust is not told who we are.
    with pytest.raises(SchemaRegistryError, match="CERTIFICATE_VERIFY_FAILED"):
        of(demanding.url, certificate=str(certificates.client)).get_subjects()
    assert not demanding.requests


def test_a_wrong_password_of_the_key_is_told_without_it(
    demanding: SchemaRegistryServer, locked: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ours = of(demanding.url, certificate=str(locked[0]), key=str(locked[1]), key_password="wrongsecret")
    with pytest.raises(ConfigError, match=r"schema\.registry\.ssl") as told:
        ours.get_subjects()
    for text in (str(told.value), repr(told.value), repr(ours), repr(vars(ours)), caplog.text):
        assert "wrongsecret" not in text


# ---------------------------------------------------------------- servers without an end


class Drips:
    """A server that sends something, and then a byte whenever the client's clock is asked.

    The clock goes on by a second each time, so the client's time ends, however fast its machine is.
    """

    def __init__(self, first: bytes, drop: bytes) -> None:
        self._first = first
        self._drop = drop
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(self._first)
                while True:
                    connection.sendall(self._drop)


class Going(FakeClock):
    """Each look at it takes a second."""

    def now_ms(self) -> int:
        self.advance(1000)
        return super().now_ms()


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n", b" "),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["header", "chunks", "length", "continue"],
)
def test_an_answer_that_never_ends_is_waited_for_so_long_only(first: bytes, drop: bytes) -> None:
    with Drips(first, drop) as server, pytest.raises(SchemaRegistryError, match="in 1 attempts"):
        of(server.url, clock=Going(), timeout=20).get_subjects()


@contextlib.contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

        def log_message(self, *_: object) -> None: ...

    server: HTTPServer = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sent(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize(
    "where", ["/again", "/{}/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://x"]
)
def test_redirects_that_lead_nowhere(where: str) -> None:
    number = iter(range(1000))
    with serving(lambda each: sent(each, 302, Location=where.format(next(number)))) as (url, asked):
        with pytest.raises(SchemaRegistryError, match="did not return /subjects in 1 attempts") as told:
            of(url).get_subjects()
        assert len(asked) <= 12
    assert "passwd" not in str(told.value)


def test_a_redirect_is_followed_without_the_login() -> None:
    seen: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        sent(handler, 200, b'["a"]')

    def lead_away(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        sent(handler, 302, Location=f"{elsewhere}/subjects")

    with serving(answer) as (elsewhere, _), serving(lead_away) as (url, _):
        client = of(url, user_info="me:password")
        assert client.get_subjects() == ["a"]
    assert seen == [f"Basic {base64.b64encode(b'me:password').decode()}", None]


def test_a_body_that_is_packed_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """We say that we take none, so what is small on the wire is small here."""
    bomb = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 20)
    with (
        serving(lambda each: sent(each, 200, bomb, Content_Encoding="gzip")) as (url, _),
        pytest.raises(SchemaRegistryError, match="its answer is not JSON"),
    ):
        of(url).get_subjects()


def test_an_answer_that_is_cut_off_and_one_of_another_type() -> None:
    def cut(each: BaseHTTPRequestHandler) -> None:
        each.send_response(200)
        each.send_header("Content-Length", "100")
        each.end_headers()
        each.wfile.write(b'["a"')

    with serving(cut) as (url, _), pytest.raises(SchemaRegistryError, match="in 1 attempts"):
        of(url).get_subjects()
    page = b"<html>log in</html>"
    with (
        serving(lambda each: sent(each, 200, page, Content_Type="text/html")) as (url, _),
        pytest.raises(SchemaRegistryError, match="its answer is not JSON"),
    ):
        of(url).get_subjects()
