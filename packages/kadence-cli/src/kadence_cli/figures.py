"""Numbers, times and texts, shortened to the width of a column. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from kadence.printable import printable

__all__ = ["clock_time", "count", "duration", "rate", "shortened", "sparkline"]

_BARS: Final = "▁▂▃▄▅▆▇█"


def shortened(text: str, width: int) -> str:
    """A text in at most ``width`` printable characters, with an ellipsis in its middle if it was longer."""
    text = printable(text)
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def count(value: float | None) -> str:
    """A number in at most seven characters: 12,345 or 1.23M."""
    if value is None:
        return "-"
    if abs(value) < 99_999.5:
        return f"{value:,.0f}"
    return _scaled(value)


def rate(value: float | None) -> str:
    """Records a second, in at most six characters."""
    if value is None:
        return "-"
    if 0 < abs(value) < 9.95:
        return f"{value:.1f}"
    return f"{value:,.0f}" if abs(value) < 9_999.5 else _scaled(value)


def _scaled(value: float) -> str:
    """Three digits and a unit."""
    for unit in ("k", "M", "G", "T", "P"):
        value /= 1000
        if abs(value) < 999.5:
            return f"{value:.3g}{unit}"
    return f"{value / 1000:.3g}E"


def duration(seconds: float | None) -> str:
    """A time to wait, in at most six characters; ``never`` if infinite."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "never"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if seconds < 5_970:
        return f"{seconds / 60:.0f}m"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f}h"
    days = seconds / 86_400
    return f"{days:.0f}d" if days < 1000 else ">999d"


def clock_time(wall: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(wall))


def sparkline(values: Sequence[int | None], width: int) -> str:
    """Values as bars, from the smallest to the largest; equal values are a line at the bottom.

    If there are more values than ``width``, some are shown, including the first and the last.
    """
    last = len(values) - 1
    shown = values if last < width else [values[place * last // (width - 1)] for place in range(width)]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low, span = min(known), max(known) - min(known)
    return "".join(
        " " if value is None else _BARS[(value - low) * (len(_BARS) - 1) // span if span else 0]
        for value in shown
    )
