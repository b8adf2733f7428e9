"""SASL on a connection: between ApiVersions and READY, and again before the session ends; all by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.connection.test_connection import EVERYTHING, NOW, answer, written

from kadence.clock import FOREVER
from kadence.connection.connection import BrokerConnection, Phase
from kadence.connection.request import Request
from kadence.connection.sasl.exchange import Exchange, Login
from kadence.connection.sasl.passwords import PasswordLogin
from kadence.connection.sasl.plain import Plain
from kadence.errors import AuthenticationError, ConnectError, DisconnectedError, MalformedMessageError
from kadence.protocol import error_codes
from kadence.protocol.api_versions import ApiVersion, ApiVersionsResponse
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest, JoinGroupResponse
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kadence.security import Secret

PLAIN = PasswordLogin("PLAIN", "alice", Secret("geheim"))
HOUR = 3_600_000


class Peer:
    """The broker's side of one connection."""

    def __init__(self, login: Login = PLAIN, offered: list[ApiVersion] | None = None) -> None:
        self.connection = BrokerConnection(
            "broker 1 (kafka:9092)", client_id="me", request_timeout_ms=30_000, login=login
        )
        self.connection.open(NOW)
        self.headers: Iterator[Any] = iter(())
        assert self.read()
        self.say(ApiVersionsResponse(api_keys=EVERYTHING if offered is None else offered))

    def read(self, now: int = NOW) -> list[Any]:
        """What the connection has written since; `say` answers it in order."""
        frames = written(self.connection, now)
        self.headers = iter([*self.headers, *(header for header, _ in frames)])
        return [message for _, message in frames]

    def say(self, response: Any, now: int = NOW) -> Any:
        header = next(self.headers)
        return answer(self.connection, response, header.request_api_version, header.correlation_id, now)

    def accept(self, now: int = NOW, lifetime_ms: int = 0) -> None:
        """Read and accept a handshake and the one message of PLAIN."""
        [handshake] = self.read(now)
        assert isinstance(handshake, SaslHandshakeRequest)
        self.say(SaslHandshakeResponse(mechanisms=["PLAIN"]), now)
        [message] = self.read(now)
        assert isinstance(message, SaslAuthenticateRequest)
        self.say(SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms), now)


def heartbeat() -> Request:
    return Request(HeartbeatRequest(group_id="g", member_id="m"), 1, NOW + 10 * HOUR)


def test_nothing_is_sent_before_the_broker_has_accepted_us() -> None:
    peer = Peer()
    assert repr(peer.connection) == "<connection to broker 1 (kafka:9092) authenticating in_flight=0>"
    assert not peer.connection.can_send(NOW)
    [handshake] = peer.read()
    assert handshake.mechanism == "PLAIN"
    assert peer.say(SaslHandshakeResponse(mechanisms=["PLAIN"])) is None
    assert not peer.connection.can_send(NOW)
    [message] = peer.read()
    assert message.auth_bytes == b"\0alice\0geheim"
    assert peer.say(SaslAuthenticateResponse()) is None
    assert peer.connection.phase is Phase.READY
    assert peer.connection.can_send(NOW)
    assert peer.connection.next_deadline() == FOREVER


def test_the_versions_are_those_that_both_sides_know() -> None:
    offered = [
        ApiVersion(api_key=SaslHandshakeRequest.API_KEY, min_version=0, max_version=1),
        ApiVersion(api_key=SaslAuthenticateRequest.API_KEY, min_version=0, max_version=0),
    ]
    peer = Peer(offered=offered)
    [(header, _)] = written(peer.connection)
    assert header.request_api_version == 1
    answer(peer.connection, SaslHandshakeResponse(), 1, header.correlation_id)
    [(header, _)] = written(peer.connection)
    assert header.request_api_version == 0


@pytest.mark.parametrize(
    "offered",
    [
        [],
        [ApiVersion(api_key=SaslHandshakeRequest.API_KEY, min_version=0, max_version=1)],
        [
            ApiVersion(api_key=SaslHandshakeRequest.API_KEY, min_version=0, max_version=0),
            ApiVersion(api_key=SaslAuthenticateRequest.API_KEY, min_version=0, max_version=2),
        ],
    ],
)
def test_a_broker_without_sasl(offered: list[ApiVersion]) -> None:
    with pytest.raises(ConnectError, match="does not support SASL logins"):
        Peer(offered=offered)


def test_a_wrong_password_names_broker_mechanism_user_and_the_brokers_words() -> None:
    peer = Peer()
    peer.read()
    peer.say(SaslHandshakeResponse())
    peer.read()
    refusal = SaslAuthenticateResponse(
        error_code=error_codes.SASL_AUTHENTICATION_FAILED, error_message="Invalid username or password"
    )
    with pytest.raises(AuthenticationError) as error:
        peer.say(refusal)
    assert str(error.value) == (
        "broker 1 (kafka:9092) refused SASL PLAIN of user 'alice': Invalid username or password"
    )
    assert not error.value.retriable


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (error_codes.UNSUPPORTED_SASL_MECHANISM, AuthenticationError, "it offers: SCRAM-SHA-512, GSSAPI"),
        (error_codes.ILLEGAL_SASL_STATE, AuthenticationError, "accepts anybody"),
        (error_codes.UNKNOWN_SERVER_ERROR, AuthenticationError, "refused SASL PLAIN"),
        (error_codes.COORDINATOR_NOT_AVAILABLE, ConnectError, "refused SASL PLAIN"),
    ],
)
def test_a_refused_handshake(code: int, kind: type[Exception], told: str) -> None:
    peer = Peer()
    peer.read()
    with pytest.raises(kind, match=told):
        peer.say(SaslHandshakeResponse(error_code=code, mechanisms=["SCRAM-SHA-512", "GSSAPI"]))


