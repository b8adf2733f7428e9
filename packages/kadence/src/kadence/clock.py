"""The clocks of the library: no other file reads one.

State machines and managers get ``now`` as an argument (whole ms of a monotonic clock) and return absolute
deadlines, so a test drives them by passing numbers. Only shells (threads, servers) hold a `Clock`. Wall-clock time
is used for record timestamps and retention, never for timers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = [
    "FOREVER",
    "Clock",
    "Seconds",
    "SystemClock",
    "add_ms",
    "to_ms",
    "wait_seconds",
    "wall_ms",
    "wall_time",
]

FOREVER: Final = 2**63 - 1
"""A deadline that never passes (ms)."""

Seconds = float | timedelta
"""A duration in the public API: a number of seconds, or a timedelta."""


class Clock(Protocol):
    """Monotonic milliseconds. `kadence_testing.FakeClock` is the other implementation."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's monotonic clock."""

    __slots__ = ()

    # freezegun replaces the functions of time, and no timeout would end. It does not find one that is kept here.
    def now_ms(self, read: Callable[[], int] = time.monotonic_ns) -> int:
        return read() // 1_000_000


def add_ms(now: int, duration_ms: int) -> int:
    """``now + duration_ms``, saturating at `FOREVER` as Kafka's int64 timers do."""
    total = now + duration_ms
    return total if total < FOREVER else FOREVER


def to_ms(timeout: Seconds | None) -> int | None:
    """Convert a public timeout (seconds or timedelta; None = no limit) to ms, rounded up.

    Rounding up matters: a wait of 0.4 ms that became 0 would turn a loop into a spin.

    Raises:
        ValueError: the timeout is negative or not a number.
    """
    if timeout is None:
        return None
    # float() takes text, too.
    is_number = not isinstance(timeout, bool | str | bytes)
    try:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    except (TypeError, ValueError):
        is_number = False
    if not is_number or not seconds >= 0:
        raise ValueError(f"timeout must be a number of seconds >= 0, not {timeout!r}")
    if seconds >= FOREVER / 1000:
        return FOREVER
    return -int(-seconds * 1000 // 1)


def wait_seconds(deadline: int, now: int) -> float | None:
    """Seconds to wait until ``deadline`` in the form that selectors and conditions take.

    None means no limit. Never negative (a negative wait blocks a selector and returns at once from
    a condition) and never above what the platform's lock can take.
    """
    if deadline >= FOREVER:
        return None
    return min(max(deadline - now, 0) / 1000, threading.TIMEOUT_MAX)


def wall_ms(read: Callable[[], int] = time.time_ns) -> int:
    """Ms since 1970, UTC: for record timestamps, retention and reports, never for timers.

    It is the clock that compiled code reads, also under freezegun.
    """
    return read() // 1_000_000


def wall_time(ms: int) -> datetime:
    """Ms since 1970 as a datetime in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)
