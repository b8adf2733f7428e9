"""Checks the arguments of the admin client's calls and converts them: names, partitions, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kadence.admin.values import Acl, AclFilter, ConfigResource, NewTopic, Outcomes
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "Partitions",
    "as_acls",
    "as_changes",
    "as_filter",
    "as_filters",
    "as_name",
    "as_names",
    "as_offsets",
    "as_partition",
    "as_partitions",
    "as_resources",
    "as_states",
    "as_topics",
    "as_totals",
    "by_partition",
    "checked",
    "is_read_committed",
]

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound=tuple[str, int])

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

Partitions = TopicPartition | Iterable[TopicPartition | tuple[str, int]]
"""What calls take that speak of partitions: several, or one."""


def as_topics(topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str]) -> list[NewTopic]:
    """Topics to create, given as {name: partitions}, names or values; one or several."""
    if isinstance(topics, Mapping):
        return [NewTopic(name, number) for name, number in as_totals(topics).items()]
    wanted = "topics are {name: partitions}, names or NewTopic values"
    found = [
        NewTopic(each) if isinstance(each, str) else each
        for each in _several(topics, (str, NewTopic), wanted)
    ]
    for topic in found:
        for number in (topic.partitions, topic.replication_factor):
            _check(number, int, f"topic {topic.name!r}: numbers of partitions and replicas are whole numbers")
        for name, value in topic.configs.items():
            wanted = "is text or a number; leave the setting out for its default"
            _check(value, (str, int, float), f"topic {topic.name!r}: the value of {name!r} {wanted}")
    return found


def as_totals(totals: Mapping[str, int]) -> dict[str, int]:
    """Topics with their numbers of partitions."""
    _check(totals, Mapping, "numbers of partitions are given as {name: partitions}")
    for name, number in totals.items():
        as_name("the name of a topic", name)
        _check(number, int, f"topic {name!r}: the number of partitions is a whole number")
    return dict(totals)


def as_name(what: str, name: str) -> str:
    """One name."""
    _check(name, str, f"{what} is a str")
    return name


def as_names(names: str | Iterable[str]) -> list[str]:
    """Names; one alone is a list of one, not a list of its letters."""
    return _several(names, (str,), "names are wanted, such as 'orders' or ['orders', 'returns']")


def as_partition(given: object) -> TopicPartition:
    """One partition, given as such or as a pair."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int):
            return TopicPartition(topic, number)
    raise TypeError(f"a partition is TopicPartition(topic, number) or (topic, number), not {given!r}")


def as_partitions(given: Partitions) -> list[TopicPartition]:
    """Partitions; one alone is a list of one."""
    if isinstance(given, TopicPartition):
        return [given]
    whatever: object = given
    if isinstance(whatever, str):
        raise TypeError(f"partitions are wanted, such as [TopicPartition({given!r}, 0)], not {given!r}")
    _check(given, Iterable, "partitions are wanted, such as [TopicPartition('orders', 0)]")
    return [as_partition(each) for each in given]


def by_partition(given: Mapping[P, V]) -> dict[TopicPartition, V]:
    """A mapping with partitions as its keys."""
    _check(given, Mapping, "a mapping from partitions is wanted, such as {TopicPartition('orders', 0): ...}")
    return {as_partition(partition): value for partition, value in given.items()}


def as_offsets(offsets: Mapping[P, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit; a number is one without metadata."""
    found = {}
    for partition, at in by_partition(offsets).items():
        _check(at, (int, OffsetAndMetadata), f"{partition}: an offset is a whole number or OffsetAndMetadata")
        found[partition] = OffsetAndMetadata(at) if isinstance(at, int) else at
    return found


def as_states(states: Iterable[str]) -> list[str]:
    """States of transactions. A broker passes over names that it does not know, and lists all if none is left."""
    found = as_names(states)
    for state in found:
        if state not in _STATES:
            raise ValueError(f"a transaction is in one of the states {', '.join(_STATES)}, not {state!r}")
    return found


def as_resources(resources: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    """Whose settings; one or several."""
    wanted = "whose settings is told by ConfigResource values, such as ConfigResource('topic', 'orders')"
    found = _several(resources, (ConfigResource,), wanted)
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
    """Settings to change, by whose they are."""
    wanted = "changes are {ConfigResource('topic', 'orders'): {'retention.ms': 3600000}}"
    _check(changes, Mapping, wanted)
    as_resources(changes)
    for settings in changes.values():
        _check(settings, Mapping, wanted)
        for name in settings:
            as_name("the name of a setting", name)
    return changes


def as_acls(acls: Acl | Iterable[Acl]) -> list[Acl]:
    """Access rules; one or several."""
    return _several(acls, (Acl,), "access rules are Acl values")


def as_filter(wanted: AclFilter | None) -> AclFilter:
    """A filter of access rules; None finds all."""
    _check(wanted, (AclFilter, type(None)), "access rules are found by an AclFilter")
    return AclFilter() if wanted is None else wanted


def as_filters(filters: AclFilter | Acl | Iterable[AclFilter | Acl]) -> list[AclFilter]:
    """Filters of access rules; a rule stands for the filter that finds it alone."""
    several = _several(filters, (AclFilter, Acl), "access rules are found by AclFilter values or rules")
    return [
        AclFilter(
            each.resource_type, each.resource_name, each.principal, each.operation, each.permission, each.host,
            each.pattern_type,
        )
        if isinstance(each, Acl)
        else each
        for each in several
    ]  # fmt: skip


def is_read_committed(isolation_level: str) -> bool:
    """Whether a call looks at what is decided only."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}")
    return isolation_level == "read_committed"


def checked(outcomes: Outcomes[K, V], raise_errors: bool) -> Outcomes[K, V]:
    """The outcomes, unless one of them is an error that is to be raised."""
    if raise_errors:
        outcomes.raise_errors()
    return outcomes


def _several(given: Any, kinds: tuple[type, ...], wanted: str) -> list[Any]:
    """One value of these types as a list of one, or several."""
    if isinstance(given, kinds):
        return [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{wanted}, not {given!r}")
    found = list(given)
    for each in found:
        _check(each, kinds, wanted)
    return found


def _check(given: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Refuse what is of another type, on the caller's line."""
    if not isinstance(given, kinds):
        raise TypeError(f"{wanted}, not {given!r}")
