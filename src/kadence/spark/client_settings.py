"""The options ``kafka.*`` as Kafka's keys, for source and sink alike.

Each key is in one of four cases: the client's table knows it; this side makes it itself, so it is refused with the
reason; it tunes the Java client and changes nothing that a job can see, so it is left out and said once; or nobody
knows it, which is refused with the nearest known key. What would change a job's meaning or weaken its security is
never left out: cipher suites beside TLS, a login class beside SASL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kadence.config import ConsumerConfig, ProducerConfig, keys
from kadence.errors import ConfigError
from kadence.logs import logger

__all__ = ["ANY_TIME", "PREFIX", "ClientSettings", "Side", "client_settings"]

_log = logger("kadence.spark")

PREFIX: Final = "kafka."
"""What client settings begin with among the options."""

ANY_TIME: Final = (
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "enable.metrics.push",
    "internal.leave.group.on.close",
    "internal.throw.on.fetch.stable.offset.unsupported",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "socket.connection.setup.timeout.max.ms",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Keys of the Java client that are left out in any job: they tune what does not exist here."""

_PROTOCOLS: Final = {"PLAINTEXT": ("sasl.", "ssl."), "SSL": ("sasl.",), "SASL_PLAINTEXT": ("ssl.",)}
"""Which keys have no meaning beside a security.protocol; SASL_SSL uses both kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pipeline, as far as client settings go.

    Attributes:
        table: the configuration that checks the keys. refused: keys that this side makes itself, with the reason.
        ignored: keys of the table that mean nothing on this side, with the reason; they are left out.
    """

    table: type[ConsumerConfig | ProducerConfig]
    refused: Mapping[str, str]
    ignored: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that were checked.

    Attributes:
        values: Kafka's keys for the client. Not shown: there may be passwords in it.
        left_out: keys that were given and have no effect, with the reason.
    """

    values: dict[str, str] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def tell(self) -> None:
        """Log what was left out, as one line. Call it once for each query: options are read in several processes."""
        if self.left_out:
            told = "; ".join(f"{PREFIX}{key}: {why}" for key, why in sorted(self.left_out.items()))
            _log.warning("options without effect are left out: %s", told)


def client_settings(given: Mapping[str, str], side: Side) -> ClientSettings:
    """Take the ``kafka.*`` options out of all options of a query, and check them.

    Args:
        given: options of a query, in Spark's spelling or in lower case; others than ``kafka.*`` are passed over.
        side: who asks.

    Raises:
        ConfigError: a key that is refused or unknown, or a value that the client does not take.
    """
    values = {
        name.lower().removeprefix(PREFIX): value
        for name, value in given.items()
        if name.lower().startswith(PREFIX)
    }
    for key, refusal in side.refused.items():
        if key in values:
            raise ConfigError(f"option {PREFIX}{key} cannot be used: {refusal}", key=f"{PREFIX}{key}")
    left_out = {key: reason for key in values if (reason := _without_effect(key, values, side)) is not None}
    for key in left_out:
        del values[key]
    try:
        side.table.parse({"bootstrap.servers": "localhost:9092", **values})
    except ConfigError as problem:
        raise ConfigError(
            f"in the options {PREFIX}*: {problem}", key=None if problem.key is None else PREFIX + problem.key
        ) from None
    if "bootstrap.servers" not in values:
        raise ConfigError(
            "the option kafka.bootstrap.servers is needed, which names brokers to ask first, e.g. localhost:9092",
            key="kafka.bootstrap.servers",
        )
    return ClientSettings(values, left_out)


def _without_effect(key: str, values: Mapping[str, str], side: Side) -> str | None:
    if key in side.ignored:
        return side.ignored[key]
    protocol = values.get("security.protocol", "PLAINTEXT").strip().upper()
    if key.startswith(_PROTOCOLS.get(protocol, ())):
        return f"it has no meaning with security.protocol={protocol}"
    if key in ANY_TIME:
        return "it tunes the Java client, and there is nothing like it here"
    known = {row.name for row in keys(side.table)}
    other: type = ProducerConfig if side.table is ConsumerConfig else ConsumerConfig
    if key not in known and key in {row.name for row in keys(other)}:
        return f"it is a key of the {'producer' if other is ProducerConfig else 'consumer'}"
    return None
