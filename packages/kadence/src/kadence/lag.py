"""Lag, the end that it counts to, rates and the time to catch up, for clients, metrics, the command line and Spark."""

from __future__ import annotations

import math
from typing import TypeVar, overload

__all__ = ["end_offset", "lag", "per_second", "seconds_to_catch_up"]

E = TypeVar("E", int, int | None)


def end_offset(high_watermark: E, last_stable_offset: E, *, read_committed: bool) -> E:
    """Where a partition ends for a reader: the first offset that it cannot read yet.

    For ``read_committed`` this is the last stable offset, where the oldest open transaction begins. For others it is
    the high watermark. None: it is not known.
    """
    return last_stable_offset if read_committed else high_watermark


@overload
def lag(end: int, position: int) -> int: ...


@overload
def lag(end: int | None, position: int | None) -> int | None: ...


def lag(end: int | None, position: int | None) -> int | None:
    """How many offsets lie from a position, or a committed offset, to an end; None if one of them is not known.

    It is never below 0: the end may be older than the position.
    """
    return None if end is None or position is None else max(end - position, 0)


def per_second(number: float, elapsed_ms: float) -> float | None:
    """How many a second came in so many ms; None where no time has passed."""
    return number * 1000 / elapsed_ms if elapsed_ms > 0 else None


def seconds_to_catch_up(lag: int | None, consumed: float | None, produced: float | None) -> float | None:
    """When the lag will be 0 if both rates stay; infinite when it is not getting smaller, None while unknown."""
    if lag == 0:
        return 0.0
    if lag is None or consumed is None or produced is None:
        return None
    gained = consumed - produced
    return lag / gained if gained > 0 else math.inf
