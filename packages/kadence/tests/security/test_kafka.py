"""Authentication with real Apache Kafka, by every mechanism, and what it says when it refuses."""

from __future__ import annotations

import base64
import json
import time
import traceback
from typing import Any

import pytest
from tests.net.conftest import Certificates
from tests.net.test_endpoint import endpoint
from tests.patience import PATIENCE, overdue, until
from tests.security.conftest import ODD_PASSWORD, PASSWORD

from kadence import Admin, Consumer, Producer, Token, TopicPartition
from kadence.errors import AuthenticationError, KafkaTimeoutError
from kadence_testing.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.secured_kafka]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WRONG = "battery-staple"


def sasl(kafka: Kafka, listener: str = "SASL", **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses[listener],
        "security_protocol": "SASL_SSL" if listener == "SECURE" else "SASL_PLAINTEXT",
        **settings,
    }


def password(mechanism: str = "PLAIN", user: str = "alice", secret: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": secret}


def unsecured_token(seconds: float = 3600, subject: str = "alice") -> Token:
    def part(claims: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    now = time.time()
    claims: dict[str, object] = {"sub": subject, "iat": now, "exp": now + seconds}
    return Token(f"{part({'alg': 'none'})}.{part(claims)}.", now + seconds)


def works(settings: dict[str, Any]) -> bool:
    with Admin(**settings) as admin:
        return bool(admin.describe_cluster(timeout=PATIENCE).cluster_id)


def measured(consumer: Consumer, metric: str) -> float:
    return next(value for name, value in consumer.metrics().items() if name.name == metric)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "SECURE"])
def test_passwords(secured: Kafka, certificates: Certificates, mechanism: str, listener: str) -> None:
    trust = {"ssl_ca_location": str(certificates.ca)} if listener == "SECURE" else {}
    assert works(sasl(secured, listener, **password(mechanism), **trust))


def test_names_and_passwords_are_taken_as_they_are(secured: Kafka) -> None:
    assert works(sasl(secured, **password("SCRAM-SHA-512", "o=d", ODD_PASSWORD)))


def test_jaas_as_java_has_it(secured: Kafka) -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{PASSWORD}";'
    )
    assert works(sasl(secured, sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas))


def test_tokens_of_a_provider(secured: Kafka) -> None:
    asked = []

    def provider() -> Token:
        asked.append(1)
        return unsecured_token()

    settings = sasl(secured, "TOKEN", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=provider)
    with Producer(**settings) as producer:
        producer.send("tokens", b"v", partition=0).result(PATIENCE)
    before = len(asked)
    with Consumer(**settings, auto_offset_reset="earliest", group_id="tokens") as consumer:
        consumer.subscribe(["tokens"])
        deadline = time.monotonic() + PATIENCE
        while not (records := consumer.poll(timeout=1)):
            assert time.monotonic() < deadline
    assert records
    # Lanes are connections of their own; all of them use one token.
    assert len(asked) == before + 1


