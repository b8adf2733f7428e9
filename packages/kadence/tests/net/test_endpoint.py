"""Tokens by OAuth client credentials, from an endpoint on this machine that behaves and misbehaves."""

from __future__ import annotations

import base64
import json
import ssl
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.net.conftest import Certificates

from kadence.errors import AuthenticationError, ConnectError
from kadence.net.endpoint import fetch_token
from kadence.security import ClientCredentials, Secret, Token

SECRET = "hunter2/+ü"


@contextmanager
def endpoint(
    body: bytes, status: int = 200, context: ssl.SSLContext | None = None, **headers: str
) -> Iterator[tuple[str, list[Any]]]:
    """Yields its URL, and the (headers, body) of what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the library's name

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


def ask(url: str, context: ssl.SSLContext | None = None, **changes: Any) -> Token:
    settings: dict[str, Any] = {
        "url": url,
        "client_id": "me:1",
        "secret": Secret(SECRET),
        "scope": None,
        "extensions": {},
        "is_encoded": False,
        **changes,
    }
    return fetch_token(ClientCredentials(**settings), context, 10)


def basic(headers: dict[str, str]) -> str:
    return base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()


def test_a_token_over_tls_with_all_that_may_be_set(certificates: Certificates) -> None:
    body = json.dumps({"access_token": "abc", "token_type": "Bearer", "expires_in": 300}).encode()
    with endpoint(body, context=certificates.server_context()) as (url, asked):
        context = certificates.client_context()
        token = ask(url, context, scope="read write", extensions={"a": "b"}, is_encoded=True)
    assert (token.value, token.extensions) == ("abc", {"a": "b"})
    assert token.expires_at is not None
    assert 200 < token.expires_at - time.time() <= 300
    [(headers, form)] = asked
    assert form == "grant_type=client_credentials&scope=read+write"
    assert basic(headers) == "me%3A1:hunter2%2F%2B%C3%BC"


def test_id_and_secret_are_sent_as_java_does() -> None:
    with endpoint(b'{"access_token": "abc"}') as (url, asked):
        assert ask(url).expires_at is None
    [(headers, form)] = asked
    assert form == "grant_type=client_credentials"
    assert basic(headers) == f"me:1:{SECRET}"


def test_a_token_may_say_itself_when_it_ends() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_900_000_000}).encode()).decode().rstrip("=")
    with endpoint(json.dumps({"access_token": f"e30.{claims}.x"}).encode()) as (url, _):
        assert ask(url).expires_at == 1_900_000_000


@pytest.mark.parametrize("claims", [b'{"exp": 1' + b"0" * 400 + b"}", b"[" * 200_000])
def test_a_token_whose_claims_are_nonsense_has_no_known_end(claims: bytes) -> None:
    encoded = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    with endpoint(json.dumps({"access_token": f"e30.{encoded}.x"}).encode()) as (url, _):
        assert ask(url).expires_at is None


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (
            401,
            b'{"error": "invalid_client", "error_description": "who?"}',
            AuthenticationError,
            "invalid_client: who?",
        ),
        (401, b'{"error": "a\\n\\u001b"}', AuthenticationError, r"HTTP 401 a\x0a\x1b"),
        (403, b"<html>", AuthenticationError, "HTTP 403 Forbidden"),
        (307, b"", AuthenticationError, "HTTP 307"),
        (429, b"", ConnectError, "HTTP 429"),
        (503, b"[]", ConnectError, "HTTP 503"),
        (200, b"", AuthenticationError, "answered without access_token"),
        (200, b"[]", AuthenticationError, "answered without access_token"),
        (200, b'{"token": "x"}', AuthenticationError, "answered without access_token"),
        (
            200,
            b'{"access_token": "x", "expires_in": "soon"}',
            AuthenticationError,
            "answered without access_token",
        ),
        (
            200,
            b'{"access_token": "x", "expires_in": 1' + b"0" * 400 + b"}",
            AuthenticationError,
            "answered without access_token",
        ),
        (200, b"[" * 200_000, AuthenticationError, "answered without access_token"),
        (400, b"[" * 200_000, AuthenticationError, "HTTP 400 Bad Request"),
    ],
)
def test_refusals_and_nonsense(status: int, body: bytes, kind: type[Exception], told: str) -> None:
    with endpoint(body, status, Location="http://127.0.0.1:1/") as (url, asked), pytest.raises(kind) as error:
        ask(url)
    assert told in str(error.value)
    assert url in str(error.value)
    assert SECRET not in "".join(traceback.format_exception(error.value))
    assert len(asked) == 1


def test_an_endpoint_that_is_not_there() -> None:
    # Nobody listens on this port, nor does another test get it.
    with pytest.raises(ConnectError, match=r"cannot be reached: .*refused"):
        ask("http://127.0.0.1:1/token")


def test_an_endpoint_with_a_certificate_of_nobody(certificates: Certificates) -> None:
    body = b'{"access_token": "abc"}'
    with (
        endpoint(body, context=certificates.server_context()) as (url, asked),
        pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        ask(url)
    assert asked == []
