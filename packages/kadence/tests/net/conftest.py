"""A client over real sockets that polls until something is true, and certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence.clock import Clock, SystemClock
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.net import ConnectionConfig, NetworkClient, drain, openssl

PATIENCE_MS = int(PATIENCE * 1_000)


class Driver:
    """Polls a client on the test's thread."""

    def __init__(self, client: NetworkClient, clock: Clock) -> None:
        self.client = client
        self.clock = clock

    def send(
        self,
        message: Any,
        node_id: int = -1,
        purpose: ConnectionPurpose = ConnectionPurpose.MAIN,
        within_ms: int = PATIENCE_MS,
    ) -> Request:
        request = Request(message, node_id, self.clock.now_ms() + within_ms, purpose)
        self.client.send(request)
        return request

    def until(self, done: Callable[[], bool]) -> list[Completed]:
        """Poll until ``done``; returns what ended on the way."""
        ended = []
        deadline = self.clock.now_ms() + PATIENCE_MS
        while not done():
            left = deadline - self.clock.now_ms()
            assert left > 0, f"it did not happen: {self.client!r}"
            ended += self.client.poll(min(left, 200))
        return ended

    def complete(self, count: int = 1) -> list[Completed]:
        """Poll until ``count`` requests have ended."""
        ended: list[Completed] = []
        deadline = self.clock.now_ms() + PATIENCE_MS
        while len(ended) < count:
            left = deadline - self.clock.now_ms()
            assert left > 0, f"{len(ended)} of {count} ended: {self.client!r}"
            ended += self.client.poll(left)
        return ended

    def ask(
        self, message: Any, node_id: int = -1, purpose: ConnectionPurpose = ConnectionPurpose.MAIN
    ) -> Completed:
        request = self.send(message, node_id, purpose)
        [ended] = self.complete()
        assert ended.request is request
        return ended


@pytest.fixture(params=["compiled", "plain"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both halves that move bytes."""
    if request.param == "plain":
        monkeypatch.setattr(drain, "COMPILED", False)
        monkeypatch.setattr(openssl, "BOUND", False)
    elif not drain.COMPILED:
        pytest.skip("Windows has no poll()")
    return str(request.param)


Connect = Callable[..., Driver]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes drivers from bootstrap addresses and settings of `ConnectionConfig`; closes their clients."""
    clients = []

    def make(
        *bootstrap: tuple[str, int], lookup: Any = None, clock: Clock | None = None, **settings: Any
    ) -> Driver:
        config = replace(ConnectionConfig(bootstrap=bootstrap, client_id="me"), **settings)
        clock = clock or SystemClock()
        client = NetworkClient(config, clock, **({"lookup": lookup} if lookup else {}))
        clients.append(client)
        return Driver(client, clock)

    yield make
    for client in clients:
        client.close()


@dataclass(frozen=True)
class Certificates:
    """An authority, a server's certificate for 127.0.0.1 and localhost, a client's."""

    ca: Path
    server: Path
    client: Path

    def server_context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.server)
        if wants_client:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    where = tmp_path_factory.mktemp("certificates")
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    made = Certificates(where / "ca.pem", where / "server.pem", where / "client.pem")
    authority.cert_pem.write_to_path(str(made.ca))
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        str(made.server)
    )
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(str(made.client))
    return made
