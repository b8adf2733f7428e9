"""The broker of a test run: the embedded one, real Apache Kafka, or one that runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from kadence_broker import Broker

__all__ = ["AT_ONCE", "FAST_GROUPS", "KadenceBroker", "embedded", "parse_settings", "running"]

FAST_GROUPS: Final[Mapping[str, int]] = {
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.share.min.session.timeout.ms": 500,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.record.lock.duration.ms": 1_000,
}
"""Group settings of embedded brokers for tests: sessions and locks may be short, and members heartbeat often."""

AT_ONCE: Final[Mapping[str, int]] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
}
"""A group gets a new assignment as soon as a member joins or leaves, and not once a second at most.

Kafka has the keys since 4.3. They accept 0, the default of ``group.consumer.min.assignment.interval.ms``.
"""

_REACH_S: Final = 10.0
"""How long a broker that runs elsewhere may take for its first answer."""


@dataclass(frozen=True)
class KadenceBroker:
    """The broker of a run of tests.

    Attributes:
        kind: ``embedded``, ``kafka`` (a node of Apache Kafka that the run starts) or ``external``.
        bootstrap_servers: its addresses.
        settings: the settings with which a client reaches it, under Kafka's keys, with ``bootstrap.servers``.
    """

    kind: Literal["embedded", "kafka", "external"]
    bootstrap_servers: str
    # The settings may have a password.
    settings: Mapping[str, str] = field(repr=False)
    _embedded: Broker | None = field(default=None, repr=False)

    def need_embedded(self, why: str) -> Broker:
        """The embedded broker; skips the test where the run uses another one.

        Args:
            why: the feature that needs it; part of the skip's reason.
        """
        if self._embedded is None:
            pytest.skip(f"{why} needs the embedded broker, and this run uses {self.bootstrap_servers}")
        return self._embedded


def parse_settings(lines: list[str]) -> dict[str, str]:
    """The settings of clients in lines ``key=value``.

    Raises:
        pytest.UsageError: a line has no equals sign.
    """
    settings = {}
    for line in filter(None, map(str.strip, lines)):
        key, sign, value = line.partition("=")
        if not sign or not key.strip():
            # The line may have a password in it.
            raise pytest.UsageError("kadence_settings takes lines key=value; one of them is not like that")
        settings[key.strip()] = value.strip()
    return settings


def embedded(options: Mapping[str, Any]) -> Broker:
    """An embedded broker for tests; ``options`` as `kadence.Broker` takes them; they take precedence."""
    from kadence_broker import Broker
    from kadence_testing.kafka import NO_EXPIRY

    config = {**FAST_GROUPS, **AT_ONCE, **NO_EXPIRY, **options.get("config", {})}
    return Broker(**{**options, "config": config})


@contextmanager
def running(where: str, settings: Mapping[str, str], options: Mapping[str, Any]) -> Iterator[KadenceBroker]:
    """The broker that ``where`` names, until the end of the run.

    Args:
        where: ``embedded``, ``kafka``, or addresses ``HOST:PORT``, separated by commas.
        settings: further settings of clients. options: arguments of `kadence.Broker`, for the embedded one.

    Raises:
        pytest.UsageError: ``where`` is none of these, or no broker answers there.
        MissingDependencyError: Java or Kafka's jars are missing.
    """
    if where == "embedded":
        with embedded(options) as broker:
            servers = broker.bootstrap_servers
            yield KadenceBroker("embedded", servers, {**settings, "bootstrap.servers": servers}, broker)
    elif where == "kafka":
        from kadence_testing.kafka import Kafka

        with Kafka({name: str(value) for name, value in AT_ONCE.items()}) as kafka:
            servers = kafka.bootstrap_servers
            yield KadenceBroker("kafka", servers, {**settings, "bootstrap.servers": servers})
    elif ":" in where:
        external = KadenceBroker("external", where, {**settings, "bootstrap.servers": where})
        _check_reached(external)
        yield external
    else:
        raise pytest.UsageError(f"--kadence-broker is embedded, kafka or HOST:PORT, not {where!r}")


def _check_reached(broker: KadenceBroker) -> None:
    """Refuse a broker that does not answer: else each test would wait for ``default.api.timeout.ms``."""
    from kadence.admin import Admin
    from kadence.errors import ConfigError, KafkaError

    try:
        with Admin(broker.settings) as admin:
            admin.describe_cluster(timeout=_REACH_S)
    except ConfigError:
        raise  # says which setting it is
    except KafkaError as error:
        raise pytest.UsageError(f"the broker of --kadence-broker cannot be used: {error}") from error
