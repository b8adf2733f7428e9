"""Advice about TLS and logins: the client that follows the error, or the log line, of another one gets an answer."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.patience import PATIENCE, overdue

from kadence import Admin, Broker, Token
from kadence.errors import KafkaError
from kadence.net.tokens import TokenLogin
from kadence_broker import TlsFiles

LOGIN = {"sasl_username": "me", "sasl_password": "pw"}
USERS = {"me": "pw"}


class World(NamedTuple):
    """Brokers by their listeners, and the authority of their certificates."""

    brokers: Mapping[str, str]
    ca: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    trustme = pytest.importorskip("trustme")
    where: Path = tmp_path_factory.mktemp("advice")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(where / "ca.pem"))
    names = {"here": "127.0.0.1", "elsewhere": "elsewhere.example"}
    for name, host in names.items():
        issued = authority.issue_cert(host)
        issued.private_key_and_cert_chain_pem.write_to_path(str(where / f"{name}.pem"))
    authority.issue_cert("me@example.org").private_key_and_cert_chain_pem.write_to_path(str(where / "me.pem"))
    here = TlsFiles(where / "here.pem")
    with ExitStack() as stack:
        made: dict[str, dict[str, Any]] = {
            "plain": {},
            "tls": {"tls": here},
            "elsewhere": {"tls": TlsFiles(where / "elsewhere.pem")},
            "mutual": {"tls": TlsFiles(where / "here.pem", client_ca=where / "ca.pem")},
            "sasl": {"users": USERS},
            "scram": {"users": USERS, "mechanisms": ["SCRAM-SHA-256"]},
            "sasl_tls": {"tls": here, "users": USERS},
        }
        brokers = {name: stack.enter_context(Broker(**each)) for name, each in made.items()}
        yield World(
            {name: broker.bootstrap_servers for name, broker in brokers.items()}, str(where / "ca.pem")
        )


class Row(NamedTuple):
    broker: str
    wrong: Mapping[str, Any]
    advice: str
    right: tuple[Mapping[str, Any], ...]


SSL = {"security_protocol": "SSL", "ssl_ca_location": "CA"}
ROWS = {
    "TLS in plain text": Row(
        "tls", {}, "does this listener speak TLS? Then set security.protocol to SSL or SASL_SSL", (SSL,)
    ),
    "a login in plain text": Row(
        "sasl_tls",
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},
        "set security.protocol to SSL or SASL_SSL",
        ({**SSL, "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},),
    ),
    "plain text by TLS": Row("plain", SSL, "security.protocol", ({},)),
    "an unknown authority": Row(
        "tls",
        {"security_protocol": "SSL"},
        "Set ssl.ca.location to a PEM file with the authorities to trust",
        (SSL,),
    ),
    "no certificate": Row(
        "mutual",
        SSL,
        "Set the right one in ssl.certificate.location and ssl.key.location",
        ({**SSL, "ssl_certificate_location": "ME"},),
    ),
    "no login": Row(
        "sasl",
        {},
        "does this listener require a login? Then set security.protocol to SASL_SSL or SASL_PLAINTEXT",
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},),
    ),
    "no login by TLS": Row(
        "sasl_tls",
        SSL,
        "does this listener require a login? Then set security.protocol to SASL_SSL or SASL_PLAINTEXT",
        ({**SSL, "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},),
    ),
    "a login that is not asked for": Row(
        "plain",
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **LOGIN},
        "set security.protocol to PLAINTEXT or SSL, or use another port",
        ({"security_protocol": "PLAINTEXT"},),
    ),
    "another mechanism": Row(
        "scram",
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **LOGIN},
        "it offers: SCRAM-SHA-256",
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **LOGIN},),
    ),
}


def fetched(expires_at: Any) -> TokenLogin:
    """A login that a provider has given a token which ends at this time."""
    come = threading.Event()
    login = TokenLogin(lambda: Token("t", expires_at), "client 'me'", come.set)
    login.begin(0)
    assert come.wait(PATIENCE)
    assert login.deliver(0)
    login.close()
    return login


def test_the_end_of_a_token_is_given_as_seconds_since_1970() -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(
        KafkaError,
        match=re.escape(
            "seconds since 1970 are expected (for a datetime: its timestamp()), or None if its end is unknown"
        ),
    ):
        fetched(tomorrow).begin(0)
    for right in (tomorrow.timestamp(), None):
        assert fetched(right).begin(0) is not None


def asked(world: World, broker: str, settings: Mapping[str, Any], seconds: float) -> None:
    files = {"CA": world.ca, "ME": world.ca.replace("ca.pem", "me.pem")}
    given = {name: files.get(value, value) for name, value in settings.items()}
    with Admin(bootstrap_servers=world.brokers[broker], **given) as admin:
        admin.describe_cluster(timeout=seconds)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_client_that_follows_the_advice_gets_an_answer(
    row: Row, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for seconds in (1.0, 4.0, 16.0):
        with caplog.at_level(logging.WARNING, "kadence"), pytest.raises(KafkaError) as caught:
            asked(world, row.broker, row.wrong, seconds)
        # On a busy machine a short time may be over before the broker has answered.
        if row.advice in str(caught.value) + caplog.text:
            break
    assert row.advice in str(caught.value) + caplog.text
    for settings in row.right:
        asked(world, row.broker, settings, 20.0)


def test_another_name_in_the_certificate(world: World) -> None:
    overdue(
        lambda seconds: asked(world, "elsewhere", SSL, seconds),
        KafkaError,
        match="Use a name that is in the certificate",
    )
    asked(world, "elsewhere", {**SSL, "ssl_endpoint_identification_algorithm": ""}, 20.0)
    asked(world, "tls", SSL, 20.0)
