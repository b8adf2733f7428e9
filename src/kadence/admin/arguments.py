"""What the admin's calls are given, made plain: names, partitions, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kadence.admin.values import Acl, AclFilter, NewTopic, Outcomes
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "Partitions",
    "as_acls",
    "as_filters",
    "as_names",
    "as_offsets",
    "as_partition",
    "as_partitions",
    "as_topics",
    "checked",
    "is_read_committed",
]

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound=tuple[str, int])

Partitions = TopicPartition | Iterable[TopicPartition | tuple[str, int]]
"""What calls take that speak of partitions: several, or one."""


def as_topics(topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str]) -> list[NewTopic]:
    """Topics to create, given as {name: partitions}, names or values; one or several."""
    if isinstance(topics, Mapping):
        return [NewTopic(name, partitions) for name, partitions in topics.items()]
    several = [topics] if isinstance(topics, str | NewTopic) else topics
    return [NewTopic(topic) if isinstance(topic, str) else topic for topic in several]


def as_names(names: str | Iterable[str]) -> list[str]:
    """Names; one alone is a list of one, not a list of its letters."""
    return [names] if isinstance(names, str) else list(names)


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
    return [as_partition(each) for each in given]


def as_offsets(offsets: Mapping[P, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit; a number is one without metadata."""
    return {
        as_partition(tp): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for tp, offset in offsets.items()
    }


def as_acls(acls: Acl | Iterable[Acl]) -> list[Acl]:
    """Access rules; one or several."""
    return [acls] if isinstance(acls, Acl) else list(acls)


def as_filters(filters: AclFilter | Acl | Iterable[AclFilter | Acl]) -> list[AclFilter]:
    """Filters of access rules; a rule stands for the filter that finds it alone."""
    several = [filters] if isinstance(filters, AclFilter | Acl) else filters
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
