"""The options ``kafka.*`` as Kafka's keys, for source and sink.

A key is accepted if the client has it. It is refused with the reason if source or sink set it themselves. It is left
out, and logged once, if it tunes the Java client without a visible effect on a job. Any other key is refused with the
nearest known one. Keys that would change a job's meaning or weaken its security are never left out, such as cipher
suites with TLS, or a login class with SASL.
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
"""The prefix of client settings among the options."""

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
"""Keys of the Java client that are left out in any job: they tune parts that Kadence does not have."""

_PROTOCOLS: Final = {"PLAINTEXT": ("sasl.", "ssl."), "SSL": ("sasl.",), "SASL_PLAINTEXT": ("ssl.",)}
"""Keys without meaning for a security.protocol; SASL_SSL uses both kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rules for client settings of source or sink.

    Attributes:
        table: the configuration that checks the keys. refused: keys that this side sets itself, with the reason.
        ignored: keys of the table without meaning on this side, with the reason; they are left out.
    """

    table: type[ConsumerConfig | ProducerConfig]
    refused: Mapping[str, str]
    ignored: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Checked settings.

    Attributes:
        values: Kafka's keys for the client. Not in the repr, because there may be passwords in it.
        left_out: keys that were given and have no effect, with the reason.
    """

    values: dict[str, str] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    def tell(self) -> None:
        """Log the omitted settings, as one line. Call it once for each query: options are read in several processes."""
        if self.left_out:
            told = "; ".join(f"{PREFIX}{key}: {why}" for key, why in sorted(self.left_out.items()))
            _log.warning("options without effect are left out: %s", told)


def client_settings(given: Mapping[str, str], side: Side) -> ClientSettings:
    """Take the ``kafka.*`` options out of all options of a query, and check them.

    Args:
        given: options of a query, in Spark's spelling or in lower case; options without ``kafka.`` are ignored.
        side: the rules.

    Raises:
        ConfigError: a key that is refused or unknown, or a value that the client refuses.
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
