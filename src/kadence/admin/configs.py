"""Settings of topics, brokers and groups: the messages and what their answers mean (KIP-133, KIP-339)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kadence.admin.calls import ANY_NODE, Ask, Calls, refusal
from kadence.admin.values import ConfigChange, ConfigEntry, ConfigResource, Outcomes
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

__all__ = ["ConfigValue", "describe_configs", "incremental_alter_configs", "text_of"]

ConfigValue = ConfigChange | str | int | float | bool | None
"""What a setting becomes: a value, None for its default, or a `ConfigChange`."""

_KINDS: Final = {"topic": 2, "broker": 4, "group": 32}
_OPERATIONS: Final = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
_DEFAULT_CONFIG_SOURCE: Final = 5


def describe_configs(
    calls: Calls, deadline: int, resources: Iterable[ConfigResource]
) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
    """Settings; a broker's are asked from that broker."""

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        by_node = _by_node(calls, resources, deadline)
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
        for group, answer in zip(by_node.values(), calls.ask_all(asks, deadline), strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(group, answer))
                continue
            answers = {(item.resource_type, item.resource_name): item for item in answer.results}
            for resource in group:
                item = answers.get((_KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = _configs(resource, item)
        return result

    return calls.settle(resources, attempt, deadline)


def incremental_alter_configs(
    calls: Calls,
    deadline: int,
    changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
    *,
    validate_only: bool,
) -> Outcomes[ConfigResource, None]:
    """Change the settings that are named, and no others; all of a resource or none."""
    wanted = {
        resource: [_alterable(name, value) for name, value in settings.items()]
        for resource, settings in changes.items()
    }

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> dict[ConfigResource, None | KafkaError]:
        by_node = _by_node(calls, resources, deadline)
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
        for group, answer in zip(by_node.values(), calls.ask_all(asks, deadline), strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(group, answer))
                continue
            answers = {(item.resource_type, item.resource_name): item for item in answer.responses}
            for resource in group:
                item = answers.get((_KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = _refusal(resource, item) if item.error_code else None
        return result

    return calls.settle(wanted, attempt, deadline)


def _by_node(
    calls: Calls, resources: Iterable[ConfigResource], deadline: int
) -> dict[int, list[ConfigResource]]:
    """Whom to ask: a broker knows its own settings only; anything else any broker knows."""
    calls.metadata([], deadline)
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
