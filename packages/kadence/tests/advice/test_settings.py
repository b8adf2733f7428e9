"""Advice in errors about settings: each row is a mistake, words of its error, and settings that follow the advice."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest

from kadence import Assignor, Consumer, Interceptor, Producer, Token
from kadence.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, keys
from kadence.consumer.assignors import RangeAssignor
from kadence.errors import ConfigError
from kadence.idioms import advice as advice_on
from kadence.security.login import credentials
from kadence.security.stores import identity, trust

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='me' password='s';"
TLS = {"security.protocol": "SSL"}
STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "store.pem"}
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab='k' principal='me@A'"

TICKETS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
}
PASSWORD = {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "s"}
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/t",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
}


class Mine(RangeAssignor):
    name = "mine"


def token() -> Token:
    return Token("t", None)


class Row(NamedTuple):
    config: type[ClientConfig]
    wrong: Mapping[str, Any]
    advice: str
    right: tuple[Mapping[str, Any], ...]


ROWS = {
    "an empty group": Row(
        ConsumerConfig,
        {"group.id": ""},
        "give it a name, or leave it out to use assign()",
        ({"group.id": "g"}, {}),
    ),
    "an empty transactional id": Row(
        ProducerConfig,
        {"transactional.id": ""},
        "give it a name, or leave it out",
        ({"transactional.id": "t"}, {}),
    ),
    "transactions without idempotence": Row(
        ProducerConfig,
        {"transactional.id": "t", "enable.idempotence": False},
        "needs enable.idempotence=true and acks=all",
        ({"transactional.id": "t", "enable.idempotence": True, "acks": "all"},),
    ),
    "a duration": Row(
        ConsumerConfig,
        {"auto.offset.reset": "by_duration:1h"},
        "write for instance by_duration:PT1H (an hour), PT30M, P7D or P1DT12H",
        tuple({"auto.offset.reset": f"by_duration:{each}"} for each in ("PT1H", "PT30M", "P7D", "P1DT12H")),
    ),
    "a session timeout with KIP-848": Row(
        ConsumerConfig,
        {"group.protocol": "consumer", "session.timeout.ms": 6000},
        "leave it out (group.consumer.session.timeout.ms on the broker), or set group.protocol=classic",
        ({"group.protocol": "consumer"}, {"group.protocol": "classic", "session.timeout.ms": 6000}),
    ),
    "an assignor with KIP-848": Row(
        ConsumerConfig,
        {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
        "name a broker's assignor in group.remote.assignor, or set group.protocol=classic",
        (
            {"group.protocol": "consumer", "group.remote.assignor": "range"},
            {"group.protocol": "classic", "partition.assignment.strategy": "range"},
        ),
    ),
    "the class of an assignor": Row(
        ConsumerConfig,
        {"partition.assignment.strategy": Mine},
        "give an object: Mine()",
        ({"partition.assignment.strategy": Mine()},),
    ),
    "an unknown assignor": Row(
        ConsumerConfig,
        {"partition.assignment.strategy": "mine"},
        "is given as an object, see kadence.Assignor",
        ({"partition.assignment.strategy": Mine()},),
    ),
    "no assignor": Row(
        ConsumerConfig,
        {"partition.assignment.strategy": object()},
        "it needs a name and assign(), see kadence.Assignor",
        (
            {
                "partition.assignment.strategy": type(
                    "Own", (Assignor,), {"name": "own", "assign": lambda *_: {}}
                )()
            },
        ),
    ),
    "no interceptor": Row(
        ConsumerConfig,
        {"interceptors": [object()]},
        "it needs on_consume(), on_commit() or close(), see kadence.Interceptor",
        (
            {"interceptors": [Interceptor()]},
            *({"interceptors": [type("I", (), {n: print})]} for n in ("on_consume", "on_commit", "close")),
        ),
    ),
    "half of the dead letters": Row(
        ConsumerConfig,
        {"deserialization.errors": "dead-letter"},
        "deserialization.errors=dead-letter and dead.letter.topic belong together",
        (
            {
                "deserialization.errors": "dead-letter",
                "dead.letter.topic": "bad",
                "value.deserializer": "string",
            },
        ),
    ),
    "errors without a deserialiser": Row(
        ConsumerConfig,
        {"deserialization.errors": "skip"},
        "needs key.deserializer or value.deserializer",
        tuple(
            {"deserialization.errors": "skip", f"{part}.deserializer": "string"} for part in ("key", "value")
        ),
    ),
    "two ways to choose partitions": Row(
        ProducerConfig,
        {"partitioner": "consistent_random", "partitioner.ignore.keys": True},
        "give one of them",
        ({"partitioner": "consistent_random"}, {"partitioner.ignore.keys": True}),
    ),
    "too little time to deliver": Row(
        ProducerConfig,
        {"delivery.timeout.ms": 2000, "request.timeout.ms": 3000},
        "raise delivery.timeout.ms, or lower request.timeout.ms",
        (
            {"delivery.timeout.ms": 4000, "request.timeout.ms": 3000},
            {"delivery.timeout.ms": 2000, "request.timeout.ms": 1000},
        ),
    ),
    "an unknown serialiser": Row(
        ProducerConfig,
        {"value.serializer": "strings"},
        "or one of ",
        ({"value.serializer": "string"}, {"value.serializer": str.encode}),
    ),
    "an unknown deserialiser": Row(
        ConsumerConfig,
        {"value.deserializer": "strings"},
        "or one of ",
        ({"value.deserializer": "string"}, {"value.deserializer": bytes.decode}),
    ),
    "a misspelt key": Row(
        AdminConfig, {"client.idd": "a"}, "did you mean 'client.id'?", ({"client.id": "a"},)
    ),
    "SASL that has no effect": Row(
        AdminConfig,
        {"sasl.username": "u", "sasl.password": "p", "sasl.mechanism": "SCRAM-SHA-256"},
        "set it to SASL_SSL (or SASL_PLAINTEXT, without encryption)",
        tuple(
            {
                "security.protocol": each,
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "u",
                "sasl.password": "p",
            }
            for each in ("SASL_SSL", "SASL_PLAINTEXT")
        ),
    ),
    "a handler of Java's": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "com.example.Mine",
        },
        "give sasl.oauthbearer.token.provider instead, a callable that returns kadence.Token, or module:function",
        tuple(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.provider": each,
            }
            for each in (token, f"{__name__}:token")
        ),
    ),
    "a login twice": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": SCRAM,
            "sasl.username": "me",
        },
        "leave out sasl.username and sasl.password",
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM},),
    ),
    "tokens from two places": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.provider": token,
            "sasl.oauthbearer.token.endpoint.url": "https://a/t",
        },
        "gets tokens by itself; leave out the keys of an endpoint",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.provider": token,
            },
        ),
    ),
    "a client that does not begin": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": f"{KERBEROS} serviceName=kafka isInitiator=false;",
        },
        "a client is the initiator; leave out isInitiator",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": f"{KERBEROS} serviceName=kafka;",
            },
        ),
    ),
    "tickets for nobody": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        "needs sasl.kerberos.service.name: the first part of the brokers' principals, mostly kafka",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
            },
        ),
    ),
    "heartbeats with KIP-848": Row(
        ConsumerConfig,
        {"group.protocol": "consumer", "heartbeat.interval.ms": 1000},
        "leave it out (group.consumer.heartbeat.interval.ms on the broker)",
        ({"group.protocol": "consumer"},),
    ),
    "a ratio of nothing": Row(
        ConsumerConfig,
        {"max.poll.records.ratio": 0.2},
        "means nothing without max.poll.records=auto",
        ({"max.poll.records.ratio": 0.2, "max.poll.records": "auto"}, {}),
    ),
    "automatic commits of no group": Row(
        ConsumerConfig,
        {"enable.auto.commit": True},
        "enable.auto.commit needs group.id",
        ({"enable.auto.commit": True, "group.id": "g"}, {}),
    ),
    "authorities twice": Row(
        AdminConfig,
        {**TLS, "ssl.ca.location": "ca.pem", "ssl.truststore.certificates": "PEM"},
        "both say whom to trust; give one",
        ({**TLS, "ssl.ca.location": "ca.pem"}, {**TLS, "ssl.truststore.certificates": "PEM"}),
    ),
    "authorities that may be PEM": Row(
        AdminConfig,
        {**TLS, "ssl.truststore.location": "ca.pem"},
        "a PEM file already? set ssl.truststore.type=PEM",
        ({**TLS, "ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"},),
    ),
    "a certificate that may be PEM": Row(
        AdminConfig,
        {**TLS, "ssl.keystore.location": "me.pem"},
        "a PEM file already? set ssl.keystore.type=PEM",
        ({**TLS, "ssl.keystore.location": "me.pem", "ssl.keystore.type": "PEM"},),
    ),
    "a password of PEM": Row(
        AdminConfig,
        {**TLS, **STORE, "ssl.keystore.password": "s"},
        "ssl.key.password is the one of the private key",
        ({**TLS, **STORE, "ssl.key.password": "s"},),
    ),
    "a key without its certificate": Row(
        AdminConfig,
        {**TLS, "ssl.key.location": "me.key"},
        "needs ssl.certificate.location, the certificate of that key",
        ({**TLS, "ssl.key.location": "me.key", "ssl.certificate.location": "me.pem"},),
    ),
    "certificates twice": Row(
        AdminConfig,
        {**TLS, "ssl.certificate.location": "me.pem", **STORE},
        "both say which certificate to show; give one",
        ({**TLS, "ssl.certificate.location": "me.pem"}, {**TLS, **STORE}),
    ),
    "a principal twice": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": f"{KERBEROS} serviceName=kafka;",
            "sasl.kerberos.principal": "you@A",
        },
        "differs from principal in sasl.jaas.config; give it once",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": f"{KERBEROS} serviceName=kafka;",
            },
        ),
    ),
    "a secret twice": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://a/t",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.jaas.config": f"{JAAS} clientId='me' clientSecret='s';",
        },
        "is also in sasl.jaas.config as clientId; give it once",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://a/t",
                "sasl.jaas.config": f"{JAAS} clientId='me' clientSecret='s';",
            },
        ),
    ),
    "a password for Kerberos": Row(
        AdminConfig,
        {**TICKETS, "sasl.username": "me", "sasl.password": "s"},
        "its keys are sasl.kerberos.principal and sasl.kerberos.keytab, or kinit gets tickets before",
        ({**TICKETS, "sasl.kerberos.principal": "me@A", "sasl.kerberos.keytab": "k"}, TICKETS),
    ),
    "a password for tokens": Row(
        AdminConfig,
        {**TOKENS, "sasl.username": "me", "sasl.password": "s"},
        "its keys are sasl.oauthbearer.client.credentials.client.id and .secret",
        (TOKENS,),
    ),
    "tokens in plain text": Row(
        AdminConfig,
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://login.example.org/t"},
        "must begin with https://: the client's secret is sent there",
        (
            {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/t"},
            {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "http://localhost:8080/t"},
        ),
    ),
    "a certificate without its key": Row(
        AdminConfig,
        {**TLS, "ssl.keystore.certificate.chain": "PEM"},
        "ssl.keystore.key and ssl.keystore.certificate.chain belong together; one is missing",
        ({**TLS, "ssl.keystore.certificate.chain": "PEM", "ssl.keystore.key": "PEM"},),
    ),
    "a member's name of no group": Row(
        ConsumerConfig,
        {"group.instance.id": "one"},
        "group.instance.id needs group.id",
        ({"group.instance.id": "one", "group.id": "g"}, {}),
    ),
    "a broker's assignor with the classic protocol": Row(
        ConsumerConfig,
        {"group.protocol": "classic", "group.remote.assignor": "range"},
        "needs group.protocol=consumer, and no key of the classic protocol, which has "
        "partition.assignment.strategy",
        (
            {"group.protocol": "consumer", "group.remote.assignor": "range"},
            {"group.protocol": "classic", "partition.assignment.strategy": "range"},
        ),
    ),
    "a broker's assignor beside keys of the classic protocol": Row(
        ConsumerConfig,
        {"group.remote.assignor": "range", "session.timeout.ms": 6000},
        "needs group.protocol=consumer, and no key of the classic protocol",
        (
            {"group.protocol": "consumer", "group.remote.assignor": "range"},
            {"session.timeout.ms": 6000, "partition.assignment.strategy": "range"},
        ),
    ),
    "heartbeats that are too rare": Row(
        ConsumerConfig,
        {"heartbeat.interval.ms": 9000, "session.timeout.ms": 9000},
        "a third of it is usual",
        ({"heartbeat.interval.ms": 3000, "session.timeout.ms": 9000},),
    ),
    "a place to start": Row(
        ConsumerConfig,
        {"auto.offset.reset": "smallest"},
        "is not one of earliest, latest, none, by_duration:<duration>, e.g. by_duration:PT1H",
        tuple({"auto.offset.reset": each} for each in ("earliest", "latest", "none", "by_duration:PT1H")),
    ),
    "idempotence with fewer acknowledgements": Row(
        ProducerConfig,
        {"enable.idempotence": True, "acks": "1"},
        "enable.idempotence needs acks=all, not 1",
        ({"enable.idempotence": True, "acks": "all"}, {"acks": "1"}),
    ),
    "idempotence with many requests": Row(
        ProducerConfig,
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        "allows at most 5 max.in.flight.requests.per.connection",
        ({"enable.idempotence": True, "max.in.flight.requests.per.connection": 5},),
    ),
    "idempotence without retries": Row(
        ProducerConfig,
        {"enable.idempotence": True, "retries": 0},
        "enable.idempotence needs retries above 0",
        ({"enable.idempotence": True, "retries": 1}, {"retries": 0}),
    ),
    "a level of compression": Row(
        ProducerConfig,
        {"compression.type": "gzip", "compression.level": 12},
        "is not 1 to 9, the levels of compression.type=gzip",
        tuple({"compression.type": "gzip", "compression.level": each} for each in (1, 9)),
    ),
    "a misspelt function": Row(
        AdminConfig,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.provider": f"{__name__}:tokn",
        },
        f"did you mean {__name__}:token?",
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.provider": f"{__name__}:token",
            },
        ),
    ),
    "tokens from nowhere": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        "needs sasl.oauthbearer.token.provider (a callable, or module:function), or "
        "sasl.oauthbearer.token.endpoint.url with sasl.oauthbearer.client.credentials.client.id and .secret",
        (
            TOKENS,
            *(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.token.provider": each,
                }
                for each in (token, f"{__name__}:token")
            ),
        ),
    ),
    "an address of tokens": Row(
        AdminConfig,
        {**TOKENS, "sasl.oauthbearer.token.endpoint.url": "login.example.org"},
        "is no URL such as https://login.example.org/token",
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token"},),
    ),
    "a login of no kind": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "s"},
        "needs sasl.mechanism: one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI",
        (
            *({**PASSWORD, "sasl.mechanism": each} for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
            TOKENS,
            TICKETS,
        ),
    ),
    "a login of nobody": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"},
        "needs sasl.username and sasl.password, or sasl.jaas.config",
        (
            {**PASSWORD, "sasl.mechanism": "SCRAM-SHA-256"},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM},
        ),
    ),
    "a text that is no JAAS": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": "me"},
        'e.g. org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";',
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="me" password="s";',
            },
        ),
    ),
    "a login module of another mechanism": Row(
        AdminConfig,
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
        "ScramLoginModule, which is for sasl.mechanism=SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN",
        tuple(
            {"security.protocol": "SASL_SSL", "sasl.mechanism": each, "sasl.jaas.config": SCRAM}
            for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ),
    ),
    "an option of tokens": Row(
        AdminConfig,
        {**PASSWORD, "sasl.mechanism": "PLAIN", "sasl.oauthbearer.scope": "read"},
        "sasl.oauthbearer.scope is for sasl.mechanism=OAUTHBEARER, not PLAIN",
        ({**TOKENS, "sasl.oauthbearer.scope": "read"},),
    ),
    "a password of authorities": Row(
        AdminConfig,
        {
            **TLS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.password": "s",
        },
        "PEM files have no such password; leave it out",
        ({**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},),
    ),
    "fetches that do not fit": Row(
        ConsumerConfig,
        {"max.partition.fetch.bytes": 2_000_000, "buffer.memory": 1_500_000},
        "max.partition.fetch.bytes is above buffer.memory, so no full fetch would ever fit",
        (
            {"max.partition.fetch.bytes": 1_500_000, "buffer.memory": 1_500_000},
            {"max.partition.fetch.bytes": 2_000_000, "buffer.memory": 2_000_000},
        ),
    ),
    "no assignor at all": Row(
        ConsumerConfig,
        {"partition.assignment.strategy": " , "},
        "must name at least one assignor",
        ({"partition.assignment.strategy": "range"},),
    ),
}


def read(config: type[ClientConfig], settings: Mapping[str, Any]) -> ClientConfig:
    made = config.parse({**SERVERS, **settings})
    credentials(made)
    trust(made)
    identity(made)
    return made


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_settings_that_follow_the_advice_are_accepted(row: Row) -> None:
    with pytest.raises(ConfigError, match=re.escape(row.advice)):
        read(row.config, row.wrong)
    for right in row.right:
        made = read(row.config, right)
        assert tuple(made.bootstrap_servers) == ("127.0.0.1:1",)


VALUES: Mapping[str, Any] = {
    "bootstrap.servers": "127.0.0.1:1",
    "request.timeout.ms": 30_000,
    "sasl.mechanism": None,
    "fetch.max.wait.ms": 500,
    "buffer.memory": 64 * 1024 * 1024,
    "compression.type": "gzip",
    "linger.ms": 5,
    "batch.size": 16_384,
    "acks": "all",
    "delivery.timeout.ms": 120_000,
    "max.request.size": 1024 * 1024,
    "retries": 5,
    "max.in.flight.requests.per.connection": 5,
    "sasl.oauthbearer.token.provider": None,
    "ssl.ca.location": None,
    "ssl.certificate.location": None,
    "ssl.key.location": None,
    "ssl.key.password": None,
    "sasl.username": None,
    "sasl.password": None,
}
"""A value for each of our names in the table of other clients' names; None: it needs others beside it."""


