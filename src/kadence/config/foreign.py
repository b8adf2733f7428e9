"""Keys of other clients that this one does not have, each with advice on what to do instead.

They are keys of the Java client, librdkafka (confluent-kafka), kafka-python and aiokafka. The error for such a key
names the key that has its meaning here, or says why there is none, so that nobody has to search for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["advice", "reset"]

_OAUTH: Final = "sasl.oauthbearer.client.credentials.client"

_CALLED: Final[Mapping[str, str]] = {
    # librdkafka
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "metadata.request.timeout.ms": "request.timeout.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.key": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.certificate": "ssl.keystore.certificate.chain",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.ca": "ssl.truststore.certificates",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": f"{_OAUTH}.id",
    "sasl.oauthbearer.client.secret": f"{_OAUTH}.secret",
    "oauthbearer.token.refresh.cb": "sasl.oauthbearer.token.provider",
    "oauth.cb": "sasl.oauthbearer.token.provider",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "auto.commit.enable": "enable.auto.commit",
    "queued.max.messages.kbytes": "buffer.memory",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "queue.buffering.max.kbytes": "buffer.memory",
    "message.send.max.retries": "retries",
    "partitioner.cb": "partitioner",
    # Java's producer, aiokafka's
    "partitioner.class": "partitioner",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "max.batch.size": "batch.size",
    # kafka-python, aiokafka
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauth.token.provider": "sasl.oauthbearer.token.provider",
    "rebalance.timeout.ms": "max.poll.interval.ms",
    "api.version.auto.timeout.ms": "request.timeout.ms",
    "bootstrap.timeout.ms": "default.api.timeout.ms",
}
"""The same thing under another name."""

_KERBEROS: Final = "the system's Kerberos library gets and renews tickets; leave it out"
_TLS: Final = (
    "TLS is Python's ssl module with the system's protocols and ciphers; there is nothing to choose here"
)
_PEM: Final = "certificates and keys are PEM files: see ssl.ca.location and ssl.certificate.location"
_JWKS: Final = "it is a key of the broker, which checks tokens"
_VERSIONS: Final = "versions are always agreed with each broker; leave it out"
_LOGGING: Final = (
    "logging is Python's: logging.getLogger('kadence').setLevel(...), with handlers as you like them"
)
_SAMPLES: Final = "metrics are read by consumer.metrics(); windows are not configured"
_TELEMETRY: Final = (
    "metrics are not pushed to brokers (KIP-714); read them by consumer.metrics(). Leave it out"
)
_CALLBACKS: Final = (
    "errors are raised by the calls they belong to, and what happens is logged under 'kadence'"
)
_PREFETCH: Final = "prefetching is bounded by bytes: buffer.memory"
_SOCKETS: Final = (
    "sockets are the library's own; only send.buffer.bytes and receive.buffer.bytes are settable"
)
_OFFSETS: Final = (
    "offsets are stored by the group coordinator; auto-commit takes only what a later poll() proved processed"
)
_PROXIES: Final = "proxies are not supported; tunnel the brokers' addresses instead"
_ASSERTIONS: Final = (
    "JWT assertions and other grants are not built in: sasl.oauthbearer.token.provider takes a function that gets "
    "a token in any way"
)
_OLD: Final = "it no longer has an effect, not in librdkafka either; leave it out"
_PER_CALL: Final = "pass it to the call: every call that can wait takes timeout= in seconds"

_INSTEAD: Final[Mapping[str, str]] = {
    # Java
    "interceptor.classes": "Java classes cannot run here; give Python objects with interceptors=[...]",
    "metric.reporters": "reporters are not called; read consumer.metrics(), or use an adapter",
    "auto.include.jmx.reporter": "there is no JMX here; read consumer.metrics()",
    "metrics.num.samples": _SAMPLES,
    "metrics.sample.window.ms": _SAMPLES,
    "metrics.recording.level": _SAMPLES,
    "enable.metrics.push": _TELEMETRY,
    "client.dns.lookup": "every address of a name is tried, as use_all_dns_ips does; leave it out",
    "socket.connection.setup.timeout.max.ms": (
        "each attempt has socket.connection.setup.timeout.ms; the pauses between them grow by reconnect.backoff.max.ms"
    ),
    "security.providers": _TLS,
    "config.providers": "values are used unchanged: read files, environment variables or a vault yourself",
    "sasl.oauthbearer.jwt.validator.class": "tokens are passed on as they are; the broker checks them",
    **dict.fromkeys(
        (
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.session.timeout.ms",
            "group.consumer.assignors",
            "group.initial.rebalance.delay.ms",
            "group.max.session.timeout.ms",
            "group.min.session.timeout.ms",
            "offsets.retention.minutes",
        ),
        "it is a setting of the broker",
    ),
    **dict.fromkeys(
        (
            "basic.auth.credentials.source",
            "basic.auth.user.info",
            "schema.registry.basic.auth.user.info",
            "schema.registry.url",
            "specific.avro.reader",
        ),
        "it is a key of kadence.registry.SchemaRegistryClient: give that to a deserialiser, and the deserialiser with "
        "value_deserializer=",
    ),
    "internal.leave.group.on.close": "use close(leave=False), or group.instance.id for a member that stays",
    "internal.throw.on.fetch.stable.offset.unsupported": "it is internal to the Java client",
    "ssl.protocol": _TLS,
    "ssl.enabled.protocols": _TLS,
    "ssl.provider": _TLS,
    "ssl.cipher.suites": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.engine.factory.class": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "sasl.client.callback.handler.class": "give credentials by sasl.username and sasl.password, or sasl.jaas.config",
    "sasl.login.class": "give credentials by sasl.username and sasl.password, or sasl.jaas.config",
    "sasl.login.connect.timeout.ms": "getting a token is bounded by request.timeout.ms",
    "sasl.login.read.timeout.ms": "getting a token is bounded by request.timeout.ms",
    "sasl.login.retry.backoff.ms": "logins are repeated with reconnect.backoff.ms",
    "sasl.login.retry.backoff.max.ms": "logins are repeated with reconnect.backoff.max.ms at most",
    **dict.fromkeys(
        (
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.buffer.seconds",
        ),
        "tokens are renewed in good time before they end; leave it out",
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.ticket.renew.window.factor",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.min.time.before.relogin",
        ),
        _KERBEROS,
    ),
    "sasl.kerberos.name": "brokers are named by sasl.kerberos.service.name and the host in their address; leave it out",
    "sasl.kerberos.domain.name": (
        "brokers are named by sasl.kerberos.service.name and the host in their address; leave it out"
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.clock.skew.seconds",
        ),
        _JWKS,
    ),
    "sasl.oauthbearer.scope.claim.name": "tokens are passed on as they are; their claims are the broker's to read",
    "sasl.oauthbearer.sub.claim.name": "tokens are passed on as they are; their claims are the broker's to read",
    # librdkafka, confluent-kafka
    "builtin.features": "it only tells how librdkafka was built; `kadence --version` says how this was",
    "client.software.name": "Kadence sends 'kadence' and its version",
    "message.copy.max.bytes": _OLD,
    "receive.message.max.bytes": "responses are bounded by fetch.max.bytes, batches by max.batch.bytes",
    "topic.metadata.refresh.fast.interval.ms": "metadata that misses a leader is asked again with retry.backoff.ms",
    "topic.metadata.refresh.fast.cnt": _OLD,
    "topic.metadata.refresh.sparse": "only the topics in use are asked for; leave it out",
    "topic.metadata.propagation.max.ms": "a topic that is not there yet is asked for again; leave it out",
    "topic.blacklist": "exclude names in the pattern given to subscribe(), e.g. re.compile('(?!tmp-).*')",
    "debug": _LOGGING,
    "log.level": _LOGGING,
    "log.cb": _LOGGING,
    "log.queue": _LOGGING,
    "log.thread.name": _LOGGING,
    "log.connection.close": _LOGGING,
    "logger": _LOGGING,
    "socket.blocking.max.ms": _OLD,
    "socket.keepalive.enable": _SOCKETS,
    "socket.nagle.disable": "it always is; leave it out",
    "socket.max.fails": "a connection that fails is closed at once and opened again with reconnect.backoff.ms",
    "broker.address.ttl": "names are looked up at each connect; leave it out",
    "broker.address.family": "addresses of both families are tried; leave it out",
    "enable.sparse.connections": "connections are opened when they are needed; leave it out",
    "reconnect.backoff.jitter.ms": "backoffs have 20 % of jitter by themselves; leave it out",
    "statistics.interval.ms": "read consumer.metrics() whenever you like; it asks no broker",
    "stats.cb": "read consumer.metrics() whenever you like; it asks no broker",
    "enabled.events": _CALLBACKS,
    "error.cb": _CALLBACKS,
    "throttle.cb": "throttling is among consumer.metrics()",
    "background.event.cb": _CALLBACKS,
    "consume.cb": "iterate the consumer, or what poll() returns",
    "rebalance.cb": "give subscribe() a RebalanceListener: listener=",
    "on.commit": "give commit_async() a callback, or interceptors=[...] one that sees all commits",
    "offset.commit.cb": "give commit_async() a callback, or interceptors=[...] one that sees all commits",
    "enable.random.seed": _OLD,
    "socket.cb": _SOCKETS,
    "connect.cb": _SOCKETS,
    "closesocket.cb": _SOCKETS,
    "open.cb": _SOCKETS,
    "resolve.cb": _SOCKETS,
    "opaque": _CALLBACKS,
    "default.topic.conf": "give its keys among the other settings",
    "default.topic.config": "give its keys among the other settings",
    "internal.termination.signal": "it is internal to librdkafka",
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "api.version.fallback.ms": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "ssl.curves.list": _TLS,
    "ssl.sigalgs.list": _TLS,
    "https.ca.location": "the token endpoint is checked with ssl.ca.location, or the system's authorities",
    "https.ca.pem": "the token endpoint is checked with ssl.ca.location, or the system's authorities",
    "ssl.ca.certificate.stores": "without ssl.ca.location the system's authorities are trusted; leave it out",
    "ssl.crl.location": "revocation lists are not read",
    "ssl.crlfile": "revocation lists are not read",
    "ssl.providers": _TLS,
    "ssl.engine.location": _TLS,
    "ssl.engine.id": _TLS,
    "ssl.engine.callback.data": _TLS,
    "enable.ssl.certificate.verification": (
        "certificates are always verified; ssl.endpoint.identification.algorithm='' leaves out the host's name only"
    ),
    "ssl.certificate.verify.cb": _PEM,
    "sasl.oauthbearer.config": (
        "set sasl.oauthbearer.token.endpoint.url, or give a function: sasl.oauthbearer.token.provider"
    ),
    "enable.sasl.oauthbearer.unsecure.jwt": "give the token by sasl.oauthbearer.token.provider",
    "enable.sasl.queue": "tokens are got on a helper thread; leave it out",
    "sasl.oauthbearer.method": "setting sasl.oauthbearer.token.endpoint.url means oidc; leave it out",
    "sasl.oauthbearer.extensions": "the function in sasl.oauthbearer.token.provider gives a Token with its extensions",
    **dict.fromkeys(
        (
            "sasl.oauthbearer.grant.type",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.jwt.template.file",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.metadata.authentication.type",
        ),
        _ASSERTIONS,
    ),
    "test.mock.num.brokers": "kadence.Broker is a broker for tests: with Broker() as broker: ...",
    "test.mock.broker.rtt": "kadence.Broker delays answers by broker.faults",
    "plugin.library.paths": "there are no plugins; see interceptors=[...]",
    "group.protocol.type": "it is always 'consumer'; leave it out",
    "coordinator.query.interval.ms": "the coordinator is looked up when it is needed; leave it out",
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "queued.min.messages": _PREFETCH,
    "fetch.queue.backoff.ms": "fetching goes on as soon as there is room, never on a timer; leave it out",
    "fetch.error.backoff.ms": "a failed fetch is repeated with retry.backoff.ms",
    "enable.partition.eof": "there is no such event; current_lag(partition) == 0 says the same, without a request",
    "share.acknowledgement.mode": "share groups (KIP-932) are not supported",
    "share.acquire.mode": "share groups (KIP-932) are not supported",
    "consume.callback.max.messages": "max.poll.records caps what poll() returns",
    # kafka-python, aiokafka
    "enable.incremental.fetch.sessions": "fetch sessions are used where the broker has them; leave it out",
    "default.offset.commit.callback": "give commit_async() a callback, or interceptors=[...] one that sees all commits",
    "socket.options": _SOCKETS,
    "consumer.timeout.ms": "iterate consumer.records(idle_timeout=seconds), which ends when nothing came for so long",
    "ssl.context": _PEM,
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm='' leaves out the check of the host's name",
    "ssl.ciphers": _TLS,
    "api.version": _VERSIONS,
    "metrics.enabled": "metrics cost nothing per record and are always on; leave it out",
    "metric.group.prefix": "groups of metrics have Kafka's names",
    "selector": _SOCKETS,
    "proxy.url": _PROXIES,
    "socks5.proxy": _PROXIES,
    "kafka.client": _SOCKETS,
    "loop": "an AsyncConsumer belongs to the loop it is made on; leave it out",
    "topics": "call subscribe(topics)",
    "timeout": _PER_CALL,
}
"""Nothing under any name; what to do."""

_DELIVERY: Final = "send() gives a future for each record: await it, call result(), or add_done_callback(...)"
_ORDER: Final = (
    "records of a partition are sent in order, and with enable.idempotence written in order; leave it out"
)
_STICKY: Final = (
    "records without a key stay with one partition for 16 KiB, or batch.size where that is less, then another one with "
    "a leader gets them; leave it out"
)
_NO_METRICS: Final = "the producer has no metrics; count records in the callbacks of their futures"

_OF_PRODUCERS: Final[Mapping[str, str]] = {
    # Java
    "interceptor.classes": "the producer has no interceptors; wrap send(), and use the futures that it gives",
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not supported",
    **dict.fromkeys(
        (
            "metric.reporters",
            "auto.include.jmx.reporter",
            "metrics.num.samples",
            "metrics.sample.window.ms",
            "metrics.recording.level",
            "statistics.interval.ms",
            "stats.cb",
            "throttle.cb",
            "metrics.enabled",
            "metric.group.prefix",
        ),
        _NO_METRICS,
    ),
    "enable.metrics.push": "metrics are not pushed to brokers (KIP-714); leave it out",
    "loop": "an AsyncProducer belongs to the loop it is made on; leave it out",
    "receive.message.max.bytes": "answers to a producer are small; leave it out",
    "topic.blacklist": "a producer asks for the topics that it sends to; leave it out",
    # librdkafka, confluent-kafka
    "batch.num.messages": "batches are bounded by bytes, and not by a number of records: batch.size",
    "delivery.report.only.error": _DELIVERY,
    "dr.cb": _DELIVERY,
    "dr.msg.cb": _DELIVERY,
    "on.delivery": _DELIVERY,
    "enable.gapless.guarantee": _ORDER,
    "msg.order.cmp": _ORDER,
    "queuing.strategy": _ORDER,
    "produce.offset.report": "futures have the offset wherever the broker gives one; leave it out",
    "queue.buffering.backpressure.threshold": (
        "a partition's next batch fills while others are on their way; leave it out"
    ),
    "queue.buffering.max.messages": "what waits is bounded by bytes, and not by a number of records: buffer.memory",
    "sticky.partitioning.linger.ms": _STICKY,
}
"""What to do instead in a producer; in other clients nothing of it makes sense."""

_MAX_BLOCK: Final = "calls that wait take max.block.ms at most; flush() and close() take timeout="

_NOT_OF_PRODUCERS: Final[Mapping[str, str]] = {
    "bootstrap.timeout.ms": _MAX_BLOCK,
    "default.api.timeout.ms": _MAX_BLOCK,
}
"""What to do instead in a producer; other clients here have such a key."""

_RESETS: Final[Mapping[str, str]] = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


def reset(word: str) -> str | None:
    """Our word for another client's value of ``auto.offset.reset``; None when it is nobody's."""
    return _RESETS.get(word)


def advice(name: str, client: str) -> tuple[str | None, str | None]:
    """For a key of another client: (our name for it, None) or (None, what to do); (None, None) for any other.

    Args:
        client: of which kind ours is: consumer, producer or admin.
    """
    if client == "producer" and name in _NOT_OF_PRODUCERS:
        return None, _NOT_OF_PRODUCERS[name]
    if name in _CALLED:
        return _CALLED[name], None
    if client == "producer" and name in _OF_PRODUCERS:
        return None, _OF_PRODUCERS[name]
    if name in _INSTEAD:
        return None, _INSTEAD[name]
    return None, "it is for a producer" if name in _OF_PRODUCERS else None
