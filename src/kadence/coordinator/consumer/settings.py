"""Settings of KIP-848 groups: of the broker (``group.consumer.*``), and of single groups (``consumer.*``, KIP-848).

What a group does not set for itself is the broker's. A group's settings live in the cluster's configuration and not in
`__consumer_offsets`: the broker hands them in by `GroupCoordinator.set_group_config`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.coordinator.config import CoordinatorConfig
from kadence.coordinator.shard import Shard

__all__ = [
    "GROUP_CONFIGS",
    "assignment_interval",
    "heartbeat_interval",
    "session_timeout",
    "set_group_config",
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
"""What a group may set: its default, and the least and the most that the broker allows."""


def set_group_config(shard: Shard, group_id: str, name: str, value: int | None) -> None:
    """Give a group a setting of its own; None takes it away.

    Raises:
        KeyError: no such setting.
        ValueError: beyond what the broker allows, or a session no longer than a heartbeat; in Kafka's words.
    """
    _, least, most = GROUP_CONFIGS[name](shard.config)
    configs = dict(shard.group_configs.get(group_id, {}))
    if value is None:
        configs.pop(name, None)
    else:
        if value < least:
            raise ValueError(f"{name} must be greater than or equal to group.{name.replace('.', '.min.', 1)}")
        if value > most:
            raise ValueError(f"{name} must be less than or equal to group.{name.replace('.', '.max.', 1)}")
        configs[name] = value
    if _of(shard, configs, _SESSION) <= _of(shard, configs, _HEARTBEAT):
        raise ValueError(f"{_SESSION} must be greater than {_HEARTBEAT}")
    shard.group_configs[group_id] = configs


def session_timeout(shard: Shard, group_id: str) -> int:
    """How long a member may be silent, in ms."""
    return _of(shard, shard.group_configs.get(group_id, {}), _SESSION)


def heartbeat_interval(shard: Shard, group_id: str) -> int:
    """How often members are told to report, in ms."""
    return _of(shard, shard.group_configs.get(group_id, {}), _HEARTBEAT)


def assignment_interval(shard: Shard, group_id: str) -> int:
    """The least time between two target assignments, in ms (KIP-1263)."""
    return _of(shard, shard.group_configs.get(group_id, {}), _ASSIGNMENT)


def _of(shard: Shard, configs: dict[str, int], name: str) -> int:
    own = configs.get(name)
    return GROUP_CONFIGS[name](shard.config)[0] if own is None else own
