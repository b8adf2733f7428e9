"""Logins of a client: tokens fetched beside the network thread, shared, renewed; passwords in the open warned of."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.net.conftest import Connect
from tests.net.servers import accept, serve
from tests.patience import PATIENCE

from kadence.connection.request import ConnectionPurpose
from kadence.errors import AuthenticationError, ConnectError, KafkaError
from kadence.net import ConnectionConfig
from kadence.net.logins import Logins
from kadence.net.tokens import TokenLogin
from kadence.protocol import error_codes
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence.security import Credentials, Secret, Token
from kadence.types import Node
from kadence_testing.clock import FakeClock

PLAIN = Credentials("PLAIN", "alice", Secret("geheim"))
OAUTH = Credentials("OAUTHBEARER", tokens=lambda: Token("geheim"))
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")
NOW = 5_000


class Source:
    """A token source that gives what it is told, once it may."""

    def __init__(self, *given: Token | Exception) -> None:
        self.given = list(given)
        self.threads: list[str] = []
        self.may = threading.Event()
        self.may.set()

    def __call__(self) -> Token:
        self.threads.append(threading.current_thread().name)
        assert self.may.wait(PATIENCE)
        item = self.given.pop(0)
        if isinstance(item, Exception):
            raise item
        return item


@contextmanager
def logging_in(source: Callable[[], Token]) -> Iterator[tuple[TokenLogin, threading.Event]]:
    come = threading.Event()
    login = TokenLogin(source, "client 'me'", come.set)
    yield login, come
    login.close()


def fetched(login: TokenLogin, come: threading.Event, now: int) -> None:
    assert come.wait(PATIENCE)
    come.clear()
    assert login.deliver(now)


def lasting(seconds: float, value: str = "t") -> Token:
    return Token(value, time.time() + seconds)


def shown(login: TokenLogin, now: int) -> bytes | None:
    exchange = login.begin(now)
    return None if exchange is None else exchange.first()


def test_a_token_is_fetched_elsewhere_once_and_used_until_four_fifths_of_its_life() -> None:
    source = Source(lasting(1_000, "one"), lasting(1_000, "two"))
    with logging_in(source) as (login, come):
        assert login.begin(NOW) is None
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        assert b"Bearer one" in (shown(login, NOW) or b"")
        login.served()
        assert b"Bearer one" in (shown(login, NOW + 790_000) or b"")
        assert source.threads == ["kadence-tokens"]
        assert login.begin(NOW + 801_000) is None
        fetched(login, come, NOW + 801_000)
        login.served()
        assert b"Bearer two" in (shown(login, NOW + 801_000) or b"")
    assert repr(login) == "<login by OAUTHBEARER of client 'me'>"


@pytest.mark.parametrize("expires_at", [None, 1.0])
def test_a_token_of_unknown_life_serves_those_who_wait_and_no_more(expires_at: float | None) -> None:
    with logging_in(Source(Token("t", expires_at), lasting(9))) as (login, come):
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        assert shown(login, NOW) == shown(login, NOW) == b"n,,\x01auth=Bearer t\x01\x01"
        login.served()
        assert not login.deliver(NOW)
        assert login.begin(NOW + 1) is None


@pytest.mark.parametrize("expires_at", [float("inf"), 1e300, 10**400], ids=["infinity", "1e300", "10**400"])
def test_a_token_that_never_expires_is_used_for_most_of_a_year(expires_at: float) -> None:
    with logging_in(Source(Token("t", expires_at), lasting(9))) as (login, come):
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        login.served()
        day_ms = 24 * 3600 * 1000
        assert login.begin(NOW + 291 * day_ms) is not None
        assert login.begin(NOW + 293 * day_ms) is None
        assert come.wait(PATIENCE)


def test_a_token_that_expired_before_the_epoch_is_used_once() -> None:
    with logging_in(Source(Token("t", float("-inf")))) as (login, come):
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        assert login.begin(NOW) is not None


def test_a_token_that_cannot_be_renewed_is_used_as_long_as_it_lives(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(lasting(1_000), ConnectError("away"), ConnectError("still away"))
    with logging_in(source) as (login, come):
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        login.served()
        assert login.begin(NOW + 900_000) is None
        fetched(login, come, NOW + 900_000)
        assert login.begin(NOW + 900_000) is not None
        login.served()
        assert "the old one stays in use: away" in caplog.text
        assert login.begin(NOW + 1_001_000) is None
        fetched(login, come, NOW + 1_001_000)
        with pytest.raises(ConnectError, match="still away"):
            login.begin(NOW + 1_001_000)
        login.served()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (ValueError("no vault"), "no token for client 'me': ValueError: no vault"),
        (Token("a b"), "no bearer token has"),
        ("t", "returned str, not kadence.Token"),
        (Token("t", float("nan")), "expires_at is NaN; seconds since 1970 are expected"),
        (Token("t", "tomorrow"), "expires_at is str; seconds since 1970"),  # type: ignore[arg-type]
        (Token("t", datetime.now(UTC)), "expires_at is datetime; seconds since 1970"),  # type: ignore[arg-type]
        (Token("t", True), "expires_at is bool"),
    ],
)
def test_a_provider_that_gives_no_token(given: Any, told: str) -> None:
    with logging_in(Source(given)) as (login, come):
        assert login.begin(NOW) is None
        fetched(login, come, NOW)
        errors = []
        for _ in range(2):
            with pytest.raises(AuthenticationError) as error:
                login.begin(NOW)
            errors.append(error.value)
        assert told in str(errors[0])
        assert errors[0] is not errors[1]


def sasl_broker(*, verdicts: list[Any], seen: list[Any], heartbeats: int = 1) -> Any:
    """A broker that takes one connection for each verdict."""

    def behaviour(listener: socket.socket) -> None:
        for verdict in verdicts:
            with accept(listener) as peer:
                peer.greet()
                header, message = peer.read()
                assert isinstance(message, SaslHandshakeRequest)
                peer.answer(header, SaslHandshakeResponse(mechanisms=[message.mechanism]))
                header, message = peer.read()
                assert isinstance(message, SaslAuthenticateRequest)
                seen.append(message.auth_bytes)
                peer.answer(header, verdict)
                for _ in range(heartbeats if verdict.error_code == 0 else 0):
                    header, _ = peer.read()
                    peer.answer(header, HeartbeatResponse())
                try:
                    peer.read()
                except (EOFError, OSError):
                    continue

    return behaviour


def test_the_network_thread_goes_on_while_a_token_is_fetched(connect: Connect) -> None:
    source = Source(lasting(1_000))
    source.may.clear()
    seen: list[Any] = []
    with serve(sasl_broker(verdicts=[SaslAuthenticateResponse()], seen=seen)) as (host, port):
        driver = connect((host, port), credentials=Credentials("OAUTHBEARER", tokens=source))
        driver.client.set_nodes([Node(1, host, port)])
        request = driver.send(HEARTBEAT, node_id=1)
        driver.until(lambda: bool(source.threads))
        assert driver.client.poll(0) == []
        source.may.set()
        [done] = driver.complete()
    assert done.request is request
    assert done.error is None
    assert seen == [b"n,,\x01auth=Bearer t\x01\x01"]


def test_a_provider_that_hangs_costs_no_more_than_the_time_to_connect(connect: Connect) -> None:
    source, clock = Source(lasting(1_000)), FakeClock()
    source.may.clear()
    with serve(sasl_broker(verdicts=[SaslAuthenticateResponse()], seen=[])) as (host, port):
        driver = connect(
            (host, port),
            credentials=Credentials("OAUTHBEARER", tokens=source),
            connect_timeout_ms=200,
            clock=clock,
        )
        driver.client.set_nodes([Node(1, host, port)])
        driver.send(HEARTBEAT, node_id=1)
        driver.until(lambda: bool(source.threads))
        clock.advance(200)
        error = driver.complete()[0].error
        source.may.set()
    assert isinstance(error, ConnectError)
    assert f"broker 1 ({host}:{port}): SASL authentication: no answer in time" in str(error)


@pytest.mark.parametrize("failure", [ConnectError("endpoint away"), AuthenticationError("endpoint refused")])
def test_without_a_token_requests_end_by_the_reason(connect: Connect, failure: KafkaError) -> None:
    with serve(sasl_broker(verdicts=[SaslAuthenticateResponse()], seen=[])) as (host, port):
        driver = connect((host, port), credentials=Credentials("OAUTHBEARER", tokens=Source(failure)))
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert type(error) is type(failure)
    assert str(failure) in str(error)


def test_a_refusal_ends_what_waits_and_the_next_request_tries_again(connect: Connect) -> None:
    refusal = SaslAuthenticateResponse(error_code=error_codes.SASL_AUTHENTICATION_FAILED, error_message="No.")
    seen: list[Any] = []
    with serve(sasl_broker(verdicts=[refusal, SaslAuthenticateResponse()], seen=seen)) as (host, port):
        driver = connect((host, port), credentials=PLAIN)
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
        assert isinstance(error, AuthenticationError)
        assert str(error) == f"broker 1 ({host}:{port}) refused SASL PLAIN of user 'alice': No."
        assert driver.ask(HEARTBEAT, node_id=1).error is None
    assert len(seen) == 2


def test_a_broker_that_falls_silent_in_the_middle(connect: Connect) -> None:
    asked = threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            peer.read()
            asked.set()
            peer.read()

    clock = FakeClock()
    with serve(behaviour) as (host, port):
        driver = connect((host, port), credentials=PLAIN, connect_timeout_ms=150, clock=clock)
        driver.client.set_nodes([Node(1, host, port)])
        driver.send(HEARTBEAT, node_id=1)
        driver.until(asked.is_set)
        clock.advance(150)
        error = driver.complete()[0].error
    assert isinstance(error, ConnectError)
    assert "SASL authentication" in str(error)
    assert "geheim" not in str(error)


def test_a_renewal_is_no_use_of_an_idle_connection(connect: Connect) -> None:
    """Else a session shorter than connections.max.idle.ms would keep it for ever."""
    renewed = threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for round_ in range(2):
                header, _ = peer.read()
                peer.answer(header, SaslHandshakeResponse())
                header, _ = peer.read()
                peer.answer(header, SaslAuthenticateResponse(session_lifetime_ms=1))
                if round_ == 0:
                    header, _ = peer.read()
                    peer.answer(header, HeartbeatResponse())
            renewed.set()
            # A second renewal would never be answered.
            peer.read()

    with serve(behaviour) as (host, port):
        clock = FakeClock()
        driver = connect((host, port), credentials=PLAIN, connections_max_idle_ms=1_100, clock=clock)
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        clock.advance(1_099)
        driver.until(renewed.is_set)
        driver.client.poll(0)
        assert (1, ConnectionPurpose.MAIN) in driver.client._channels
        clock.advance(1)
        driver.until(lambda: (1, ConnectionPurpose.MAIN) not in driver.client._channels)


def test_a_request_that_waits_for_a_renewal_is_waited_for_and_not_spun_for(connect: Connect) -> None:
    """A renewal stands behind a parked JoinGroup for minutes, and what is queued behind it as long."""
    renews, may_go_on = threading.Event(), threading.Event()

    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for round_ in range(2):
                header, _ = peer.read()
                if round_:
                    renews.set()
                    assert may_go_on.wait(PATIENCE)
                peer.answer(header, SaslHandshakeResponse())
                header, _ = peer.read()
                peer.answer(header, SaslAuthenticateResponse(session_lifetime_ms=1))
                header, _ = peer.read()
                peer.answer(header, HeartbeatResponse())

    with serve(behaviour) as (host, port):
        driver = connect((host, port), credentials=PLAIN)
        driver.client.set_nodes([Node(1, host, port)])
        assert driver.ask(HEARTBEAT, node_id=1).error is None
        driver.until(renews.is_set)
        request = driver.send(HEARTBEAT, node_id=1)
        for _ in range(3):
            driver.client.poll(0)
        now = driver.clock.now_ms()
        assert driver.client.next_deadline(now) > now
        may_go_on.set()
        (ended,) = driver.complete()
        assert (ended.request, ended.error) == (request, None)


@pytest.mark.parametrize(
    ("credentials", "host", "expected"),
    [
        (PLAIN, "203.0.113.9", 1),
        (PLAIN, "127.0.0.1", 0),
        (PLAIN, "::1", 0),
        (Credentials("SCRAM-SHA-256", "alice", Secret("geheim")), "203.0.113.9", 0),
        (OAUTH, "203.0.113.9", 1),
        (OAUTH, "127.0.0.1", 0),
    ],
)
def test_a_password_or_token_in_the_open_is_warned_of_once(
    credentials: Credentials, host: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    logins = Logins(ConnectionConfig(bootstrap=(), credentials=credentials), credentials, lambda: None)
    logins.about_to_talk(host)
    logins.about_to_talk(host)
    assert len(caplog.records) == expected
    assert "geheim" not in caplog.text
    logins.close()


def test_over_tls_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    config = ConnectionConfig(bootstrap=(), credentials=PLAIN, ssl_context=object())  # type: ignore[arg-type]
    Logins(config, PLAIN, lambda: None).about_to_talk("203.0.113.9")
    assert caplog.records == []
