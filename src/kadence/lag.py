"""Lag, and the end that it counts to, for the consumer, its metrics, the command line and Spark."""

from __future__ import annotations

from typing import TypeVar, overload

__all__ = ["end_offset", "lag"]

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
