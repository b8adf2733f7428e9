"""The rows of the metrics, and their common shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kadence.metrics.sensors import NANOS, Joint, Meter, Tally

__all__ = [
    "Read",
    "Row",
    "Rows",
    "ago",
    "amounts",
    "count",
    "events",
    "nanos",
    "per_hour",
    "share",
    "sizes",
    "times",
    "total",
]

_HOUR_MS: Final = 3_600_000

Read = Callable[[int], float]
"""A value as of a time (ms)."""


class Row(NamedTuple):
    """One metric without its group and the client's tag."""

    name: str
    description: str
    read: Read


Rows = Iterator[Row]


def count(meter: Tally | Joint) -> Read:
    """The number of events."""
    return lambda now: meter.count


def total(meter: Tally | Joint) -> Read:
    """The sum of what was measured."""
    return lambda now: meter.total


def nanos(ms: Read) -> Read:
    """Converts a reading from ms to ns."""
    return lambda now: ms(now) * NANOS


def share(meter: Tally) -> Read:
    """Of values that are ms: how much of each ms they fill."""
    return lambda now: meter.rate(now) / 1000


def per_hour(meter: Tally) -> Read:
    """The number of events per hour."""
    return lambda now: meter.frequency(now, _HOUR_MS)


def times(name: str, what: str, meter: Meter) -> Rows:
    """Rows for the duration of something, in ms."""
    yield Row(f"{name}-avg", f"The average {what}, in ms", meter.average)
    yield Row(f"{name}-max", f"The longest {what}, in ms", meter.highest)


def events(name: str, what: str, meter: Tally | Joint) -> Rows:
    """Rows for the number of events."""
    yield Row(f"{name}-rate", f"The number of {what} per second", meter.frequency)
    yield Row(f"{name}-total", f"The number of {what}", count(meter))


def amounts(name: str, what: str, meter: Tally | Joint) -> Rows:
    """Rows for an amount."""
    yield Row(f"{name}-rate", f"The number of {what} per second", meter.rate)
    yield Row(f"{name}-total", f"The number of {what}", total(meter))


def sizes(name: str, what: str, meter: Meter | Joint) -> Rows:
    """Rows for sizes, in bytes."""
    yield Row(f"{name}-avg", f"The average size of {what}, in bytes", meter.average)
    yield Row(f"{name}-max", f"The greatest size of {what}, in bytes", meter.highest)


def ago(name: str, what: str, at: Callable[[], int]) -> Rows:
    """A row for the time since an event; ``at`` gives its time (ms), negative for never."""

    def seconds(now: int) -> float:
        then = at()
        return -1 if then < 0 else max(now - then, 0) // 1000

    yield Row(f"{name}-seconds-ago", f"Seconds since {what}; -1 when there was none", seconds)
