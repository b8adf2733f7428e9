"""Settings of topics, brokers and groups: the messages and what their answers mean (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from kadence.admin.arguments import as_name, check, several
from kadence.admin.calls import ANY_NODE, Ask, Calls, operation, refusal
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

__all__ = ["ConfigChange", "ConfigEntry", "ConfigResource", "describe_configs", "incremental_alter_configs"]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, broker or group with settings: ``kind`` is "topic", "broker" or "group"."""

    kind: Literal["topic", "broker", "group"]
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. ``value`` is None if it is secret or not set."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of a setting (KIP-339).

    Attributes:
        operation: "set": set the value. "delete": return to the default. "append", "subtract": add entries to a
            list, or remove them.
        value: the value, or the entries with commas between them; None with "delete".
    """

    operation: Literal["set", "delete", "append", "subtract"]
    value: str | None = None


ConfigValue = ConfigChange | str | int | float | bool | None
"""The new value of a setting: a value, None for its default, or a `ConfigChange`."""

V = TypeVar("V")

_KINDS: Final = {"topic": 2, "broker": 4, "group": 32}
_OPERATIONS: Final = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
_DEFAULT_CONFIG_SOURCE: Final = 5


@operation
def describe_configs(
    calls: Calls, deadline: int, resources: ConfigResource | Iterable[ConfigResource]
) -> Waits[Outcomes[ConfigResource, dict[str, ConfigEntry]]]:
    """The settings of topics, brokers or groups, by name."""

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> Waits[dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]]:
        by_node = yield from _by_node(calls, resources, deadline)
        asks = [
            Ask(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(_KINDS[resource.kind], resource.name, None)
                        for resource in group
                    ]
                ),
                node,
            )
            for node, group in by_node.items()
        ]
        result: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
        answers = yield from calls.ask_all(asks, deadline)
        for group, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(group, answer))
                continue
            items = {(item.resource_type, item.resource_name): item for item in answer.results}
            for resource in group:
                item = items.get((_KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = _configs(resource, item)
        return result

    return calls.settle(as_resources(resources), attempt, deadline)


@operation
def incremental_alter_configs(
    calls: Calls,
    deadline: int,
    changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
    *,
    validate_only: bool = False,
) -> Waits[Outcomes[ConfigResource, None]]:
    """Change these settings and leave all others as they are (KIP-339).

    Of one resource either all changes are made, or none.

    Args:
        changes: the new value of each setting, None for its default, or a `ConfigChange`, e.g.
            ``{ConfigResource("topic", "orders"): {"retention.ms": 86_400_000, "max.message.bytes": None}}``. A
            broker named "" stands for the defaults of all brokers.
        validate_only: let the broker check the changes without making them.

    Raises:
        BrokerError: INVALID_CONFIG: an unknown setting, or a value that the setting does not allow.
    """
    wanted = {
        resource: [_alterable(name, value) for name, value in settings.items()]
        for resource, settings in as_changes(changes).items()
    }

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> Waits[dict[ConfigResource, None | KafkaError]]:
        by_node = yield from _by_node(calls, resources, deadline)
        asks = [
            Ask(
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(_KINDS[resource.kind], resource.name, wanted[resource])
                        for resource in group
                    ],
                    validate_only=validate_only,
                ),
                node,
            )
            for node, group in by_node.items()
        ]
        result: dict[ConfigResource, None | KafkaError] = {}
        answers = yield from calls.ask_all(asks, deadline)
        for group, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(group, answer))
                continue
            items = {(item.resource_type, item.resource_name): item for item in answer.responses}
            for resource in group:
                item = items.get((_KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = _refusal(resource, item) if item.error_code else None
        return result

    return calls.settle(wanted, attempt, deadline)


def _by_node(
    calls: Calls, resources: Iterable[ConfigResource], deadline: int
) -> Waits[dict[int, list[ConfigResource]]]:
    """Whom to ask: a broker knows its own settings only; anything else any broker knows."""
    yield from calls.metadata([], deadline)
    by_node: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        # A broker without a name stands for the defaults of all.
        node = int(resource.name) if resource.kind == "broker" and resource.name else ANY_NODE
        by_node.setdefault(node, []).append(resource)
    return by_node


def _alterable(name: str, value: ConfigValue) -> AlterableConfig:
    if not isinstance(value, ConfigChange):
        value = ConfigChange("delete") if value is None else ConfigChange("set", text_of(value))
    if value.operation not in _OPERATIONS:
        raise ValueError(f"{name}: the operation is one of {', '.join(_OPERATIONS)}, not {value.operation!r}")
    return AlterableConfig(name, _OPERATIONS[value.operation], value.value)


def text_of(value: str | float | bool) -> str:
    """A value as brokers take it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refusal(resource: ConfigResource, item: Any) -> KafkaError:
    return refusal(item.error_code, f"{resource.kind} {resource.name!r}", item.error_message)


def _configs(resource: ConfigResource, item: DescribeConfigsResult) -> dict[str, ConfigEntry] | KafkaError:
    if item.error_code:
        return _refusal(resource, item)
    return {
        entry.name: ConfigEntry(
            entry.name,
            entry.value,
            entry.config_source == _DEFAULT_CONFIG_SOURCE,
            entry.read_only,
            entry.is_sensitive,
        )
        for entry in sorted(item.configs, key=lambda entry: entry.name)
    }


def as_resources(resources: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    """Check resources; one or several."""
    wanted = "settings are of ConfigResource values, such as ConfigResource('topic', 'orders')"
    found = several(resources, (ConfigResource,), wanted)
    for each in found:
        if each.kind not in ("topic", "broker", "group"):
            raise ValueError(f"the kind of a ConfigResource is topic, broker or group, not {each.kind!r}")
        as_name(f"the name of a {each.kind} in a ConfigResource", each.name)
        if each.kind == "broker" and each.name and not each.name.isdecimal():
            raise ValueError(
                f"a broker's name in a ConfigResource is its number, such as '1', or '' for all, not {each.name!r}"
            )
    return found


def as_changes(changes: Mapping[ConfigResource, Mapping[str, V]]) -> Mapping[ConfigResource, Mapping[str, V]]:
    """Check the settings to change, by resource."""
    wanted = "changes are {ConfigResource('topic', 'orders'): {'retention.ms': 3600000}}"
    check(changes, Mapping, wanted)
    as_resources(changes)
    for settings in changes.values():
        check(settings, Mapping, wanted)
        for name in settings:
            as_name("the name of a setting", name)
    return changes