def test_a_broker_that_cannot_prove_itself_is_given_up() -> None:
    peer = Peer(PasswordLogin("SCRAM-SHA-256", "alice", Secret("geheim")))
    peer.read()
    peer.say(SaslHandshakeResponse())
    peer.read()
    with pytest.raises(AuthenticationError, match="its nonce does not begin with this client's") as error:
        peer.say(SaslAuthenticateResponse(auth_bytes=b"r=mine,s=W22Z,i=4096"))
    assert "of user 'alice' with broker 1 (kafka:9092)" in str(error.value)


@pytest.mark.parametrize("step", [0, 1])
def test_bytes_that_are_no_answer(step: int) -> None:
    peer = Peer()
    for response in [SaslHandshakeResponse()][:step]:
        peer.read()
        peer.say(response)
    peer.read()
    header = next(peer.headers)
    with pytest.raises(MalformedMessageError, match="are no such answer"):
        peer.connection.receive(header.correlation_id.to_bytes(4) + b"\0", None, NOW)


def test_a_session_is_renewed_before_it_ends_and_in_the_order_of_requests() -> None:
    peer = Peer()
    peer.accept(lifetime_ms=HOUR)
    connection = peer.connection
    due = connection.next_deadline()
    assert NOW + HOUR * 0.8 < due < NOW + HOUR * 0.9
    connection.tick(due - 1)
    assert connection.can_send(due - 1)

    before, after = heartbeat(), heartbeat()
    connection.send(before, due - 1)
    connection.tick(due)
    assert not connection.can_send(due)
    assert not connection.idle
    sent = peer.read(due)
    assert [type(message).__name__ for message in sent] == ["HeartbeatRequest", "SaslHandshakeRequest"]
    assert peer.say(HeartbeatResponse(), due).request is before
    assert peer.say(SaslHandshakeResponse(), due) is None
    [message] = peer.read(due)
    assert message.auth_bytes == b"\0alice\0geheim"
    assert not connection.can_send(due)
    peer.say(SaslAuthenticateResponse(session_lifetime_ms=HOUR), due + 5)
    assert connection.phase is Phase.READY
    assert connection.can_send(due + 5)
    connection.send(after, due + 5)
    peer.read(due + 5)
    assert peer.say(HeartbeatResponse(), due + 6).request is after
    connection.tick(due + 6)
    assert connection.next_deadline() > due + HOUR * 0.8


def test_a_renewal_waits_for_a_parked_request_instead_of_timing_out_behind_it() -> None:
    peer = Peer()
    peer.accept(lifetime_ms=60_000)
    connection = peer.connection
    join = Request(JoinGroupRequest(group_id="g", protocol_type="consumer"), 1, NOW + 300_000)
    connection.send(join, NOW)
    connection.tick(NOW + 51_000)
    assert connection.overdue(NOW + 299_999) is None
    peer.read()
    assert peer.say(JoinGroupResponse(), NOW + 299_999).request is join
    assert connection.overdue(NOW + 300_001) is None


def test_a_refused_renewal_ends_the_connection() -> None:
    peer = Peer()
    peer.accept(lifetime_ms=60_000)
    waiting = heartbeat()
    later = NOW + 51_000
    peer.connection.tick(later)
    peer.read(later)
    peer.say(SaslHandshakeResponse(), later)
    peer.read(later)
    with pytest.raises(AuthenticationError) as error:
        peer.say(SaslAuthenticateResponse(error_code=error_codes.SASL_AUTHENTICATION_FAILED), later)
    peer.connection.send(waiting, later)
    [ended] = peer.connection.lose(error.value, later)
    assert isinstance(ended.error, DisconnectedError)


def test_the_shortest_session_is_not_renewed_within_a_second() -> None:
    peer = Peer()
    peer.accept(lifetime_ms=100)
    assert peer.connection.next_deadline() > NOW + 1000


class Slow:
    """A login whose credentials come later, or never."""

    mechanism = "PLAIN"
    who = "a slow one"

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.error: Exception | None = None

    def begin(self, now: int, host: str = "") -> Exchange | None:
        if self.error is not None:
            raise self.error
        return self.exchange


def test_credentials_that_come_later() -> None:
    login = Slow()
    peer = Peer(login)
    connection = peer.connection
    assert connection.phase is Phase.AUTHENTICATING
    connection.resume(NOW)
    assert peer.read() == []
    login.exchange = Plain("a", "b")
    connection.resume(NOW)
    connection.resume(NOW)
    peer.accept(lifetime_ms=60_000)
    connection.resume(NOW)
    assert peer.read() == []

    # While new ones are fetched for a renewal, requests go on.
    login.exchange = None
    due = connection.next_deadline()
    connection.tick(due)
    assert connection.can_send(due)
    login.exchange = Plain("a", "b")
    connection.resume(due + 10)
    assert not connection.can_send(due + 10)
    peer.accept(due + 10)
    assert connection.can_send(due + 10)


def test_credentials_that_never_come() -> None:
    login = Slow()
    peer = Peer(login)
    login.error = ConnectError("no endpoint")
    with pytest.raises(ConnectError, match="no endpoint"):
        peer.connection.resume(NOW)