def renamed() -> list[tuple[str, str]]:
    from kadence.idioms import _ADVICE  # the table itself: no row of it may be missing here

    return sorted((name, ours) for name, ours in _ADVICE["setting"].items() if " " not in ours)


@pytest.mark.parametrize(("theirs", "ours"), renamed(), ids=[theirs for theirs, _ in renamed()])
def test_a_setting_of_another_client_is_accepted_under_the_name_that_the_error_gives(
    theirs: str, ours: str
) -> None:
    assert advice_on("setting", theirs) == ours
    kinds: list[Callable[..., ClientConfig]] = [
        kind.parse for kind in (ConsumerConfig, ProducerConfig) if ours in {row.name for row in keys(kind)}
    ]
    assert kinds
    for parse in kinds:
        with pytest.raises(
            ConfigError, match=f"{re.escape(theirs)}' is another client's name: here it is '{ours}'"
        ):
            parse(SERVERS | {theirs: "1"})
        if VALUES[ours] is not None:
            parse(SERVERS | {ours: VALUES[ours]})


def test_a_key_of_the_other_client_belongs_to_that_one() -> None:
    with pytest.raises(ConfigError, match=r"'linger\.ms' is a key of the producer, not of the consumer"):
        Consumer({**SERVERS, "linger.ms": 5})
    Producer({**SERVERS, "linger.ms": 5}).close()


