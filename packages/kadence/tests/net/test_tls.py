"""TLS: certificates are checked, both sides may have them, and mistakes are told apart."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.net.conftest import Certificates, Connect
from tests.net.servers import accept, answering, frame, serve

from kadence.config import AdminConfig, ConsumerConfig
from kadence.connection.request import ConnectionPurpose
from kadence.errors import AuthenticationError, ConfigError, ConnectError
from kadence.net import ConnectionConfig, drain, openssl
from kadence.net.dial import tell
from kadence.net.sockets import stream_of
from kadence.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.metadata import MetadataRequest, MetadataResponse
from kadence.types import Node

METADATA = MetadataRequest(topics=None)
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def config(address: tuple[str, int], **keys: Any) -> ConnectionConfig:
    parsed = AdminConfig.parse(
        {"bootstrap.servers": f"{address[0]}:{address[1]}", "security.protocol": "SSL"}, **keys
    )
    return ConnectionConfig.of(parsed)


@pytest.fixture(params=["compiled", "mixed", "python"])
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways to read TLS; mixed: the compiled poller, where OpenSSL's object cannot be had."""
    if request.param != "python" and not openssl.BOUND:
        pytest.skip("the compiled way is not available here")
    if request.param != "compiled":
        monkeypatch.setattr(openssl, "BOUND", False)
    if request.param == "python":
        monkeypatch.setattr(drain, "COMPILED", False)
    return str(request.param)


def test_requests_and_answers(connect: Connect, certificates: Certificates, streams: str) -> None:
    behaviour = answering(MetadataResponse(cluster_id="secret"), context=certificates.server_context())
    with serve(behaviour) as address:
        driver = connect(address, ssl_context=certificates.client_context())
        assert driver.ask(METADATA).response.cluster_id == "secret"


@pytest.mark.parametrize("size", [0, 16_384, 3_000_000])
def test_long_answers_lie_in_arenas(
    connect: Connect, certificates: Certificates, streams: str, size: int
) -> None:
    data = PartitionData(partition_index=0, high_watermark=9, records=bytes(i % 251 for i in range(size)))
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[data])])
    behaviour = answering(response, response, HeartbeatResponse(), context=certificates.server_context())
    with serve(behaviour) as (host, port):
        driver = connect((host, port), ssl_context=certificates.client_context())
        driver.client.set_nodes([Node(1, host, port)])
        for _ in range(2):
            done = driver.ask(FetchRequest(), node_id=1, purpose=ConnectionPurpose.FETCH)
            assert done.loan is not None
            assert bytes(done.response.responses[0].partitions[0].records) == data.records
            done.loan.release()
        assert driver.ask(HEARTBEAT, node_id=1, purpose=ConnectionPurpose.FETCH).error is None


def test_many_answers_in_one_piece(connect: Connect, certificates: Certificates, streams: str) -> None:
    """They lie inside OpenSSL after the first read, where no selector sees them."""
    count = 100

    def behaviour(listener: socket.socket) -> None:
        with accept(listener, certificates.server_context()) as peer:
            peer.greet()
            headers = [peer.read()[0] for _ in range(count)]
            peer.sock.sendall(b"".join(frame(header, HeartbeatResponse()) for header in headers))
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port), ssl_context=certificates.client_context())
        driver.client.set_nodes([Node(1, host, port)])
        requests = [driver.send(HEARTBEAT, node_id=1) for _ in range(count)]
        assert [item.request for item in driver.complete(count)] == requests


def test_configuration_by_pem_files(connect: Connect, certificates: Certificates) -> None:
    behaviour = answering(MetadataResponse(), context=certificates.server_context(wants_client=True))
    with serve(behaviour) as address:
        made = config(
            address,
            ssl_ca_location=str(certificates.ca),
            ssl_certificate_location=str(certificates.client),
            ssl_key_location=str(certificates.client),
        )
        assert connect(address, ssl_context=made.ssl_context).ask(METADATA).error is None


def refusing(certificates: Certificates) -> Any:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener, certificates.server_context()) as peer:
            peer.read()

    return behaviour


def test_an_unknown_authority_is_refused(connect: Connect, certificates: Certificates) -> None:
    with serve(refusing(certificates)) as address:
        made = config(address)
        error = connect(address, ssl_context=made.ssl_context).ask(METADATA).error
    assert isinstance(error, AuthenticationError)
    assert "Set ssl.ca.location to a PEM file with the authorities to trust" in str(error)
    assert f"{address[0]}:{address[1]}" in str(error)


@pytest.mark.parametrize("days", [(-2, -1), (1, 2)], ids=["expired", "not yet"])
def test_a_certificate_out_of_its_time_is_not_blamed_on_the_authorities(
    connect: Connect, tmp_path: Path, days: tuple[int, int]
) -> None:
    trustme = pytest.importorskip("trustme")
    now = datetime.now(UTC)
    authority = trustme.CA()
    ca, server = tmp_path / "ca.pem", tmp_path / "server.pem"
    authority.cert_pem.write_to_path(str(ca))
    begins, ends = (now + timedelta(days=each) for each in days)
    authority.issue_cert(
        "127.0.0.1", not_before=begins, not_after=ends
    ).private_key_and_cert_chain_pem.write_to_path(str(server))
    with serve(refusing(Certificates(ca, server, server))) as address:
        made = config(address, ssl_ca_location=str(ca))
        error = connect(address, ssl_context=made.ssl_context).ask(METADATA).error
    assert isinstance(error, AuthenticationError)
    assert "a certificate that is valid now" in str(error)
    assert "ssl.ca.location" not in str(error)


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_private_key_that_all_users_can_read_is_warned_of(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(certificates.client.read_bytes())
    key.chmod(mode)
    made = config(("localhost", 1), ssl_ca_location=str(certificates.ca), ssl_certificate_location=str(key))
    for _ in range(2):
        assert made.ssl_context is not None
    said = f"every user of this machine can read {key}, which holds a private key"
    assert caplog.text.count(said) == (mode == 0o644)


def test_a_missing_client_certificate_is_an_authentication_error(
    connect: Connect, certificates: Certificates, streams: str
) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener, certificates.server_context(wants_client=True)) as peer:
            peer.read()

    with serve(behaviour) as (host, port):
        driver = connect((host, port), ssl_context=certificates.client_context())
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert isinstance(error, AuthenticationError)
    assert "refused this client's certificate" in str(error)
    assert "ssl.certificate.location" in str(error)


