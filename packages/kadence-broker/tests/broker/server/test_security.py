"""Clients that nobody here wrote log in to secured listeners; and what a stranger hears."""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokens
from tests.broker.server.conftest import PASSWORD, Certificates, unsecured_jwt
from tests.broker.wire import Wire, pass_time
from tests.patience import PATIENCE, until

from kadence import Admin, Consumer, Producer, Token
from kadence.connection.sasl.scram import Scram
from kadence.errors import AuthenticationError, ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.sasl_authenticate import SaslAuthenticateRequest
from kadence.protocol.sasl_handshake import SaslHandshakeRequest
from kadence_broker import Broker, TlsFiles, ValidToken
from kadence_broker.server import session
from kadence_broker.server.session import Session
from kadence_testing import FakeClock

with warnings.catch_warnings():
    # It reads its own schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

PROTOCOLS = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
KINDS = [("SSL", "")] + [(protocol, each) for protocol in PROTOCOLS[1:] for each in MECHANISMS]


@contextmanager
def secured(
    protocol: str, certificates: Certificates, clock: FakeClock | None = None, /, **config: Any
) -> Iterator[Broker]:
    with Broker(
        topics={"t": 1},
        tls=TlsFiles(certificates.server) if protocol.endswith("SSL") else None,
        users={"alice": PASSWORD} if protocol.startswith("SASL") else None,
        mechanisms=MECHANISMS if protocol.startswith("SASL") else None,
        config=config,
        clock=clock,
    ) as broker:
        assert broker.security_protocol == protocol
        yield broker


