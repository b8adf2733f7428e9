"""Names on the command line: shell patterns, and the notation of partitions.

The notation is the same in output and arguments: ``orders:2``, and for several ``orders:0-2,5 hotels:3``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from kadence.printable import printable
from kadence_cli.common import CommandError, UsageError, nearest

if TYPE_CHECKING:
    from kadence import Admin, TopicPartition

__all__ = ["chosen", "matching", "no_such", "partitions", "ranges", "spelled"]


def matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The names that any pattern matches, or all without patterns; sorted."""
    return sorted(
        name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def chosen(words: Sequence[str], listed: Callable[[], Iterable[str]], kind: str) -> list[str]:
    """Names unchanged, and the matches of each pattern.

    Args:
        listed: returns all names; called only for a pattern. kind: what they name, e.g. ``topic``.

    Raises:
        CommandError: a pattern matches nothing.
    """
    if not any(_is_pattern(word) for word in words):
        return list(dict.fromkeys(words))
    everything = list(listed())
    found: dict[str, None] = {}
    for word in words:
        # A name may contain the characters of a pattern.
        names = matching(everything, [word]) if _is_pattern(word) and word not in everything else [word]
        if not names:
            raise CommandError(f"no {kind} matches {word!r}; `kadence {kind}s list` shows all")
        found.update(dict.fromkeys(names))
    return list(found)


def _is_pattern(word: str) -> bool:
    return any(letter in word for letter in "*?[")


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """The error for an unknown name, with the nearest known one."""
    what = "transactional id" if kind == "transaction" else kind
    return f"there is no {what} {name!r}{nearest(name, known) or ';'} `kadence {kind}s list` shows all"


def partitions(admin: Admin, *words: str) -> list[TopicPartition]:
    """``TOPIC``, ``TOPIC:0,1`` or ``TOPIC:0-3,7`` each: partitions that exist, once each.

    Raises:
        UsageError: behind the colon are no numbers. CommandError: there is no such topic or partition.
    """
    return list(dict.fromkeys(tp for word in words for tp in _partitions_of(admin, word)))


def _partitions_of(admin: Admin, word: str) -> list[TopicPartition]:
    from kadence import TopicPartition
    from kadence.errors import UnknownTopicOrPartitionError

    name, colon, numbers = word.partition(":")
    if colon and not all(_RUN.fullmatch(run) for run in numbers.split(",")):
        raise UsageError(
            f"write TOPIC for all its partitions, or TOPIC:0,2 or TOPIC:0-3,7 for some, not {word!r}"
        )
    try:
        topic = admin.describe_topics([name])[name]
    except UnknownTopicOrPartitionError:
        raise CommandError(no_such("topic", name, admin.list_topics(internal=True))) from None
    found = [TopicPartition(name, info.partition) for info in topic.partitions]
    if not colon:
        return found
    wanted: dict[TopicPartition, None] = {}
    for run in numbers.split(","):
        first, _, last = run.partition("-")
        numbers_of = range(int(first), int(last or first) + 1)
        if not numbers_of:
            raise UsageError(f"{run} in {word!r} is not a range: its smaller number comes first")
        if numbers_of[-1] >= len(found):
            there = "only partition 0" if len(found) == 1 else f"partitions 0 to {len(found) - 1}"
            raise CommandError(f"topic {name!r} has {there}, not {numbers_of[-1]}")
        wanted.update((TopicPartition(name, number), None) for number in numbers_of)
    return list(wanted)


_RUN: Final = re.compile(r"\d+(-\d+)?")


def spelled(partition: TopicPartition) -> str:
    """A partition as the command line takes it."""
    return f"{printable(partition.topic)}:{partition.partition}"


def ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in the short notation of the command line: ``flights:0-3,7 hotels:0``."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return " ".join(f"{printable(topic)}:{_runs(numbers)}" for topic, numbers in by_topic.items())


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
