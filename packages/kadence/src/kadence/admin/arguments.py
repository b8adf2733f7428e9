"""Checks the arguments of the admin client's calls and converts them: names and partitions, one or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from kadence.admin.values import Outcomes
from kadence.types import TopicPartition

__all__ = [
    "P",
    "Partitions",
    "as_name",
    "as_names",
    "as_partition",
    "as_partitions",
    "by_partition",
    "by_topic",
    "check",
    "checked",
    "is_read_committed",
    "several",
]

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P", bound=tuple[str, int])
"""A partition as a key; `TopicPartition` is such a pair."""


Partitions = TopicPartition | Iterable[TopicPartition | tuple[str, int]]
"""The argument type of calls about partitions: several, or one."""


def as_name(what: str, name: str) -> str:
    """One name."""
    check(name, str, f"{what} is a str")
    return name


def as_names(names: str | Iterable[str]) -> list[str]:
    """Names; a single str is one name, not a list of characters."""
    return several(names, (str,), "names are wanted, such as 'orders' or ['orders', 'returns']")


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
    check(given, Iterable, "partitions are wanted, such as [TopicPartition('orders', 0)]")
    return [as_partition(each) for each in given]


def by_partition(given: Mapping[P, V]) -> dict[TopicPartition, V]:
    """A mapping with partitions as its keys."""
    check(given, Mapping, "a mapping from partitions is wanted, such as {TopicPartition('orders', 0): ...}")
    return {as_partition(partition): value for partition, value in given.items()}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Numbers of partitions by topic, as requests have them."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def is_read_committed(isolation_level: str) -> bool:
    """True if a call reads committed records only."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise ValueError(f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}")
    return isolation_level == "read_committed"


def checked(outcomes: Outcomes[K, V], raise_errors: bool) -> Outcomes[K, V]:
    """The outcomes, unless one of them is an error that is to be raised."""
    if raise_errors:
        outcomes.raise_errors()
    return outcomes


def several(given: Any, kinds: tuple[type, ...], wanted: str) -> list[Any]:
    """One value of these types as a list of one, or several."""
    if isinstance(given, kinds):
        return [given]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{wanted}, not {given!r}")
    found = list(given)
    for each in found:
        check(each, kinds, wanted)
    return found


def check(given: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Refuse what is of another type, before anything is sent."""
    if not isinstance(given, kinds):
        raise TypeError(f"{wanted}, not {given!r}")
