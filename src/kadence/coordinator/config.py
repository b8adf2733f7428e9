"""The configuration of a group coordinator. Names and meanings are those of Kafka's broker configuration."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CoordinatorConfig"]


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """All durations in milliseconds.

    Attributes:
        min_session_timeout_ms, max_session_timeout_ms: bounds for members, else INVALID_SESSION_TIMEOUT (B8).
        initial_rebalance_delay_ms: how long the first rebalance of an empty group waits for more members.
            Kafka's broker defaults to 3 s; here 0, since an embedded broker is there to be quick.
        max_size: members a group may have.
        new_member_join_timeout_ms: how long a first JoinGroup may stay parked before its member is given up.
        max_batch_bytes: what the records of one request may have together (``message.max.bytes``).
        offset_metadata_max_bytes: longest note beside a committed offset.
        offsets_retention_ms, offsets_retention_check_interval_ms: expiry of committed offsets.
        rebalance_protocols: without ``consumer`` KIP-848's heartbeats are refused
            (``group.coordinator.rebalance.protocols``).
        consumer_session_timeout_ms, consumer_heartbeat_interval_ms, consumer_assignment_interval_ms: of KIP-848 groups
            (``group.consumer.*``), unless a group has its own; the bounds are for those. Kafka's broker asks for a
            heartbeat each 5 s, and members learn by heartbeats what they may use; here each second, to be quick.
        consumer_max_size: members a KIP-848 group may have.
        consumer_assignors: those that members may name; the first is the default.
        consumer_regex_refresh_interval_ms: regular expressions are matched anew after it, whatever happened.
        consumer_upgrades, consumer_downgrades: whether live groups change the protocol
            (``group.consumer.migration.policy``).
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
