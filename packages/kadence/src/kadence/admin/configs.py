"""Settings of topics, brokers and groups: the messages and what their answers mean (KIP-133)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Literal

from kadence.admin.arguments import as_name, several
from kadence.admin.calls import ANY_NODE, Ask, Calls, operation, refusal
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)

__all__ = [
    "KINDS",
    "ConfigEntry",
    "ConfigResource",
    "as_resources",
    "by_node_of",
    "describe_configs",
    "refused",
    "text_of",
]


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


KINDS: Final = {"topic": 2, "broker": 4, "group": 32}
_DEFAULT_CONFIG_SOURCE: Final = 5


@operation
def describe_configs(
    calls: Calls, deadline: int, resources: ConfigResource | Iterable[ConfigResource]
) -> Waits[Outcomes[ConfigResource, dict[str, ConfigEntry]]]:
    """The settings of topics, brokers or groups, by name."""

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> Waits[dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]]:
        by_node = yield from by_node_of(calls, resources, deadline)
        asks = [
            Ask(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(KINDS[resource.kind], resource.name, None)
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
                item = items.get((KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = _configs(resource, item)
        return result

    return calls.settle(as_resources(resources), attempt, deadline)


def by_node_of(
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


def text_of(value: str | float | bool) -> str:
    """A value as brokers take it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refused(resource: ConfigResource, item: Any) -> KafkaError:
    """The error of a resource in an answer."""
    return refusal(item.error_code, f"{resource.kind} {resource.name!r}", item.error_message)


def _configs(resource: ConfigResource, item: DescribeConfigsResult) -> dict[str, ConfigEntry] | KafkaError:
    if item.error_code:
        return refused(resource, item)
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
