"""Configuration that a group may have of its own (KIP-848, KIP-932, KIP-1191), with Kafka 4.4's defaults and bounds.

Of Kafka's names those of consumers and of share groups are known: streams groups (KIP-1071) are not served. The
meaning and the bounds of the numbers are in `kadence_broker.coordinator.group_settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kadence.config.values import duration_ms
from kadence_broker.coordinator import CoordinatorConfig
from kadence_broker.coordinator.group_settings import BOUNDED, group_configs_fault, number_of
from kadence_broker.share.interface import SettingsOf, ShareSettings
from kadence_broker.topic_configs import TopicKey

__all__ = ["GROUP_KEYS", "check_group_config", "parsed_group_config", "settings_of", "stored_fault"]

_RESET: Final = "share.auto.offset.reset"
_ISOLATION: Final = "share.isolation.level"
_RENEW: Final = "share.renew.acknowledge.enable"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_COPY: Final = "errors.deadletterqueue.copy.record.enable"

GROUP_KEYS: Final[Mapping[str, TopicKey]] = {
    "consumer.assignment.interval.ms": TopicKey("1000", "INT", low=0),
    "consumer.heartbeat.interval.ms": TopicKey("5000", "INT", low=1),
    "consumer.session.timeout.ms": TopicKey("45000", "INT", low=1),
    _COPY: TopicKey("false", "BOOLEAN"),
    _DEAD_LETTERS: TopicKey("", "STRING"),
    "share.assignment.interval.ms": TopicKey("1000", "INT", low=0),
    _RESET: TopicKey("latest", "STRING"),
    "share.delivery.count.limit": TopicKey("5", "INT", low=2),
    "share.heartbeat.interval.ms": TopicKey("5000", "INT", low=1),
    _ISOLATION: TopicKey("read_uncommitted", "STRING", choices=("read_committed", "read_uncommitted")),
    "share.partition.max.record.locks": TopicKey("2000", "INT", low=100),
    "share.record.lock.duration.ms": TopicKey("30000", "INT", low=1000),
    _RENEW: TopicKey("true", "BOOLEAN"),
    "share.session.timeout.ms": TopicKey("45000", "INT", low=1),
}
"""The broker's key of a number has ``group.`` before it. The default is Kafka's; the broker may say otherwise."""


def check_group_config(coordinator: CoordinatorConfig, config: Mapping[str, str]) -> str | None:
    """The error of a group's configuration, in Kafka's words; None if it is valid."""
    for name, value in config.items():
        if name not in GROUP_KEYS:
            return f"Unknown group config name: {name}"
        fault = _fault(name, value)
        if fault is not None:
            return fault
    numbers = {name: int(value) for name, value in config.items() if name in BOUNDED}
    return group_configs_fault(coordinator, numbers) or _dead_letters_fault(config.get(_DEAD_LETTERS, ""))


def stored_fault(config: Mapping[str, str]) -> str | None:
    """The error of a stored configuration: a value that cannot be read. The bounds may have changed since."""
    faults = (_fault(name, value) for name, value in config.items() if name in GROUP_KEYS)
    return next((fault for fault in faults if fault is not None), None)


def _fault(name: str, value: str) -> str | None:
    fault = _reset_fault(value) if name == _RESET else GROUP_KEYS[name].fault(value)
    return None if fault is None else f"Invalid value {value} for configuration {name}: {fault}"


def _reset_fault(value: str) -> str | None:
    word, _, duration = value.partition(":")
    try:
        if value in ("earliest", "latest") or (word == "by_duration" and duration_ms(duration) >= 0):
            return None
    except ValueError:
        pass
    return (
        f"Invalid value `{value}` for configuration {_RESET}. The value must be either 'earliest', 'latest' or of the "
        "format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _dead_letters_fault(topic: str) -> str | None:
    return f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'" if topic.startswith("__") else None


def parsed_group_config(config: Mapping[str, str]) -> dict[str, str]:
    """Valid settings as Kafka parses and returns them."""
    return {name: GROUP_KEYS[name].parsed(value) for name, value in config.items()}


def settings_of(
    coordinator: CoordinatorConfig, group_configs: Callable[[str], Mapping[str, str]]
) -> SettingsOf:
    """The settings of groups as the leaders of partitions ask for them.

    Args:
        group_configs: what a group has set for itself at this moment.
    """
    inherited = _share_settings(coordinator, {})
    known: dict[str, tuple[Mapping[str, str], ShareSettings]] = {}

    def of_group(group_id: str) -> ShareSettings:
        own = group_configs(group_id)
        if not own:
            return inherited
        # What a group sets is a new mapping each time; leaders ask for it with every fetch.
        if group_id not in known or known[group_id][0] is not own:
            known[group_id] = own, _share_settings(coordinator, own)
        return known[group_id][1]

    return of_group


def _share_settings(coordinator: CoordinatorConfig, own: Mapping[str, str]) -> ShareSettings:
    return ShareSettings(
        lock_duration_ms=number_of(coordinator, own, "share.record.lock.duration.ms"),
        delivery_count_limit=number_of(coordinator, own, "share.delivery.count.limit"),
        max_record_locks=number_of(coordinator, own, "share.partition.max.record.locks"),
        read_committed=own.get(_ISOLATION) == "read_committed",
        offset_reset=own.get(_RESET, "latest"),
        renew_enabled=own.get(_RENEW, "true") == "true",
        dead_letter_topic=own.get(_DEAD_LETTERS, "") if coordinator.share.version >= 2 else "",
        dead_letter_copies=own.get(_COPY) == "true",
    )
