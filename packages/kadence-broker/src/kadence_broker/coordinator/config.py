"""The configuration of a group coordinator. Names and meanings are those of Kafka's broker configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from kadence_broker.coordinator.share.config import ShareGroupConfig

__all__ = ["CoordinatorConfig"]


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """All durations in milliseconds.

    Attributes:
        min_session_timeout_ms, max_session_timeout_ms: bounds for members, else INVALID_SESSION_TIMEOUT (B8).
        initial_rebalance_delay_ms: the time for which the first rebalance of an empty group waits for more members.
            Kafka's broker defaults to 3 s; here 0, so that tests with an embedded broker are fast.
        max_size: the most members of a group.
        new_member_join_timeout_ms: how long a first JoinGroup may stay parked before its member is removed.
        max_batch_bytes: the most bytes of the records of one request together (``message.max.bytes``).
        offset_metadata_max_bytes: the most bytes of a committed offset's metadata.
        offsets_retention_ms, offsets_retention_check_interval_ms: expiry of committed offsets.
        rebalance_protocols: without ``consumer`` the heartbeats of KIP-848 are refused
            (``group.coordinator.rebalance.protocols``).
        consumer_session_timeout_ms, consumer_heartbeat_interval_ms, consumer_assignment_interval_ms: of KIP-848 groups
            (``group.consumer.*``), unless a group has its own; the bounds are for those. Kafka's broker has a
            heartbeat interval of 5 s, and members get new assignments by heartbeats; here 1 s, to be fast.
        consumer_max_size: the most members of a KIP-848 group.
        consumer_assignors: the names that members may use; the first is the default.
        consumer_regex_refresh_interval_ms: regular expressions are matched again after this time in any case.
        consumer_upgrades, consumer_downgrades: whether groups with members change the protocol
            (``group.consumer.migration.policy``).
        share: of share groups.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    max_batch_bytes: int = 1_048_588
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 1_000
    consumer_min_heartbeat_interval_ms: int = 1_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_max_assignment_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_upgrades: bool = True
    consumer_downgrades: bool = True
    share: ShareGroupConfig = field(default_factory=ShareGroupConfig)
