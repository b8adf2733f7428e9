"""Numbers that a group may set for itself (``consumer.*``, KIP-848; ``share.*``, KIP-932), bounded by the broker's.

A setting that a group does not have is the broker's (``group.consumer.*``, ``group.share.*``). A group's settings are
in the cluster's configuration and not in `__consumer_offsets`: the broker sets them with
`GroupCoordinator.set_group_configs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from kadence_broker.coordinator.bounds import Bounds
from kadence_broker.coordinator.config import CoordinatorConfig
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.config import SHARE_BOUNDS

__all__ = [
    "BOUNDED",
    "assignment_interval",
    "group_configs_fault",
    "heartbeat_interval",
    "is_assignment_due",
    "number_of",
    "session_timeout",
    "set_group_configs",
]

_SESSION: Final = ".session.timeout.ms"
_HEARTBEAT: Final = ".heartbeat.interval.ms"
_ASSIGNMENT: Final = ".assignment.interval.ms"


def _share_bounds(attribute: str, config: CoordinatorConfig) -> Bounds:
    bounds: Bounds = getattr(config.share, attribute)
    return bounds


BOUNDED: Final[Mapping[str, Callable[[CoordinatorConfig], Bounds]]] = {
    "consumer.session.timeout.ms": lambda config: Bounds(
        config.consumer_session_timeout_ms,
        config.consumer_min_session_timeout_ms,
        config.consumer_max_session_timeout_ms,
    ),
    "consumer.heartbeat.interval.ms": lambda config: Bounds(
        config.consumer_heartbeat_interval_ms,
        config.consumer_min_heartbeat_interval_ms,
        config.consumer_max_heartbeat_interval_ms,
    ),
    "consumer.assignment.interval.ms": lambda config: Bounds(
        config.consumer_assignment_interval_ms, 0, config.consumer_max_assignment_interval_ms
    ),
    **{name: partial(_share_bounds, attribute) for name, attribute in SHARE_BOUNDS.items()},
}
"""The settings that a group may have, and what the broker allows."""


def group_configs_fault(config: CoordinatorConfig, configs: Mapping[str, int]) -> str | None:
    """The reason why a group may not have ``configs``, in Kafka 4.4's words; None if it may."""
    for name, value in configs.items():
        _, least, most = BOUNDED[name](config)
        if not least <= value <= most:
            return f"{name} must be in the range {least} to {most} inclusive."
    for kind in ("consumer", "share"):
        session, heartbeat = kind + _SESSION, kind + _HEARTBEAT
        if session in configs or heartbeat in configs:
            timeout = configs.get(session, BOUNDED[session](config).value)
            if timeout <= configs.get(heartbeat, BOUNDED[heartbeat](config).value):
                return f"{session} must be greater than {heartbeat}"
    return None


def set_group_configs(shard: Shard, group_id: str, configs: Mapping[str, str]) -> None:
    """Replace a group's own settings; empty: it uses the broker's.

    Values beyond the broker's bounds, which may have changed since they were set, count as the bound.
    """
    if configs:
        shard.group_configs[group_id] = dict(configs)
    else:
        shard.group_configs.pop(group_id, None)


def session_timeout(shard: Shard, group_id: str, kind: str = "consumer") -> int:
    """The session timeout of a member, in ms."""
    return _of(shard, group_id, kind + _SESSION)


def heartbeat_interval(shard: Shard, group_id: str, kind: str = "consumer") -> int:
    """The interval between heartbeats, in ms."""
    return _of(shard, group_id, kind + _HEARTBEAT)


def assignment_interval(shard: Shard, group_id: str, kind: str = "consumer") -> int:
    """The least time between two target assignments, in ms (KIP-1263)."""
    return _of(shard, group_id, kind + _ASSIGNMENT)


class _Assigned(Protocol):
    """A group whose target assignment this coordinator makes."""

    group_id: str
    target_timestamp: int

    @property
    def kind(self) -> str: ...


def is_assignment_due(shard: Shard, group: _Assigned, time_of_day: int) -> bool:
    """True if the interval since the group's last target is over.

    After the clock was set back, the last time is in the future: waiting for it could take days.
    """
    last = group.target_timestamp
    interval = assignment_interval(shard, group.group_id, group.kind)
    return not last or not last <= time_of_day < last + interval


def _of(shard: Shard, group_id: str, name: str) -> int:
    return number_of(shard.config, shard.group_configs.get(group_id, {}), name)


def number_of(config: CoordinatorConfig, own: Mapping[str, str], name: str) -> int:
    """The value of ``name`` that counts for a group with ``own`` settings."""
    bounds = BOUNDED[name](config)
    value = own.get(name)
    return bounds.value if value is None else bounds.clamped(int(value))