def test_a_certificate_of_another_host_is_refused_unless_that_is_switched_off(
    connect: Connect, certificates: Certificates
) -> None:
    def lookup(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)]

    with serve(refusing(certificates)) as address:
        made = config(("kafka.example", 9092), ssl_ca_location=str(certificates.ca))
        driver = connect(("kafka.example", 9092), ssl_context=made.ssl_context, lookup=lookup)
        error = driver.ask(METADATA).error
    assert isinstance(error, AuthenticationError)
    assert "Use a name that is in the certificate" in str(error)
    assert "ssl.endpoint.identification.algorithm" not in str(error), "nobody is told to switch the check off"

    with serve(answering(MetadataResponse(), context=certificates.server_context())) as address:
        made = config(
            ("kafka.example", 9092),
            ssl_ca_location=str(certificates.ca),
            ssl_endpoint_identification_algorithm="",
        )
        driver = connect(("kafka.example", 9092), ssl_context=made.ssl_context, lookup=lookup)
        assert driver.ask(METADATA).error is None


@pytest.mark.skipif(not openssl.BOUND, reason="this OpenSSL is not reached by the compiled half")
def test_openssl_is_not_called_directly_where_it_calls_python(
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A KeyUpdate that the native thread answers would wait for the interpreter, with the connection's lock held."""
    # `Connection` has a session of the compiled half if, and only if, the native thread may write on it.
    assert _session(certificates, certificates.client_context()) is not None
    watching = certificates.client_context()
    watching._msg_callback = lambda *_: None  # type: ignore[attr-defined]
    assert _session(certificates, watching) is None
    caplog.clear()
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys.log"))
    logging_keys = config(("localhost", 9092), ssl_ca_location=str(certificates.ca)).ssl_context
    assert logging_keys is not None
    assert "keys.log gets the keys of every TLS connection" in caplog.text
    assert _session(certificates, logging_keys) is None


def _session(certificates: Certificates, context: ssl.SSLContext) -> object:
    """What the compiled half makes of a connection with this context."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = certificates.server_context()
        accepting = threading.Thread(target=_shake_hands, args=(server, theirs))
        accepting.start()
        with context.wrap_socket(ours, server_hostname="localhost") as sock:
            accepting.join()
            session = stream_of(sock).session
            sock.detach()
    return session


def _shake_hands(server: ssl.SSLContext, sock: socket.socket) -> None:
    server.wrap_socket(sock, server_side=True).detach()


def test_tls_spoken_to_a_plaintext_listener(connect: Connect, certificates: Certificates) -> None:
    def behaviour(listener: socket.socket) -> None:
        with accept(listener) as peer:
            # A broker reads the ClientHello as an absurd length and closes.
            peer.sock.recv(5)

    with serve(behaviour) as (host, port):
        driver = connect((host, port), ssl_context=certificates.client_context())
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert isinstance(error, ConnectError)
    assert f"broker 1 ({host}:{port}): TLS handshake: " in str(error)


def test_what_a_peer_without_tls_may_mean() -> None:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    # security.protocol may be SSL or SASL_SSL.
    assert tell(error) == "wrong version number (does this listener speak TLS? security.protocol asks for it)"


def test_plaintext_spoken_to_a_tls_listener(connect: Connect, certificates: Certificates) -> None:
    with serve(refusing(certificates)) as (host, port):
        driver = connect((host, port))
        driver.client.set_nodes([Node(1, host, port)])
        error = driver.ask(HEARTBEAT, node_id=1).error
    assert isinstance(error, ConnectError)
    assert f"broker 1 ({host}:{port}): ApiVersions: " in str(error)
    assert "(does this listener speak TLS? Then set security.protocol to SSL or SASL_SSL)" in str(error)


def test_pem_files_that_cannot_be_used(tmp_path: Path, certificates: Certificates) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    with pytest.raises(
        ConfigError, match=r"ssl\.ca\.location: .*missing\.pem.* of authorities: No such file or directory"
    ):
        config(("k", 1), ssl_ca_location=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location: .*junk\.pem"):
        config(("k", 1), ssl_ca_location=str(junk))
    with pytest.raises(ConfigError, match=r"ssl\.certificate\.location .*junk\.pem"):
        config(("k", 1), ssl_certificate_location=str(junk))


def test_plaintext_configuration_has_no_context() -> None:
    made = ConnectionConfig.of(AdminConfig.parse({"bootstrap.servers": "a:1,[::1]:2"}, client_id="me"))
    assert made.ssl_context is None
    assert made.bootstrap == (("a", 1), ("::1", 2))
    assert made.client_id == "me"
    assert made.software_version
    assert made.max_frame_bytes == 268_435_456


def test_frames_may_be_as_long_as_the_consumer_asks_for() -> None:
    keys = {"bootstrap.servers": "a:1", "fetch.max.bytes": 500_000_000, "buffer.memory": 8_000_000}
    made = ConnectionConfig.of(ConsumerConfig.parse(keys))
    assert made.max_frame_bytes > 500_000_000
    assert made.spare_arena_bytes == 8_000_000
