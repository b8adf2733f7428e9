"""Configuration that a group may have of its own (KIP-848), with Kafka 4.3's defaults and least values.

Of Kafka's names only those of consumers are known: share groups (KIP-932) and streams groups (KIP-1071) are not served.
The meaning of the values is in `kadence_broker.coordinator.consumer.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kadence_broker.coordinator import CoordinatorConfig
from kadence_broker.coordinator.consumer.settings import group_configs_fault
from kadence_broker.topic_configs import TopicKey

__all__ = ["GROUP_KEYS", "check_group_config"]

GROUP_KEYS: Final[Mapping[str, TopicKey]] = {
    "consumer.assignment.interval.ms": TopicKey("1000", "INT", low=0),
    "consumer.heartbeat.interval.ms": TopicKey("5000", "INT", low=1),
    "consumer.session.timeout.ms": TopicKey("45000", "INT", low=1),
}
"""The broker's key has ``group.`` before it. The default is Kafka's; the broker may say otherwise."""


def check_group_config(coordinator: CoordinatorConfig, config: Mapping[str, str]) -> str | None:
    """The error of a group's configuration, in Kafka's words; None if it is valid."""
    for name, value in config.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            return f"Unknown group config name: {name}"
        fault = key.fault(value)
        if fault is not None:
            return f"Invalid value {value} for configuration {name}: {fault}"
    return group_configs_fault(coordinator, {name: int(value) for name, value in config.items()})
