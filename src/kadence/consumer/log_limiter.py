"""Limits log lines: a change is logged once, a state that lasts once a minute. Both sides use it; it has no clock."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from kadence.types import TopicPartition

__all__ = ["LogLimiter", "in_short"]

_AGAIN_MS: Final = 60_000


class LogLimiter:
    """Remembers what was logged of each subject, and when."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, tuple[object, int]] = {}

    def is_new(self, now: int, subject: Hashable, what: object) -> bool:
        """Whether ``what`` should be logged of ``subject``: it is another thing than last, or a minute has passed.

        The caller logs it then; it counts as logged.
        """
        before = self._logged.get(subject)
        if before is not None and before[0] == what and now - before[1] < _AGAIN_MS:
            return False
        self._logged[subject] = what, now
        return True

    def over(self, subject: Hashable) -> None:
        """All is well with ``subject``: whatever comes next is new."""
        self._logged.pop(subject, None)


def in_short(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a line of a log: ``t[0-3,7] u[0]``, or ``none``."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}[{_ranges(numbers)}]" for topic, numbers in topics.items()) or "none"


def _ranges(numbers: list[int]) -> str:
    """Of numbers in order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
