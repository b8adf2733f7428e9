"""The configuration of share groups. Names and meanings are those of Kafka's broker (``group.share.*``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kadence_broker.coordinator.bounds import Bounds

__all__ = ["SHARE_BOUNDS", "ShareGroupConfig"]


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """All durations in milliseconds.

    Attributes:
        version: the level of the feature ``share.version``: 0 refuses share groups, 2 has dead letters (KIP-1191).
        max_size: the most members of a group.
        initialize_retry_interval_ms: after this time without an answer, share-partitions are initialised again.
        session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: of the members. Kafka's broker has a
            heartbeat interval of 5 s, and members get new assignments by heartbeats; here 1 s, to be fast.
        record_lock_duration_ms, delivery_count_limit, partition_max_record_locks: for the leaders of partitions.
    """

    version: int = 2
    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000
    session_timeout_ms: Bounds = field(default=Bounds(45_000, 45_000, 60_000))
    heartbeat_interval_ms: Bounds = field(default=Bounds(1_000, 1_000, 15_000))
    assignment_interval_ms: Bounds = field(default=Bounds(1_000, 0, 15_000))
    record_lock_duration_ms: Bounds = field(default=Bounds(30_000, 15_000, 60_000))
    delivery_count_limit: Bounds = field(default=Bounds(5, 2, 10))
    partition_max_record_locks: Bounds = field(default=Bounds(2_000, 100, 4_000))


SHARE_BOUNDS: Final[Mapping[str, str]] = {
    "share.session.timeout.ms": "session_timeout_ms",
    "share.heartbeat.interval.ms": "heartbeat_interval_ms",
    "share.assignment.interval.ms": "assignment_interval_ms",
    "share.record.lock.duration.ms": "record_lock_duration_ms",
    "share.delivery.count.limit": "delivery_count_limit",
    "share.partition.max.record.locks": "partition_max_record_locks",
}
"""A group's key, and the attribute of `ShareGroupConfig` with its bounds."""