def test_a_client_knows_a_broker() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers='localhost:9092'"):
        ConsumerConfig.parse({})
    ConsumerConfig.parse(bootstrap_servers="localhost:9092")


def test_a_module_whose_directory_is_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        **SERVERS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": "advised_login:token",
    }
    (tmp_path / "advised_login.py").write_text(
        "from kadence import Token\n\n\ndef token():\n    return Token('t')\n"
    )
    with pytest.raises(ConfigError, match="so it must be installed, or its directory be in PYTHONPATH"):
        read(AdminConfig, settings)
    monkeypatch.syspath_prepend(tmp_path)
    read(AdminConfig, settings)


@pytest.mark.parametrize(
    ("mechanism", "theirs", "module", "libraries"),
    [
        (
            "AWS_MSK_IAM",
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            "amazon_msk",
            ("aws_msk_iam_sasl_signer",),
        ),
        (
            "OAUTHBEARER",
            {
                "sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
                "sasl.jaas.config": f"{JAAS};",
            },
            "google_kafka",
            ("google", "google.auth", "google.auth.transport", "google.auth.transport.urllib3", "urllib3"),
        ),
    ],
    ids=["Amazon", "Google"],
)
def test_a_login_of_a_cloud(
    mechanism: str,
    theirs: dict[str, str],
    module: str,
    libraries: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file that the error names is read with stand-ins for the cloud's libraries."""
    base = {**SERVERS, "security.protocol": "SASL_SSL"}
    with pytest.raises(ConfigError) as caught:
        read(AdminConfig, {**base, "sasl.mechanism": mechanism, **theirs})
    found = re.search(
        r"set sasl\.mechanism=(\w+) and sasl\.oauthbearer\.token\.provider=(\S+), with (\S+) as the module",
        str(caught.value),
    )
    assert found is not None
    file = Path(__file__).resolve().parents[4] / found[3]
    assert file.stem == module
    monkeypatch.syspath_prepend(file.parent)
    # The module that is read here holds the stand-ins: no later test may find it.
    monkeypatch.setitem(sys.modules, module, ModuleType(module))
    del sys.modules[module]
    for name in libraries:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    read(AdminConfig, {**base, "sasl.mechanism": found[1], "sasl.oauthbearer.token.provider": found[2]})
    assert module in sys.modules
