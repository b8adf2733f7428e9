"""What a group coordinator can be told. Names and meanings are Kafka's broker configuration."""

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
        offset_metadata_max_bytes: longest note beside a committed offset.
        offsets_retention_ms, offsets_retention_check_interval_ms: expiry of committed offsets.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