def java_settings(protocol: str, mechanism: str, certificates: Certificates) -> dict[str, Any]:
    settings: dict[str, Any] = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(certificates.ca)
    if mechanism:
        settings["sasl.mechanism"] = mechanism
    if mechanism and mechanism != "OAUTHBEARER":
        settings |= {"sasl.username": "alice", "sasl.password": PASSWORD}
    return settings


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_our_client(protocol: str, mechanism: str, certificates: Certificates) -> None:
    with secured(protocol, certificates) as broker:
        settings = java_settings(protocol, mechanism, certificates)
        settings["bootstrap.servers"] = broker.bootstrap_servers
        if mechanism == "OAUTHBEARER":
            settings["sasl.oauthbearer.token.provider"] = lambda: Token(unsecured_jwt(), time.time() + 3_600)
        with Producer(settings) as producer:
            # Large enough that an answer takes several records of TLS, and several turns of the socket.
            for _ in range(300):
                producer.send("t", bytes(10_000))
            producer.flush(PATIENCE)
        with (
            broker.faults.observe(MetadataRequest) as seen,
            Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer,
        ):
            consumer.subscribe(["t"])
            got = 0
            deadline = time.monotonic() + PATIENCE
            while got < 300:
                assert time.monotonic() < deadline
                got += len(consumer.poll(1.0))
        expected = "User:alice" if mechanism else "User:ANONYMOUS"
        assert {call.principal for call in seen.calls} == {expected}


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_confluent_kafka(protocol: str, mechanism: str, certificates: Certificates) -> None:
    with secured(protocol, certificates) as broker:
        settings = java_settings(protocol, mechanism, certificates)
        settings |= {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        if mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _config: (unsecured_jwt(), time.time() + 3_600)
        producer = confluent_kafka.Producer(settings)
        producer.produce("t", b"v")
        assert producer.flush(PATIENCE) == 0
        consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        try:
            deadline = time.monotonic() + PATIENCE
            while (message := consumer.poll(1.0)) is None:
                assert time.monotonic() < deadline
            assert message.error() is None
            assert message.value() == b"v"
        finally:
            consumer.close()


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return unsecured_jwt()


class LaterTokens(AsyncTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return unsecured_jwt()


def python_settings(
    broker: Broker, protocol: str, mechanism: str, certificates: Certificates
) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl_context"] = ssl.create_default_context(cafile=str(certificates.ca))
    if mechanism:
        settings["sasl_mechanism"] = mechanism
    if mechanism and mechanism != "OAUTHBEARER":
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    return settings


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_kafka_python(protocol: str, mechanism: str, certificates: Certificates) -> None:
    with secured(protocol, certificates) as broker:
        settings = python_settings(broker, protocol, mechanism, certificates)
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Tokens()
        producer = KafkaProducer(**settings)
        try:
            assert producer.send("t", b"v").get(PATIENCE).offset == 0
        finally:
            producer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_aiokafka(protocol: str, mechanism: str, certificates: Certificates) -> None:
    async def send(broker: Broker) -> int:
        settings = python_settings(broker, protocol, mechanism, certificates)
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = LaterTokens()
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        try:
            return int((await producer.send_and_wait("t", b"v")).offset)
        finally:
            await producer.stop()

    with secured(protocol, certificates) as broker:
        assert asyncio.run(send(broker)) == 0


def test_a_wrong_password_is_told_after_the_delay_and_the_connection_ends(certificates: Certificates) -> None:
    with secured(
        "SASL_PLAINTEXT", certificates, **{"connection.failed.authentication.delay.ms": 200}
    ) as broker:
        with Wire(broker) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == codes.NONE
            began = time.monotonic()
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
            assert time.monotonic() - began >= 0.19
            assert answer.error_code == codes.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == "Authentication failed: Invalid username or password"
            assert wire.is_closed()
        with Wire(broker) as wire:
            wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            answer = wire.call(
                SaslAuthenticateRequest(auth_bytes=Scram("SCRAM-SHA-256", "bob", "x").first()), 2
            )
            # Whether there is a bob is not told.
            assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in answer.error_message
            assert "bob" not in answer.error_message


@pytest.mark.parametrize("mechanism", MECHANISMS[1:3])
def test_scram_needs_the_password_and_proves_it_knows_it(mechanism: str, certificates: Certificates) -> None:
    with secured("SASL_PLAINTEXT", certificates) as broker:
        for password, code in ((PASSWORD, codes.NONE), ("wrong", codes.SASL_AUTHENTICATION_FAILED)):
            client = Scram(mechanism, "alice", password)
            with Wire(broker) as wire:
                wire.call(SaslHandshakeRequest(mechanism=mechanism), 1)
                said = wire.call(SaslAuthenticateRequest(auth_bytes=client.first()), 2).auth_bytes
                answer = wire.call(SaslAuthenticateRequest(auth_bytes=client.answer(said) or b""), 2)
                assert answer.error_code == code
                if code == codes.NONE:
                    assert client.answer(answer.auth_bytes) is None
                    assert wire.call(MetadataRequest(topics=[])).brokers


def test_nothing_is_served_before_the_login(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        secured("SASL_PLAINTEXT", certificates) as broker,
        caplog.at_level(logging.WARNING, "kadence.broker"),
    ):
        with Wire(broker) as wire:
            assert wire.call(
                ApiVersionsRequest(client_software_name="x", client_software_version="1")
            ).api_keys
            wire.send(MetadataRequest(topics=[]))
            assert wire.is_closed()
        assert "before the SASL handshake" in caplog.text
        with Wire(broker) as wire:
            wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert wire.call(ApiVersionsRequest()).error_code == codes.ILLEGAL_SASL_STATE
            assert wire.is_closed()
        with Wire(broker) as wire:
            answer = wire.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            assert answer.error_code == codes.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == MECHANISMS
            assert wire.is_closed()


def test_a_listener_without_sasl_says_so(certificates: Certificates) -> None:
    with Broker() as broker, Wire(broker) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == codes.ILLEGAL_SASL_STATE
        assert wire.call(SaslAuthenticateRequest(), 2).error_code == codes.ILLEGAL_SASL_STATE
        assert wire.call(MetadataRequest(topics=[])).brokers


def test_tokens_of_a_handshake_of_version_0_come_bare(certificates: Certificates) -> None:
    with secured("SASL_PLAINTEXT", certificates) as broker, Wire(broker) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == codes.NONE
        wire.send_frame(b"\0alice\0" + PASSWORD.encode())
        assert wire.receive_frame() == b""
        assert wire.call(MetadataRequest(topics=[])).brokers


@pytest.mark.parametrize(("user", "password"), [("a", "b"), ("ab", "cde")])
def test_a_bare_token_may_be_shorter_than_any_request(user: str, password: str) -> None:
    with Broker(users={user: password}) as broker, Wire(broker) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == codes.NONE
        wire.send_frame(f"\0{user}\0{password}".encode())
        assert wire.receive_frame() == b""
        assert wire.call(MetadataRequest(topics=[])).brokers
        wire.sock.sendall(struct.pack(">i", 4))
        assert wire.is_closed(), "a request is longer"


def test_a_frame_before_the_login_may_not_be_long(certificates: Certificates) -> None:
    with secured("SASL_PLAINTEXT", certificates) as broker:
        with Wire(broker) as wire:
            wire.sock.sendall(struct.pack(">i", 600_000))
            assert wire.is_closed()
        with Wire(broker) as wire:
            log_in(wire)
            assert wire.produce("t", [bytes(700_000)]).error_code == codes.NONE


def log_in(wire: Wire, user: str = "alice", mechanism: str = "PLAIN") -> Any:
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == codes.NONE
    return wire.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 2)


def test_kip_368_a_session_ends_unless_the_client_logs_in_anew(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    with (
        secured("SASL_PLAINTEXT", certificates, clock, **{"connections.max.reauth.ms": 1_500}) as broker,
        caplog.at_level(logging.WARNING, "kadence.broker"),
    ):
        with Wire(broker) as wire:
            assert log_in(wire).session_lifetime_ms == 1_500
            # Within a second of the last login, as Kafka has it.
            pass_time(broker, clock, 999)
            answer = wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert answer.error_code == codes.ILLEGAL_SASL_STATE
            pass_time(broker, clock, 1)
            assert log_in(wire).error_code == codes.NONE
            pass_time(broker, clock, 1_499)
            assert wire.call(MetadataRequest(topics=[])).brokers
            pass_time(broker, clock, 1)
            with pytest.raises(ConnectionError):
                wire.call(MetadataRequest(topics=[]))
        assert "connections.max.reauth.ms" in caplog.text


def test_our_client_logs_in_anew_by_itself(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's clock stands still, so a client that a busy machine holds up is not too late."""
    monkeypatch.setattr(session, "_SOONEST_REAUTH_MS", 0)
    with (
        secured("SASL_SSL", certificates, FakeClock(), **{"connections.max.reauth.ms": 2_000}) as broker,
        broker.faults.observe(SaslAuthenticateRequest) as logins,
        Consumer(
            java_settings("SASL_SSL", "PLAIN", certificates) | {"bootstrap.servers": broker.bootstrap_servers}
        ) as consumer,
    ):
        consumer.list_topics()
        first = len(logins)
        connections = broker._on_loop(lambda: set(broker._core.server.connections))
        deadline = time.monotonic() + PATIENCE
        while len(logins) <= first:
            assert time.monotonic() < deadline
            consumer.list_topics()
        assert broker._on_loop(lambda: set(broker._core.server.connections)) & connections


def test_mutual_tls_names_the_client(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    files = TlsFiles(certificates.server, client_ca=certificates.ca)
    with Broker(tls=files) as broker, caplog.at_level(logging.WARNING, "kadence.broker"):
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.ca),
        }
        with broker.faults.observe(MetadataRequest) as seen:
            keys = {
                "ssl.certificate.location": str(certificates.client),
                "ssl.key.location": str(certificates.client),
            }
            with Admin(settings | keys) as admin:
                admin.list_topics()
        (principal,) = {call.principal for call in seen.calls}
        assert principal.startswith("User:OU=Testing cert")
        stranger = confluent_kafka.Consumer(settings | {"log_level": 0, "group.id": "g"})
        with pytest.raises(confluent_kafka.KafkaException):
            stranger.list_topics(timeout=2.0)
        # It goes on trying.
        until(lambda: "TLS with the client failed" in caplog.text)
        stranger.close()


def test_what_is_no_tls_is_told_in_one_line(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        secured("SSL", certificates) as broker,
        caplog.at_level(logging.WARNING, "kadence.broker"),
        Wire(broker) as wire,
    ):
        wire.send(MetadataRequest(topics=[]))
        with pytest.raises(ConnectionError):
            wire._exactly(1_000)  # an alert at most, then the end
    assert [record.getMessage().count("TLS with the client failed") for record in caplog.records] == [1]


def test_a_validator_of_ones_own_judges_tokens(certificates: Certificates) -> None:
    def validate(token: str) -> ValidToken:
        if token != "good":
            raise ValueError("not this one")
        return ValidToken("bob", int(time.time() * 1_000) + 60_000)

    with Broker(token_validator=validate) as broker:
        for token, code in (("good", codes.NONE), ("bad", codes.SASL_AUTHENTICATION_FAILED)):
            with Wire(broker) as wire, broker.faults.observe(MetadataRequest) as seen:
                wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
                first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
                answer = wire.call(SaslAuthenticateRequest(auth_bytes=first), 2)
                assert answer.error_code == codes.NONE
                if code == codes.NONE:
                    assert 0 < answer.session_lifetime_ms <= 60_000
                    wire.call(MetadataRequest(topics=[]))
                    assert seen.calls[0].principal == "User:bob"
                    continue
                assert answer.auth_bytes == b'{"status":"invalid_token"}'
                answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
                assert answer.error_code == code


def oauth_refusal(wire: Wire, version: int, token: str) -> None:
    """A token is refused by the book: the client hears why, says that it read it, and the connection ends."""
    first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    assert wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version).error_code == codes.NONE
    if version == 0:
        wire.send_frame(first)
        assert wire.receive_frame() == b'{"status":"invalid_token"}'
        wire.send_frame(b"\x01")
    else:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=first), 2)
        assert answer.auth_bytes == b'{"status":"invalid_token"}'
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert answer.error_code == codes.SASL_AUTHENTICATION_FAILED
        assert "hush" not in answer.error_message
    assert wire.is_closed()


