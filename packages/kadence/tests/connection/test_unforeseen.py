"""What a parser did not foresee ends its connection, its login or its member, never the thread that reads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.connection.test_authentication import Peer
from tests.connection.test_connection import EVERYTHING, NOW, answer, ready, send, written
from tests.patience import PATIENCE

from kadence.connection.connection import BrokerConnection, Phase
from kadence.connection.sasl.oauthbearer import OAuthBearer
from kadence.connection.sasl.passwords import PasswordLogin
from kadence.consumer.assignors import embedded, sticky
from kadence.errors import AuthenticationError, DisconnectedError, MalformedMessageError
from kadence.net.arena import ArenaPool
from kadence.net.intake import Inbox, PlainIntake
from kadence.protocol.api_versions import ApiVersionsResponse
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.metadata import MetadataRequest, MetadataResponse
from kadence.protocol.registry import encode_request
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kadence.protocol.sasl_handshake import SaslHandshakeResponse
from kadence.security import Secret
from kadence.wire import WireError
from kadence_broker import Broker
from kadence_broker.coordinator.consumer.embedded import BadMetadataError, subscription

UNFORESEEN: list[Exception] = [
    RecursionError("too deep"),
    MemoryError(),
    KeyError("k"),
    UnicodeDecodeError("utf-8", b"geheim", 0, 1, "no"),
    UnicodeEncodeError("utf-8", "geheim", 0, 1, "no"),
]
each_error = pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)


def raising(error: Exception) -> Callable[..., Any]:
    def read(*_: object, **__: object) -> Any:
        raise error

    return read


@each_error
def test_in_an_answer_it_ends_the_connection_and_its_request(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = ready()
    request = send(connection, MetadataRequest(topics=None))
    [(header, _)] = written(connection)
    monkeypatch.setattr(MetadataResponse, "read", raising(error))
    with pytest.raises(
        MalformedMessageError, match=rf"answered Metadata .* {type(error).__name__}"
    ) as raised:
        answer(connection, MetadataResponse(), header.request_api_version, header.correlation_id)
    [ended] = connection.lose(raised.value, NOW)
    assert (ended.request, ended.error) == (request, raised.value)


@each_error
def test_in_the_first_answer(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = BrokerConnection("broker 1 (kafka:9092)", client_id="me", request_timeout_ms=30_000)
    connection.open(NOW)
    [(header, _)] = written(connection)
    monkeypatch.setattr(ApiVersionsResponse, "read", raising(error))
    with pytest.raises(MalformedMessageError, match="answered ApiVersions"):
        answer(
            connection,
            ApiVersionsResponse(api_keys=EVERYTHING),
            header.request_api_version,
            header.correlation_id,
        )


@each_error
@pytest.mark.parametrize("response", [SaslHandshakeResponse, SaslAuthenticateResponse])
def test_in_the_answers_of_a_login(
    error: Exception, response: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer()
    peer.read()
    if response is SaslAuthenticateResponse:
        peer.say(SaslHandshakeResponse(mechanisms=["PLAIN"]))
        peer.read()
    monkeypatch.setattr(response, "read", raising(error))
    with pytest.raises(MalformedMessageError, match="answered Sasl"):
        peer.say(response())


class Odd:
    """An exchange that raises at one of its steps, and a login to it."""

    mechanism = "ODD"
    who = "user 'alice'"

    def __init__(self, step: str, error: Exception) -> None:
        self.step = step
        self.error = error

    def _at(self, step: str) -> bytes:
        if step == self.step:
            raise self.error
        return b"words"

    def begin(self, now: int, host: str = "") -> Odd:
        self._at("begin")
        return self

    def first(self) -> bytes:
        return self._at("first")

    def answer(self, challenge: bytes) -> bytes | None:
        return self._at("answer")


@each_error
@pytest.mark.parametrize("step", ["begin", "first", "answer"])
def test_whatever_an_exchange_raises_is_a_refused_login(step: str, error: Exception) -> None:
    def exchange() -> None:
        peer = Peer(Odd(step, error))
        peer.read()
        peer.say(SaslHandshakeResponse(mechanisms=["ODD"]))
        peer.read()
        peer.say(SaslAuthenticateResponse())

    with pytest.raises(AuthenticationError) as raised:
        exchange()
    assert str(raised.value) == (
        f"SASL ODD of user 'alice' with broker 1 (kafka:9092) failed: {type(error).__name__}"
    )
    assert "geheim" not in repr(raised.value.__cause__)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_password_that_cannot_be_encoded_is_a_refused_login_without_it(mechanism: str) -> None:
    def exchange() -> None:
        peer = Peer(PasswordLogin(mechanism, "alice", Secret("gehe\udc80im")))
        peer.read()
        peer.say(SaslHandshakeResponse(mechanisms=[mechanism]))

    with pytest.raises(AuthenticationError, match=r"UnicodeEncodeError$") as raised:
        exchange()
    assert raised.value.__cause__ is None


class TokenLogin:
    """With one token."""

    mechanism = "OAUTHBEARER"
    who = "the token's owner"

    def begin(self, now: int, host: str = "") -> OAuthBearer:
        return OAuthBearer("t", {})


def with_token() -> Peer:
    """A broker that was shown it."""
    peer = Peer(TokenLogin())
    peer.read()
    peer.say(SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
    peer.read()
    return peer


def test_an_answer_to_a_token_that_is_nested_without_end() -> None:
    peer = with_token()
    with pytest.raises(AuthenticationError, match="not one of OAUTHBEARER's"):
        peer.say(SaslAuthenticateResponse(auth_bytes=b"[" * 5_000 + b"]" * 5_000))


def test_a_long_challenge_is_refused_before_it_is_parsed() -> None:
    peer = with_token()
    with pytest.raises(AuthenticationError, match="a message of 20015 bytes; at most 16384"):
        peer.say(SaslAuthenticateResponse(auth_bytes=b'{"status": "%s"}' % (b"x" * 20_001)))


@pytest.mark.parametrize("second", [b'{"status": "invalid_token"}', b""])
def test_after_one_refusal_anything_but_the_end_is_an_error(second: bytes) -> None:
    peer = with_token()
    peer.say(SaslAuthenticateResponse(auth_bytes=b'{"status": "invalid_token"}'))
    [message] = peer.read()
    assert isinstance(message, SaslAuthenticateRequest)
    assert message.auth_bytes == b"\x01"
    with pytest.raises(AuthenticationError, match="has refused the token"):
        peer.say(SaslAuthenticateResponse(auth_bytes=second))
    assert peer.connection.phase is Phase.AUTHENTICATING


def test_an_exchange_that_never_ends_is_given_up() -> None:
    peer = Peer(Odd("never", KeyError()))
    peer.read()
    peer.say(SaslHandshakeResponse(mechanisms=["ODD"]))
    for _ in range(16):
        peer.read()
        peer.say(SaslAuthenticateResponse())
    peer.read()
    with pytest.raises(AuthenticationError, match="does not end it after 16 messages"):
        peer.say(SaslAuthenticateResponse())


def test_a_frame_for_which_there_is_no_memory_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [(1_000_000).to_bytes(4)]

    def read(into: memoryview) -> int | None:
        if not sent:
            return None
        data = sent.pop()
        into[: len(data)] = data
        return len(data)

    intake = PlainIntake(read)
    intake.advance()
    inbox = Inbox(intake, ArenaPool(0), lambda: None, 1 << 30, "broker 1")
    monkeypatch.setattr("kadence.net.intake.fresh_memory", raising(MemoryError()))
    with pytest.raises(DisconnectedError, match="a message of 1000000 bytes, for which there is no memory"):
        inbox.next_frame()


@each_error
def test_what_members_of_a_group_say_to_each_other(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    for message in (ConsumerProtocolSubscription, ConsumerProtocolAssignment):
        monkeypatch.setattr(message, "read", raising(error))
    with pytest.raises(WireError, match=type(error).__name__):
        embedded.decode_subscription(b"\0\0")
    with pytest.raises(WireError, match=type(error).__name__):
        embedded.decode_assignment(b"\0\0")
    with pytest.raises(BadMetadataError, match=type(error).__name__):
        subscription(b"\0\0")
    monkeypatch.setattr(sticky, "Reader", raising(error))
    assert sticky._decode(b"\0\0\0\1") == ([], -1)


@each_error
def test_in_a_request_it_ends_that_connection_of_the_embedded_broker(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        frame = encode_request(MetadataRequest(topics=None), 12, 1, "c")
        with monkeypatch.context() as patched, socket.create_connection((host, int(port)), PATIENCE) as bad:
            patched.setattr(MetadataRequest, "read", raising(error))
            bad.sendall(len(frame).to_bytes(4) + frame)
            assert bad.recv(1) == b""
        with socket.create_connection((host, int(port)), PATIENCE) as good:
            good.sendall(len(frame).to_bytes(4) + frame)
            assert good.recv(4)
