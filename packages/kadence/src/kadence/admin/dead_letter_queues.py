"""Dead letter topics of share groups (KIP-1191): which there are, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kadence.admin.arguments import as_names
from kadence.admin.calls import Calls, operation
from kadence.admin.configs import ConfigEntry, ConfigResource, describe_configs
from kadence.admin.share_groups import describe_share_groups
from kadence.admin.share_offsets import list_offsets_of_share_groups
from kadence.admin.values import Outcomes
from kadence.client.dead_letter_topics import COPIES, TOPIC, Settings, faults_of, is_legal
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass, replace
from kadence.protocol import error_codes as ec

__all__ = ["DeadLetterQueue", "describe_dead_letter_queues"]


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """Where the dead letters of a share group go (KIP-1191).

    Attributes:
        topic: None: the group has none. Records that are rejected or delivered too often are then only archived.
        copies_records: whether dead letters have the key and value of their record, and not headers alone.
        faults: why brokers would not write to the topic, in a sentence each. Empty: they would. With a fault
            rejected records are lost without an error.
        is_read: whether the group itself reads the topic. Then a dead letter that fails is written there again,
            without end.
    """

    topic: str | None
    copies_records: bool = False
    faults: tuple[str, ...] = ()
    is_read: bool = False


@operation
def describe_dead_letter_queues(
    calls: Calls,
    deadline: int,
    groups: str | Iterable[str],
    *,
    topic: str | None = None,
    copies_records: bool | None = None,
) -> Waits[Outcomes[str, DeadLetterQueue]]:
    """The dead letter topics of share groups, and what is wrong with them (KIP-1191).

    Brokers accept any topic as a setting, and check it only when they write to it.

    Args:
        topic, copies_records: values to look at in place of the groups' settings, before they are set.
    """
    resources = {name: ConfigResource("group", name) for name in as_names(groups)}
    settings = yield from describe_configs(calls, deadline, list(resources.values()))
    found: Outcomes[str, DeadLetterQueue] = Outcomes(
        {
            name: _queue(_values(settings[each]), topic, copies_records)
            for name, each in resources.items()
            if each in settings
        },
        {name: settings.errors[each] for name, each in resources.items() if each in settings.errors},
    )
    names = {name: queue.topic for name, queue in found.items() if queue.topic is not None}
    if not names:
        return found
    try:
        broker = yield from _broker(calls, deadline)
        topics = yield from _topics(calls, deadline, set(names.values()))
        read = yield from _read(calls, deadline, names)
    except KafkaError as error:
        for name in names:
            del found[name]
            found.errors[name] = error
        return found
    for name, at in names.items():
        copies = found[name].copies_records
        faults = tuple(faults_of(at, broker, topics.get(at), copies=copies))
        found[name] = replace(found[name], faults=faults, is_read=at in read[name])
    return found


def _queue(settings: Settings, topic: str | None, copies: bool | None) -> DeadLetterQueue:
    return DeadLetterQueue(
        (settings.get(TOPIC) if topic is None else topic) or None,
        settings.get(COPIES) == "true" if copies is None else copies,
    )


def _values(entries: Mapping[str, ConfigEntry]) -> Settings:
    return {name: entry.value or "" for name, entry in entries.items()}


def _broker(calls: Calls, deadline: int) -> Waits[Settings]:
    """The settings of a broker; all have those of the cluster."""
    known = yield from calls.metadata([], deadline)
    resource = ConfigResource("broker", str(known.brokers[0].node_id))
    settings = yield from describe_configs(calls, deadline, resource)
    settings.raise_errors()
    return _values(settings[resource])


def _topics(calls: Calls, deadline: int, names: Collection[str]) -> Waits[dict[str, Settings]]:
    """The settings of the topics that exist."""
    legal = [name for name in names if is_legal(name)]
    known = yield from calls.metadata(legal, deadline)
    there = [each.name for each in known.topics if each.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION]
    resources = {name: ConfigResource("topic", name) for name in there if name}
    settings = yield from describe_configs(calls, deadline, list(resources.values()))
    settings.raise_errors()
    return {name: _values(settings[resource]) for name, resource in resources.items()}


def _read(calls: Calls, deadline: int, groups: Iterable[str]) -> Waits[dict[str, set[str]]]:
    """The topics that each group reads."""
    names = list(groups)
    described = yield from describe_share_groups(calls, deadline, names)
    offsets = yield from list_offsets_of_share_groups(calls, deadline, names)
    read: dict[str, set[str]] = {name: {tp.topic for tp in offsets.get(name, ())} for name in names}
    for name, group in described.items():
        read[name].update(*(member.subscription or () for member in group.members))
    return read