def test_tokens_of_an_endpoint(secured: Kafka) -> None:
    body = json.dumps({"access_token": unsecured_token().value, "expires_in": 3600}).encode()
    with endpoint(body) as (url, asked):
        assert works(
            sasl(
                secured,
                "TOKEN",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=url,
                sasl_oauthbearer_client_credentials_client_id="me",
                sasl_oauthbearer_client_credentials_client_secret=PASSWORD,
            )
        )
    assert len(asked) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_b6_a_wrong_password_is_raised_by_poll_and_the_next_poll_tries_again(
    secured: Kafka, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    settings = sasl(secured, **password(mechanism, secret=WRONG))
    with Consumer(**settings, group_id=None) as consumer:
        consumer.assign([TopicPartition("tokens", 0)])
        for _ in range(2):
            with pytest.raises(AuthenticationError) as error:
                consumer.poll(timeout=PATIENCE)
            text = str(error.value)
            assert secured.addresses["SASL"] in text
            assert f"refused SASL {mechanism} of user 'alice': Authentication failed" in text
        assert WRONG not in repr(consumer)
        assert measured(consumer, "failed-authentication-total") >= 2
        assert measured(consumer, "successful-authentication-total") == 0
    whole = "".join(traceback.format_exception(error.value))
    assert WRONG not in whole
    assert WRONG not in caplog.text


def test_b6_in_a_group_and_for_the_other_clients(secured: Kafka) -> None:
    settings = sasl(secured, **password(secret=WRONG))
    with Consumer(**settings, group_id="wrong") as consumer:
        consumer.subscribe(["tokens"])
        for _ in range(2):
            with pytest.raises(AuthenticationError):
                consumer.poll(timeout=PATIENCE)
        with pytest.raises(AuthenticationError):
            consumer.list_topics(timeout=PATIENCE)
    with Admin(**settings) as admin, pytest.raises(AuthenticationError):
        admin.describe_cluster(timeout=PATIENCE)
    with Producer(**settings) as producer, pytest.raises(AuthenticationError):
        producer.send("tokens", b"v").result(PATIENCE)


def test_a_token_that_the_broker_does_not_take(secured: Kafka) -> None:
    settings = sasl(
        secured,
        "TOKEN",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_provider=lambda: unsecured_token(seconds=-600),
    )
    with Admin(**settings) as admin, pytest.raises(AuthenticationError, match="invalid_token"):
        admin.describe_cluster(timeout=PATIENCE)


def test_a_mechanism_that_the_listener_lacks(secured: Kafka) -> None:
    settings = sasl(secured, "TOKEN", **password("SCRAM-SHA-256"))
    with Admin(**settings) as admin, pytest.raises(AuthenticationError, match="it offers: OAUTHBEARER"):
        admin.describe_cluster(timeout=PATIENCE)


def test_sasl_spoken_to_a_listener_without_it(secured: Kafka) -> None:
    settings = sasl(secured, "PLAINTEXT", **password())
    with Admin(**settings) as admin, pytest.raises(AuthenticationError, match="accepts anybody"):
        admin.describe_cluster(timeout=PATIENCE)


def test_sessions_are_renewed_without_losing_the_connection(
    secured: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker ends a session after 2 s, or with its token, and hangs up on whoever speaks later without another."""
    given = []

    def provider() -> Token:
        given.append(unsecured_token(seconds=3))
        return given[-1]

    settings = sasl(secured, "BRIEF", **password("SCRAM-SHA-512"))
    by_token = sasl(secured, "TOKEN", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=provider)
    sent, seen = 0, 0
    caplog.set_level("DEBUG", logger="kadence.net")
    with (
        Producer(**by_token) as producer,
        Consumer(**settings, group_id="brief", auto_offset_reset="earliest") as consumer,
    ):
        producer.send("brief", b"v", partition=0).result(PATIENCE)
        consumer.subscribe(["brief"])
        while not consumer.poll(timeout=1):
            pass

        def no_connection_opened() -> bool:
            """Through two sessions. A machine that is busy for the last tenth of one may lose a connection."""
            nonlocal sent, seen
            caplog.clear()
            before = measured(consumer, "successful-reauthentication-total")
            while measured(consumer, "successful-reauthentication-total") < before + 2:
                producer.send("brief", b"v", partition=0).result(PATIENCE)
                sent += 1
                seen += len(consumer.poll(timeout=0.2))
            return not [record for record in caplog.records if "connect" in record.getMessage()]

        until(no_connection_opened, what=lambda: caplog.text, every=0)
        while seen < sent:
            seen += len(consumer.poll(timeout=1))
        assert measured(consumer, "reauthentication-latency-max") >= 0
        until(lambda: len(given) > 1)
    assert seen == sent


def test_a_client_without_sasl_is_told_that_the_listener_may_want_it(
    secured: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    with Admin(bootstrap_servers=secured.addresses["SASL"]) as admin:
        overdue(
            lambda seconds: admin.describe_cluster(timeout=seconds),
            KafkaTimeoutError,
            match="does this listener require a login",
        )
