"""The broker's keys of share groups (KIP-932, KIP-1191, KIP-1240), with Kafka 4.4's defaults, but for the heartbeats.

`kadence_broker.settings.Settings` has them among its own. ``group.share.heartbeat.interval.ms`` and its minimum are
1 s: a member gets a new assignment by its next heartbeat. ``share.version`` is no key of Kafka's broker; there it is a
feature, which a tool sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kadence_broker.coordinator.bounds import Bounds
from kadence_broker.coordinator.share.config import ShareGroupConfig

__all__ = ["ShareConfigs", "broker_key"]


def broker_key(name: str, default: int | bool | str) -> Any:
    """A field of a dataclass with the name of its key."""
    return field(default=default, metadata={"name": name})


_key = broker_key


@dataclass(frozen=True, slots=True)
class ShareConfigs:
    """Values of one broker."""

    share_version: int = _key("share.version", 2)
    share_max_size: int = _key("group.share.max.size", 200)
    share_max_sessions: int = _key("group.share.max.share.sessions", 2_000)
    share_assignors: str = _key("group.share.assignors", "simple")
    share_session_timeout_ms: int = _key("group.share.session.timeout.ms", 45_000)
    share_min_session_timeout_ms: int = _key("group.share.min.session.timeout.ms", 45_000)
    share_max_session_timeout_ms: int = _key("group.share.max.session.timeout.ms", 60_000)
    share_heartbeat_interval_ms: int = _key("group.share.heartbeat.interval.ms", 1_000)
    share_min_heartbeat_interval_ms: int = _key("group.share.min.heartbeat.interval.ms", 1_000)
    share_max_heartbeat_interval_ms: int = _key("group.share.max.heartbeat.interval.ms", 15_000)
    share_assignment_interval_ms: int = _key("group.share.assignment.interval.ms", 1_000)
    share_min_assignment_interval_ms: int = _key("group.share.min.assignment.interval.ms", 0)
    share_max_assignment_interval_ms: int = _key("group.share.max.assignment.interval.ms", 15_000)
    share_initialize_retry_interval_ms: int = _key("group.share.initialize.retry.interval.ms", 30_000)
    share_record_lock_duration_ms: int = _key("group.share.record.lock.duration.ms", 30_000)
    share_min_record_lock_duration_ms: int = _key("group.share.min.record.lock.duration.ms", 15_000)
    share_max_record_lock_duration_ms: int = _key("group.share.max.record.lock.duration.ms", 60_000)
    share_delivery_count_limit: int = _key("group.share.delivery.count.limit", 5)
    share_min_delivery_count_limit: int = _key("group.share.min.delivery.count.limit", 2)
    share_max_delivery_count_limit: int = _key("group.share.max.delivery.count.limit", 10)
    share_partition_max_record_locks: int = _key("group.share.partition.max.record.locks", 2_000)
    share_min_partition_max_record_locks: int = _key("group.share.min.partition.max.record.locks", 100)
    share_max_partition_max_record_locks: int = _key("group.share.max.partition.max.record.locks", 4_000)
    dead_letter_prefix: str = _key("errors.deadletterqueue.topic.name.prefix", "dlq.")
    dead_letter_auto_create: bool = _key("errors.deadletterqueue.auto.create.topics.enable", False)

    def share_groups(self) -> ShareGroupConfig:
        """The part that belongs to the group coordinator."""
        return ShareGroupConfig(
            version=self.share_version,
            max_size=self.share_max_size,
            initialize_retry_interval_ms=self.share_initialize_retry_interval_ms,
            session_timeout_ms=self._bounds("session_timeout_ms"),
            heartbeat_interval_ms=self._bounds("heartbeat_interval_ms"),
            assignment_interval_ms=self._bounds("assignment_interval_ms"),
            record_lock_duration_ms=self._bounds("record_lock_duration_ms"),
            delivery_count_limit=self._bounds("delivery_count_limit"),
            partition_max_record_locks=self._bounds("partition_max_record_locks"),
        )

    def _bounds(self, what: str) -> Bounds:
        value, least, most = (getattr(self, f"share_{part}{what}") for part in ("", "min_", "max_"))
        return Bounds(value, least, most)

    def share_faults(self) -> Iterator[str]:
        """What is wrong with these values."""
        if not 0 <= self.share_version <= 2:
            yield f"share.version is 0 (no share groups), 1 or 2, not {self.share_version}"
        if not 1 <= self.share_max_size <= 1_000:
            yield f"group.share.max.size must be between 1 and 1000, not {self.share_max_size}"
        if self.share_max_sessions < self.share_max_size:
            yield (
                f"group.share.max.share.sessions ({self.share_max_sessions}) must be at least "
                f"group.share.max.size ({self.share_max_size})"
            )
        if self.share_assignors.strip() != "simple":
            yield "group.share.assignors knows only simple"
        groups = self.share_groups()
        for what in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "assignment_interval_ms",
            "record_lock_duration_ms",
            "delivery_count_limit",
            "partition_max_record_locks",
        ):
            bounds: Bounds = getattr(groups, what)
            if not bounds.is_kept:
                name = f"group.share.{what.replace('_', '.')}"
                yield f"{name} must be between {bounds.least} and {bounds.most}, not {bounds.value}"
        if groups.heartbeat_interval_ms.value >= groups.session_timeout_ms.value:
            yield "group.share.heartbeat.interval.ms must be below group.share.session.timeout.ms"
