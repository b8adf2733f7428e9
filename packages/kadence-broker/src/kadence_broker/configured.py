"""The configuration that clients may change, of topics and groups: one interface for both APIs that change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from kadence.protocol import error_codes as codes
from kadence_broker.cluster import Topic, is_valid_topic_name
from kadence_broker.group_configs import GROUP_KEYS, check_group_config, parsed_group_config
from kadence_broker.service import Services
from kadence_broker.topic_configs import TOPIC_KEYS, TopicKey, check_topic_config, contradiction, parsed

__all__ = ["DELETE", "GROUP", "KEYS", "TOPIC", "Configured", "Fault", "find_configured"]

TOPIC: Final = 2
GROUP: Final = 32
"""Types of resources in the protocol."""

KEYS: Final[Mapping[int, Mapping[str, TopicKey]]] = {TOPIC: TOPIC_KEYS, GROUP: GROUP_KEYS}
"""The names that are known for each type."""

DELETE: Final = 1
"""The operation of IncrementalAlterConfigs that needs no value."""

Fault = tuple[int, str | None]


class Configured(Protocol):
    """One topic or group.

    Attributes:
        noun: its name in Kafka's messages. config: its settings.
    """

    noun: str

    @property
    def config(self) -> Mapping[str, str]: ...

    def fault(self, config: Mapping[str, str], names: Iterable[str]) -> Fault | None:
        """The error of ``config``, in which ``names`` are new; None if it is valid."""

    def configure(self, config: Mapping[str, str]) -> None:
        """Let ``config`` be all that is set. Raises `OSError`: the disk takes no more, and nothing has changed."""


class _TopicConfig:
    noun = "topic"

    def __init__(self, services: Services, topic: Topic) -> None:
        self._cluster = services.cluster
        self._topic = topic

    @property
    def config(self) -> Mapping[str, str]:
        return self._topic.config

    def fault(self, config: Mapping[str, str], names: Iterable[str]) -> Fault | None:
        # A topic of the coordinators is compacted in name, so earlier settings stay; new ones are checked.
        new = {name: config[name] for name in names if name in config}
        wrong = check_topic_config(new) or contradiction(config)
        return None if wrong is None else (codes.INVALID_CONFIG, wrong)

    def configure(self, config: Mapping[str, str]) -> None:
        before = self._topic.config
        try:
            self._cluster.configure(self._topic, parsed(config))
            self._cluster.keep(self._topic)
        except OSError:
            self._cluster.configure(self._topic, before)
            raise


class _GroupConfig:
    noun = "group"

    def __init__(self, services: Services, group_id: str) -> None:
        self._services = services
        self._group_id = group_id

    @property
    def config(self) -> Mapping[str, str]:
        return self._services.cluster.group_configs.get(self._group_id, {})

    def fault(self, config: Mapping[str, str], names: Iterable[str]) -> Fault | None:
        wrong = check_group_config(self._services.settings.coordinator(), config)
        return None if wrong is None else (codes.INVALID_CONFIG, wrong)

    def configure(self, config: Mapping[str, str]) -> None:
        self._services.coordination.configure_group(self._group_id, parsed_group_config(config))


def find_configured(services: Services, resource_type: int, name: str) -> Configured | Fault:
    """The topic or group that a request names, or why it cannot be configured. A group need not exist yet."""
    if resource_type == GROUP:
        if not name:
            return codes.INVALID_REQUEST, "Default group resources are not allowed."
        return _GroupConfig(services, name)
    if resource_type != TOPIC:
        return (
            codes.INVALID_REQUEST,
            "Only the configuration of topics (2) and groups (32) can be changed here.",
        )
    if not name:
        return codes.INVALID_REQUEST, "Topics have no configuration in common that could be changed."
    if not is_valid_topic_name(name):
        return codes.INVALID_TOPIC_EXCEPTION, "No topic can have this name."
    topic = services.cluster.topics.get(name)
    if topic is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist."
    return _TopicConfig(services, topic)
