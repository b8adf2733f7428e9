"""Every key of another client is known here, or refused with what to do instead: nothing is dropped silently."""

from __future__ import annotations

import ctypes
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from kadence.config import ClientConfig, ConsumerConfig, ProducerConfig, foreign, keys
from kadence.errors import ConfigError

OURS = {row.name for row in keys(ConsumerConfig)}

JAVA = """
bootstrap.servers client.dns.lookup group.id group.instance.id group.protocol group.remote.assignor session.timeout.ms
heartbeat.interval.ms max.poll.interval.ms max.poll.records partition.assignment.strategy enable.auto.commit
auto.commit.interval.ms auto.offset.reset allow.auto.create.topics exclude.internal.topics isolation.level
fetch.min.bytes fetch.max.wait.ms fetch.max.bytes max.partition.fetch.bytes check.crcs client.rack client.id
key.deserializer value.deserializer interceptor.classes default.api.timeout.ms request.timeout.ms retry.backoff.ms
retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms socket.connection.setup.timeout.ms
socket.connection.setup.timeout.max.ms connections.max.idle.ms metadata.max.age.ms metadata.recovery.strategy
metadata.recovery.rebootstrap.trigger.ms send.buffer.bytes receive.buffer.bytes metric.reporters metrics.num.samples
metrics.sample.window.ms metrics.recording.level enable.metrics.push security.providers security.protocol
internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported ssl.protocol ssl.enabled.protocols
ssl.provider ssl.cipher.suites ssl.secure.random.implementation ssl.engine.factory.class ssl.keystore.type
ssl.truststore.type ssl.keystore.location ssl.keystore.password ssl.keystore.key ssl.keystore.certificate.chain
ssl.key.password ssl.truststore.location ssl.truststore.password ssl.truststore.certificates ssl.keymanager.algorithm
ssl.trustmanager.algorithm ssl.endpoint.identification.algorithm sasl.mechanism sasl.jaas.config
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds
sasl.login.refresh.buffer.seconds sasl.kerberos.service.name sasl.kerberos.kinit.cmd
sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter sasl.kerberos.min.time.before.relogin
sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.header.urlencode sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.scope sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class share.acknowledgement.mode share.acquire.mode config.providers
schema.registry.url basic.auth.user.info group.consumer.session.timeout.ms
"""
"""`ConsumerConfig` of Apache Kafka, and what often stands beside it: a registry's keys, a broker's."""

JAVA_PRODUCER = """
acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level compression.lz4.level
compression.type compression.zstd.level connections.max.idle.ms delivery.timeout.ms enable.idempotence
enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
retry.backoff.ms security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
value.serializer
"""
"""`ProducerConfig` of Apache Kafka, without the keys of logins and TLS, which every client has."""


