"""One real Kafka with every kind of listener, for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import ON_CI
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.net.conftest import Certificates, certificates

from kadence.errors import MissingDependencyError
from kadence_testing.kafka import Kafka

__all__ = ["ODD_PASSWORD", "PASSWORD", "certificates", "listener_identity"]

PASSWORD = "correct-horse"
ODD_PASSWORD = "b=ü ﬁ 1"
"""SASLprep would make another one of it; Kafka does not."""

_MODULES = "org.apache.kafka.common.security"
_PLAIN = f'{_MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
_TOKEN = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
_VALIDATOR = f"{_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def _pkcs8(pem: bytes) -> str:
    """The key in the one form that Java reads from PEM."""
    key = serialization.load_pem_private_key(pem, None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.private_bytes(*form).decode()


def _certificates(pem: str) -> str:
    return pem[pem.index("-----BEGIN CERTIFICATE") :]


def listener_identity(listener: str, certificates: Certificates) -> dict[str, str]:
    """Kafka's properties for a listener with TLS."""
    return {
        f"listener.name.{listener}.ssl.keystore.type": "PEM",
        f"listener.name.{listener}.ssl.keystore.key": _pkcs8(certificates.server.read_bytes()),
        f"listener.name.{listener}.ssl.keystore.certificate.chain": _certificates(
            certificates.server.read_text()
        ),
    }


@pytest.fixture(scope="package")
def secured(certificates: Certificates) -> Iterator[Kafka]:
    """Listeners SASL (PLAIN, SCRAM), SECURE (the same over TLS), BRIEF (with sessions of 2 s), TOKEN (OAUTHBEARER)."""
    properties = {
        "listener.name.brief.connections.max.reauth.ms": "2000",
        "listener.name.token.connections.max.reauth.ms": "3600000",
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": _TOKEN,
        "listener.name.token.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
        **listener_identity("secure", certificates),
    }
    for name in ("sasl", "secure", "brief"):
        properties[f"listener.name.{name}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        properties[f"listener.name.{name}.plain.sasl.jaas.config"] = _PLAIN
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = _SCRAM
    node = Kafka(
        properties,
        listeners={
            "SASL": "SASL_PLAINTEXT",
            "SECURE": "SASL_SSL",
            "BRIEF": "SASL_PLAINTEXT",
            "TOKEN": "SASL_PLAINTEXT",
        },
        scram_users=(
            f"SCRAM-SHA-256=[name=alice,password={PASSWORD}]",
            f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]",
            f"SCRAM-SHA-512=[name=o=d,password={ODD_PASSWORD}]",
        ),
    )
    try:
        node.start()
    except MissingDependencyError as error:
        if ON_CI:
            pytest.fail(f"real Kafka is required on CI: {error}")
        pytest.skip(f"no real Kafka: {error}")
    yield node
    node.stop()
