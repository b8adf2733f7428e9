"""Changes of the settings of topics, brokers and groups: the messages and what their answers mean (KIP-339)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeVar

from kadence.admin.arguments import as_name, check
from kadence.admin.calls import Ask, Calls, operation
from kadence.admin.configs import KINDS, ConfigResource, as_resources, by_node_of, refused, text_of
from kadence.admin.dead_letter_queues import describe_dead_letter_queues
from kadence.admin.values import Outcomes
from kadence.client.dead_letter_topics import COPIES, TOPIC, warning
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.logs import logger
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

__all__ = ["ConfigChange", "incremental_alter_configs"]

_log = logger("kadence.admin")


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

_SET: Final = 0

_OPERATIONS: Final = {"set": _SET, "delete": 1, "append": 2, "subtract": 3}


@operation
def incremental_alter_configs(
    calls: Calls,
    deadline: int,
    changes: Mapping[ConfigResource, Mapping[str, ConfigValue]],
    *,
    validate_only: bool = False,
) -> Waits[Outcomes[ConfigResource, None]]:
    """Change these settings and leave all others as they are (KIP-339).

    Of one resource either all changes are made, or none. Brokers accept any topic as a share group's dead letter
    topic; this call logs what is wrong with it (`describe_dead_letter_queues`).

    Args:
        changes: the new value of each setting, None for its default, or a `ConfigChange`, e.g.
            ``{ConfigResource("topic", "orders"): {"retention.ms": 86_400_000, "max.message.bytes": None}}``. A
            broker named "" stands for the defaults of all brokers.
        validate_only: let the broker check the changes without making them.

    Raises:
        BrokerError: INVALID_CONFIG: a topic or group has no such setting, or a setting does not allow the value.
    """
    wanted = {
        resource: [_alterable(name, value) for name, value in settings.items()]
        for resource, settings in as_changes(changes).items()
    }

    def attempt(
        resources: Collection[ConfigResource], deadline: int
    ) -> Waits[dict[ConfigResource, None | KafkaError]]:
        by_node = yield from by_node_of(calls, resources, deadline)
        asks = [
            Ask(
                IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(KINDS[resource.kind], resource.name, wanted[resource])
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
                item = items.get((KINDS[resource.kind], resource.name))
                if item is not None:
                    result[resource] = refused(resource, item) if item.error_code else None
        return result

    outcomes = yield from calls.settle(wanted, attempt, deadline)
    for resource in () if validate_only else outcomes:
        if resource.kind == "group":
            made = {each.name: each.value for each in wanted[resource] if each.config_operation == _SET}
            if topic := made.get(TOPIC):
                copies = made.get(COPIES)
                yield from _warn_of_dead_letters(
                    calls, deadline, resource.name, topic, None if copies is None else copies == "true"
                )
    return outcomes


def _warn_of_dead_letters(
    calls: Calls, deadline: int, group: str, topic: str, copies: bool | None
) -> Waits[None]:
    """Log what is wrong with a group's new dead letter topic. The settings are made already.

    They are not read back: the broker that is asked may not have learnt of them.
    """
    try:
        queues = yield from describe_dead_letter_queues(
            calls, deadline, group, topic=topic, copies_records=copies
        )
    except KafkaError as error:
        queues = Outcomes(errors={group: error})
    for queue in queues.values():
        says = warning(group, topic, queue.faults, is_read=queue.is_read)
        if says is not None:
            _log.warning("%s", says)
    for unseen in queues.errors.values():
        _log.info("group %s: its dead letter topic could not be looked at: %s", group, unseen)


def _alterable(name: str, value: ConfigValue) -> AlterableConfig:
    if not isinstance(value, ConfigChange):
        value = ConfigChange("delete") if value is None else ConfigChange("set", text_of(value))
    if value.operation not in _OPERATIONS:
        raise ValueError(f"{name}: the operation is one of {', '.join(_OPERATIONS)}, not {value.operation!r}")
    return AlterableConfig(name, _OPERATIONS[value.operation], value.value)


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