def librdkafka(folder: Path, kinds: str = "*CP") -> Iterator[str]:
    """Every property that librdkafka itself prints, of all clients (*), consumers (C) and producers (P)."""
    wheel = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library, libc = ctypes.CDLL(str(next(wheel.glob("librdkafka*.so*")))), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    page = folder / "properties.md"
    file = libc.fopen(bytes(page), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and cells[1] in kinds:
            yield cells[0]


def refusal(name: str, client: type[ClientConfig] = ConsumerConfig) -> str:
    """What a client says of a key."""
    with pytest.raises(ConfigError) as error:
        client.parse({"bootstrap.servers": "localhost:9092", name: "x"})
    return str(error.value)


def unhelped(names: set[str], client: type[ClientConfig] = ConsumerConfig) -> list[str]:
    """Those that are neither known nor refused with advice."""
    known = {row.name for row in keys(client)}
    dotted = {name: name.replace("_", ".") for name in names}
    return sorted(
        name
        for name, ours in dotted.items()
        if ours not in known
        and ("unknown" in refusal(name, client) or "did you mean" in refusal(name, client))
    )


def test_every_key_of_javas_consumer_is_known_or_refused_with_advice() -> None:
    assert unhelped(set(JAVA.split())) == []


def test_every_key_of_librdkafka_is_known_or_refused_with_advice(tmp_path: Path) -> None:
    names = set(librdkafka(tmp_path))
    assert len(names) > 100
    assert unhelped(names) == []


def test_every_key_that_confluent_kafka_adds_is_known_or_refused_with_advice() -> None:
    names = {"error_cb", "throttle_cb", "stats_cb", "oauth_cb", "on_commit", "logger", "default.topic.config"}
    assert unhelped(names) == []


def test_every_key_of_kafka_python_is_known_or_refused_with_advice() -> None:
    with warnings.catch_warnings(action="ignore"):
        import kafka
    assert unhelped(set(kafka.KafkaConsumer.DEFAULT_CONFIG)) == []


def test_every_key_of_aiokafka_is_known_or_refused_with_advice() -> None:
    names = set(inspect.signature(aiokafka.AIOKafkaConsumer).parameters)
    assert unhelped(names) == []


def test_every_key_of_a_producer_of_theirs_is_known_or_refused_with_advice(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        import kafka
    theirs = {
        "Java": set(JAVA_PRODUCER.split()),
        "librdkafka": set(librdkafka(tmp_path, "*P")),
        "confluent-kafka": {"on_delivery", "dr_cb", "dr_msg_cb", "delivery.report.only.error", "partitioner"},
        "kafka-python": set(kafka.KafkaProducer.DEFAULT_CONFIG),
        "aiokafka": set(inspect.signature(aiokafka.AIOKafkaProducer).parameters),
    }
    assert {client: unhelped(names, ProducerConfig) for client, names in theirs.items()} == {
        client: [] for client in theirs
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("partitioner.class", "here it is 'partitioner'"),
        ("max_batch_size", "here it is 'batch_size'"),
        ("dr_msg_cb", "send() gives a future for each record"),
        ("compression.zstd.level", "here it is 'compression.level'"),
        ("metric.reporters", "the producer has no metrics"),
        ("group.id", "is a key of the consumer, not of the producer"),
        ("default.api.timeout.ms", "calls that wait take max.block.ms at most"),
        ("bootstrap_timeout_ms", "calls that wait take max.block.ms at most"),
    ],
)
def test_a_producers_refusal_says_what_to_do(name: str, message: str) -> None:
    assert message in refusal(name, ProducerConfig)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dr_msg_cb", "another client's key: it is for a producer"),
        ("socket.timeout.ms", "is another client's name: here it is 'request.timeout.ms'"),
        ("ssl_cafile", "here it is 'ssl_ca_location'"),
        ("queued.min.messages", "prefetching is bounded by bytes: buffer.memory"),
        ("enable.metrics.push", "not pushed to brokers (KIP-714)"),
        ("sasl.kerberos.kinit.cmd", "the system's Kerberos library gets and renews tickets"),
        ("compression.codec", "it is for a producer, as 'compression.type'"),
        ("linger.ms", "is a key of the producer, not of the consumer"),
        ("session.timeout", "did you mean 'session.timeout.ms'?"),
    ],
)
def test_the_refusal_says_what_to_do(name: str, message: str) -> None:
    assert message in refusal(name)


@pytest.mark.parametrize(("word", "ours"), [("smallest", "earliest"), ("end", "latest"), ("error", "none")])
def test_librdkafkas_words_for_a_reset_are_refused_with_ours(word: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"here it is '{ours}'"):
        ConsumerConfig.parse({"bootstrap.servers": "localhost:9092", "auto.offset.reset": word})


def test_what_is_advised_exists_and_what_exists_is_not_refused() -> None:
    known = OURS | {row.name for row in keys(ProducerConfig)}
    assert set(foreign._CALLED.values()) <= known
    assert not (set(foreign._CALLED) | set(foreign._INSTEAD) | set(foreign._OF_PRODUCERS)) & known
