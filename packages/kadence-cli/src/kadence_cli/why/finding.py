"""A reason why a group lags, and helpers of the rules that find reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

from kadence.admin import MemberDescription
from kadence.lazy_dataclasses import dataclass
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import duration
from kadence_cli.why.looks import PartitionLook
from kadence_cli.why.watching import Watch, named

__all__ = ["NAMED", "Finding", "Harm", "names_of", "one_of", "some", "stood", "waiting"]

NAMED: Final = 3
"""How many partitions or members are listed one by one."""


class Harm(IntEnum):
    """The effect of a reason on the group; the worst first."""

    LOSES = 0
    """Records are gone that the group has not read."""
    STOPS = 1
    """The group, or a partition, does not move."""
    SLOWS = 2
    """The group moves, and not fast enough."""
    PASSES = 3
    """It passes by itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason.

    Attributes:
        reason: its name, for scripts. says: a sentence. evidence: the observations, a line each. commands: to run next.
            partitions, members: the affected ones. held: how many records wait because of it. details: the numbers,
            for scripts.
    """

    reason: str
    harm: Harm
    says: str
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    members: tuple[str, ...] = ()
    held: int = 0
    details: tuple[tuple[str, Any], ...] = ()


def some(found: dict[TopicPartition, PartitionLook]) -> Iterable[tuple[TopicPartition, PartitionLook]]:
    """The ones that are listed one by one."""
    return list(found.items())[:NAMED]


def one_of(found: Iterable[TopicPartition]) -> TopicPartition:
    """The first, as an example."""
    return next(iter(found))


def waiting(number: int, noun: str = "record") -> str:
    """How many wait."""
    return f"{plural(number, noun)} {'waits' if number == 1 else 'wait'}"


def stood(watch: Watch, tp: TopicPartition) -> str:
    """How long a committed offset has not moved, within the time of the looks."""
    said = duration(watch.stands_for(tp) / 1000)
    return f"{said} at least" if watch.has_always_stood(tp) else said


def names_of(members: Iterable[MemberDescription]) -> str:
    """Some of the names."""
    return ", ".join(sorted({named(each) for each in members})[:NAMED])