HEADER = base64.urlsafe_b64encode(b'{"alg":"none"}').decode()
CLAIMS = {
    "deep": b"[" * 100_000,
    "infinite": b'{"sub":"a","exp":1e999}',
    "not a number": b'{"sub":"a","exp":NaN}',
    "huge": b'{"sub":"a","exp":1%s}' % (b"0" * 400),
    "beyond int64": b'{"sub":"a","exp":1e300}',
    "more digits than an int may have": b'{"sub":"a","exp":1%s}' % (b"0" * 10_000),
    "issued at no time": b'{"sub":"a","exp":9e9,"iat":-1e999}',
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS)
def test_a_malformed_token_is_a_refused_login(
    claims: bytes, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    token = f"{HEADER}.{base64.urlsafe_b64encode(claims).decode()}."
    with caplog.at_level(logging.ERROR), Broker(mechanisms=["OAUTHBEARER"]) as broker, Wire(broker) as wire:
        oauth_refusal(wire, version, token)
    assert not caplog.records


@pytest.mark.parametrize("version", [0, 1])
def test_a_validator_with_errors_of_its_own_refuses_the_login(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    class ForeignError(Exception):
        """As those of libraries for JWT."""

    def validate(token: str) -> ValidToken:
        raise ForeignError(f"hush, the token was {token}")

    with Broker(token_validator=validate) as broker, Wire(broker) as wire:
        oauth_refusal(wire, version, "hush")
    (told,) = [each.getMessage() for each in caplog.records if "token_validator" in each.getMessage()]
    assert "ForeignError" in told
    assert "test_security.py" in told
    assert "hush" not in caplog.text


def test_a_token_may_be_valid_for_longer_than_time_is() -> None:
    with Broker(token_validator=lambda _: ValidToken("bob", 10**30)) as broker, Wire(broker) as wire:
        wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        first = b"n,,\x01auth=Bearer x\x01\x01"
        assert wire.call(SaslAuthenticateRequest(auth_bytes=first), 2).error_code == codes.NONE
        assert wire.call(MetadataRequest(topics=[])).brokers


def test_a_bug_in_a_login_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else it would count as busy, and no time limit would ever close it."""

    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "token", broken)
    with Broker(users={"a": "b"}) as broker, Wire(broker) as wire:
        wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        wire.send_frame(b"\0a\0b")
        assert wire.is_closed()
    assert "a bug in the broker" in caplog.text


def test_secrets_show_nowhere(certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), secured("SASL_PLAINTEXT", certificates) as broker:
        with Wire(broker) as wire:
            log_in(wire)
        server = broker._core.server
        shown = f"{broker!r} {server!r} {server.security!r} {vars(server.security)}"
    assert PASSWORD not in shown + caplog.text
    assert "hunter2" not in repr(TlsFiles("c.pem", key_password="hunter2"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanisms": ["PLAIN"]}, "needs users="),
        ({"users": {"a": "b"}, "mechanisms": ["PLANE"]}, "no SASL mechanism 'PLANE'"),
        ({"users": {"a": "b"}, "mechanisms": ["OAUTHBEARER"]}, "no mechanism that asks for a password"),
        ({"tls": TlsFiles("/nowhere.pem")}, "'/nowhere.pem' and its key cannot be used: No such file"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Broker(**options)


def test_a_login_refused_reaches_our_user(certificates: Certificates) -> None:
    with secured("SASL_PLAINTEXT", certificates) as broker:
        settings = java_settings("SASL_PLAINTEXT", "PLAIN", certificates) | {"sasl.password": "wrong"}
        with (
            Consumer(settings | {"bootstrap.servers": broker.bootstrap_servers}) as consumer,
            pytest.raises(AuthenticationError, match="Invalid username or password"),
        ):
            consumer.list_topics()
