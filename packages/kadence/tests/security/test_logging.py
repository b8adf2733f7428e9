"""What the log says of logins: whom, by what, and where; never with what."""

from __future__ import annotations

import base64
import logging

import pytest
from tests.patience import PATIENCE
from tests.security.conftest import PASSWORD
from tests.security.test_kafka import MECHANISMS, WRONG, password, sasl, unsecured_token

from kadence import Consumer
from kadence.errors import AuthenticationError
from kadence_testing.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.secured_kafka]


def lines(caplog: pytest.LogCaptureFixture) -> str:
    """All that was logged, with what a formatter would make of exceptions and of the arguments themselves."""
    formatter = logging.Formatter("%(name)s %(message)s %(args)r")
    return "\n".join(formatter.format(record) for record in caplog.records)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_says_whom_and_never_the_password(
    secured: Kafka, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with Consumer(**sasl(secured, group_id="logged", **password(mechanism))) as consumer:
        consumer.list_topics(timeout=PATIENCE)
        caplog.records.append(logging.makeLogRecord({"msg": f"{consumer!r} {consumer._config!r}"}))
    told = lines(caplog)
    assert f"as user 'alice' by {mechanism}" in told
    assert PASSWORD not in told
    assert base64.b64encode(PASSWORD.encode()).decode() not in told


def test_a_refused_login_never_tells_what_was_tried(secured: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Consumer(**sasl(secured, **password(secret=WRONG))) as consumer:
        with pytest.raises(AuthenticationError) as error:
            consumer.list_topics(timeout=PATIENCE)
        assert WRONG not in f"{error.value!r} {error.value.__cause__!r}"
    assert WRONG not in lines(caplog)


def test_a_token_is_never_told(secured: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = unsecured_token()
    settings = sasl(
        secured, "TOKEN", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_provider=lambda: token
    )
    with Consumer(**settings) as consumer:
        consumer.list_topics(timeout=PATIENCE)
    told = lines(caplog)
    assert "OAUTHBEARER" in told
    assert token.value not in told
