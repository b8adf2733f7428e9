"""The settings of the embedded broker, under the names of Kafka's broker configuration.

A subset: an unknown key is refused with the nearest known one, because a broker that ignores a setting
makes a test mean something else.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kadence.errors import ConfigError
from kadence_broker.coordinator import CoordinatorConfig
from kadence_broker.coordinator.transactions import TransactionConfig
from kadence_broker.server.server import Limits
from kadence_broker.share_configs import ShareConfigs, broker_key
from kadence_broker.storage import LogConfig
from kadence_broker.storage.config import MOST_DECOMPRESSED

__all__ = ["Settings"]


_key = broker_key


@dataclass(frozen=True, slots=True)
class Settings(ShareConfigs):
    """Values of one broker. Kafka's defaults, but for the speed of groups.

    ``group.initial.rebalance.delay.ms`` is 0; the intervals of heartbeats (``group.consumer.heartbeat.interval.ms``,
    ``group.share.heartbeat.interval.ms``) and their minimums are 1 s.
    """

    advertised_host: str = _key("advertised.host.name", "")
    advertised_listeners: str = _key("advertised.listeners", "")
    auto_create_topics: bool = _key("auto.create.topics.enable", True)
    num_partitions: int = _key("num.partitions", 1)
    message_max_bytes: int = _key("message.max.bytes", 1_048_588)
    max_decompressed_message_bytes: int = _key("max.decompressed.message.bytes", MOST_DECOMPRESSED)
    retention_bytes: int = _key("log.retention.bytes", -1)
    retention_ms: int = _key("log.retention.ms", 604_800_000)
    retention_check_interval_ms: int = _key("log.retention.check.interval.ms", 300_000)
    cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms", 15_000)
    segment_bytes: int = _key("log.segment.bytes", 1_073_741_824)
    roll_ms: int = _key("log.roll.ms", 604_800_000)
    socket_request_max_bytes: int = _key("socket.request.max.bytes", 104_857_600)
    queued_max_request_bytes: int = _key("queued.max.request.bytes", -1)
    max_connections: int = _key("max.connections", 2**31 - 1)
    max_connections_per_ip: int = _key("max.connections.per.ip", 2**31 - 1)
    sasl_max_receive_size: int = _key("sasl.server.max.receive.size", 524_288)
    connections_max_idle_ms: int = _key("connections.max.idle.ms", 600_000)
    connections_max_reauth_ms: int = _key("connections.max.reauth.ms", 0)
    failed_login_delay_ms: int = _key("connection.failed.authentication.delay.ms", 100)
    fetch_max_bytes: int = _key("fetch.max.bytes", 57_671_680)
    fetch_session_slots: int = _key("max.incremental.fetch.session.cache.slots", 1_000)
    group_min_session_timeout_ms: int = _key("group.min.session.timeout.ms", 6_000)
    group_max_session_timeout_ms: int = _key("group.max.session.timeout.ms", 1_800_000)
    group_initial_rebalance_delay_ms: int = _key("group.initial.rebalance.delay.ms", 0)
    group_max_size: int = _key("group.max.size", 2**31 - 1)
    rebalance_protocols: str = _key("group.coordinator.rebalance.protocols", "classic,consumer")
    consumer_session_timeout_ms: int = _key("group.consumer.session.timeout.ms", 45_000)
    consumer_min_session_timeout_ms: int = _key("group.consumer.min.session.timeout.ms", 45_000)
    consumer_max_session_timeout_ms: int = _key("group.consumer.max.session.timeout.ms", 60_000)
    consumer_heartbeat_interval_ms: int = _key("group.consumer.heartbeat.interval.ms", 1_000)
    consumer_min_heartbeat_interval_ms: int = _key("group.consumer.min.heartbeat.interval.ms", 1_000)
    consumer_max_heartbeat_interval_ms: int = _key("group.consumer.max.heartbeat.interval.ms", 15_000)
    consumer_assignment_interval_ms: int = _key("group.consumer.assignment.interval.ms", 1_000)
    consumer_max_assignment_interval_ms: int = _key("group.consumer.max.assignment.interval.ms", 15_000)
    consumer_max_size: int = _key("group.consumer.max.size", 2**31 - 1)
    consumer_assignors: str = _key("group.consumer.assignors", "uniform,range")
    consumer_migration_policy: str = _key("group.consumer.migration.policy", "bidirectional")
    consumer_regex_refresh_interval_ms: int = _key("group.consumer.regex.refresh.interval.ms", 600_000)
    producer_id_expiration_ms: int = _key("producer.id.expiration.ms", 86_400_000)
    producer_id_expiration_check_interval_ms: int = _key("producer.id.expiration.check.interval.ms", 600_000)
    transaction_max_timeout_ms: int = _key("transaction.max.timeout.ms", 900_000)
    transactional_id_expiration_ms: int = _key("transactional.id.expiration.ms", 604_800_000)
    transactional_id_expiration_check_interval_ms: int = _key(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000
    )
    offset_metadata_max_bytes: int = _key("offset.metadata.max.bytes", 4_096)
    offsets_retention_minutes: int = _key("offsets.retention.minutes", 10_080)
    offsets_retention_check_interval_ms: int = _key("offsets.retention.check.interval.ms", 600_000)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Settings:
        """Read Kafka's names; numbers and booleans may be text.

        Raises:
            ConfigError: an unknown key, or a value of the wrong kind.
        """
        rows = {each.metadata["name"]: each for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in config.items():
            row = rows.get(name)
            if row is None:
                near = difflib.get_close_matches(name, rows, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "docs/configuration.md lists its keys"
                raise ConfigError(f"the embedded broker has no configuration key {name!r}; {hint}")
            values[row.name] = _convert(name, value, row.default)
        settings = cls(**values)
        settings.check_connections()
        settings.check_groups()
        return settings

    def check_connections(self) -> None:
        """Refuse bounds that cannot be kept.

        Raises:
            ConfigError: which, and why.
        """
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                "queued.max.request.bytes must be at least socket.request.max.bytes "
                f"({self.socket_request_max_bytes}), or -1 for no bound, not {self.queued_max_request_bytes}"
            )
        if min(self.max_connections, self.max_connections_per_ip) < 0:
            raise ConfigError("max.connections and max.connections.per.ip must be at least 0")

    def check_groups(self) -> None:
        """Refuse values of groups that contradict each other, or that name what is not there.

        Raises:
            ConfigError: which, and why.
        """
        for what, least, value, most in (
            (
                "session.timeout.ms",
                self.consumer_min_session_timeout_ms,
                self.consumer_session_timeout_ms,
                self.consumer_max_session_timeout_ms,
            ),
            (
                "heartbeat.interval.ms",
                self.consumer_min_heartbeat_interval_ms,
                self.consumer_heartbeat_interval_ms,
                self.consumer_max_heartbeat_interval_ms,
            ),
        ):
            if not least <= value <= most:
                raise ConfigError(f"group.consumer.{what} must be between {least} and {most}, not {value}")
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms"
            )
        unknown = set(_names(self.consumer_assignors)) - {"uniform", "range"}
        if unknown or not _names(self.consumer_assignors):
            raise ConfigError("group.consumer.assignors knows uniform and range, the default first")
        if not {"classic"} <= set(_names(self.rebalance_protocols)) <= {"classic", "consumer"}:
            raise ConfigError("group.coordinator.rebalance.protocols is 'classic' or 'classic,consumer'")
        if self.consumer_migration_policy not in ("bidirectional", "upgrade", "downgrade", "disabled"):
            raise ConfigError(
                "group.consumer.migration.policy is bidirectional, upgrade, downgrade or disabled"
            )
        for fault in self.share_faults():
            raise ConfigError(fault)

    def describe(self) -> dict[str, str]:
        """Every key and its value as text, for DescribeConfigs."""
        return {each.metadata["name"]: _text(getattr(self, each.name)) for each in fields(self)}

    def log(self) -> LogConfig:
        """The defaults of a topic's log."""
        return LogConfig(
            max_message_bytes=self.message_max_bytes,
            max_decompressed_bytes=self.max_decompressed_message_bytes,
            retention_bytes=self.retention_bytes,
            retention_ms=self.retention_ms,
            segment_bytes=self.segment_bytes,
            segment_ms=self.roll_ms,
        )

    def limits(self) -> Limits:
        """The part that belongs to connections."""
        return Limits(
            max_frame_bytes=self.socket_request_max_bytes,
            max_login_frame_bytes=min(self.sasl_max_receive_size, self.socket_request_max_bytes),
            max_idle_ms=self.connections_max_idle_ms,
            max_reauth_ms=self.connections_max_reauth_ms,
            max_request_bytes=self.queued_max_request_bytes,
            max_connections=self.max_connections,
            max_connections_per_ip=self.max_connections_per_ip,
        )

    def coordinator(self) -> CoordinatorConfig:
        """The part that belongs to the group coordinator."""
        return CoordinatorConfig(
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            max_size=self.group_max_size,
            max_batch_bytes=self.message_max_bytes,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            rebalance_protocols=frozenset(_names(self.rebalance_protocols)),
            consumer_session_timeout_ms=self.consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=self.consumer_min_session_timeout_ms,
            consumer_max_session_timeout_ms=self.consumer_max_session_timeout_ms,
            consumer_heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=self.consumer_min_heartbeat_interval_ms,
            consumer_max_heartbeat_interval_ms=self.consumer_max_heartbeat_interval_ms,
            consumer_assignment_interval_ms=self.consumer_assignment_interval_ms,
            consumer_max_assignment_interval_ms=self.consumer_max_assignment_interval_ms,
            consumer_max_size=self.consumer_max_size,
            consumer_assignors=tuple(_names(self.consumer_assignors)),
            consumer_regex_refresh_interval_ms=self.consumer_regex_refresh_interval_ms,
            consumer_upgrades=self.consumer_migration_policy in ("bidirectional", "upgrade"),
            consumer_downgrades=self.consumer_migration_policy in ("bidirectional", "downgrade"),
            share=self.share_groups(),
        )

    def transactions(self) -> TransactionConfig:
        """The part that belongs to the transaction coordinator."""
        return TransactionConfig(
            max_timeout_ms=self.transaction_max_timeout_ms,
            expiration_ms=self.transactional_id_expiration_ms,
            expiration_interval_ms=self.transactional_id_expiration_check_interval_ms,
        )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _convert(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        text = str(value).lower()
        if text in ("true", "false"):
            return text == "true"
        raise ConfigError(f"{name} must be true or false, not {value!r}")
    if isinstance(default, int):
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool):
            raise ConfigError(f"{name} must be a whole number, not {value!r}")
        return number
    return str(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
