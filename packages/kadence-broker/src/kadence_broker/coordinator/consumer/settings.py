"""Settings of KIP-848 groups: of the broker (``group.consumer.*``), and of single groups (``consumer.*``, KIP-848).

A setting that a group does not have is the broker's. A group's settings are in the cluster's configuration and not in
`__consumer_offsets`: the broker sets them with `GroupCoordinator.set_group_configs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.shard import Shard

__all__ = [
    "GROUP_CONFIGS",
    "assignment_interval",
    "group_configs_fault",
    "heartbeat_interval",
    "session_timeout",
    "set_group_configs",
]

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_ASSIGNMENT: Final = "consumer.assignment.interval.ms"

GROUP_CONFIGS: Final[dict[str, Callable[[CoordinatorConfig], tuple[int, int, int]]]] = {
    _SESSION: lambda config: (
        config.consumer_session_timeout_ms,
        config.consumer_min_session_timeout_ms,
        config.consumer_max_session_timeout_ms,
    ),
    _HEARTBEAT: lambda config: (
        config.consumer_heartbeat_interval_ms,
        config.consumer_min_heartbeat_interval_ms,
        config.consumer_max_heartbeat_interval_ms,
    ),
    _ASSIGNMENT: lambda config: (
        config.consumer_assignment_interval_ms,
        0,
        config.consumer_max_assignment_interval_ms,
    ),
}
"""The settings that a group may have: the default, and the least and the most that the broker allows."""


def group_configs_fault(config: CoordinatorConfig, configs: Mapping[str, int]) -> str | None:
    """The reason why a group may not have ``configs``, in Kafka's words; None if it may."""
    for name, value in configs.items():
        _, least, most = GROUP_CONFIGS[name](config)
        if value < least:
            return f"{name} must be greater than or equal to group.{name.replace('.', '.min.', 1)}"
        if value > most:
            return f"{name} must be less than or equal to group.{name.replace('.', '.max.', 1)}"
    if _of(config, configs, _SESSION) <= _of(config, configs, _HEARTBEAT):
        return f"{_SESSION} must be greater than {_HEARTBEAT}"
    return None


def set_group_configs(shard: Shard, group_id: str, configs: Mapping[str, int]) -> None:
    """Replace a group's own settings; empty: it uses the broker's.

    Values beyond the broker's bounds, which may have changed since they were set, count as the bound.
    """
    if configs:
        shard.group_configs[group_id] = dict(configs)
    else:
        shard.group_configs.pop(group_id, None)


def session_timeout(shard: Shard, group_id: str) -> int:
    """The session timeout of a member, in ms."""
    return _of(shard.config, shard.group_configs.get(group_id, {}), _SESSION)


def heartbeat_interval(shard: Shard, group_id: str) -> int:
    """The interval between heartbeats, in ms."""
    return _of(shard.config, shard.group_configs.get(group_id, {}), _HEARTBEAT)


def assignment_interval(shard: Shard, group_id: str) -> int:
    """The least time between two target assignments, in ms (KIP-1263)."""
    return _of(shard.config, shard.group_configs.get(group_id, {}), _ASSIGNMENT)


def _of(config: CoordinatorConfig, configs: Mapping[str, int], name: str) -> int:
    default, least, most = GROUP_CONFIGS[name](config)
    own = configs.get(name)
    return default if own is None else max(least, min(own, most))
