"""Durations as Java writes them (ISO 8601, days to seconds), for ``auto.offset.reset=by_duration:PT1H`` (KIP-1106)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

__all__ = ["duration_ms"]

_FORM: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_LONGEST_MS: Final = 2**53
"""285,000 years: beyond it no clock's difference means anything."""


def duration_ms(text: str) -> int:
    """``P1DT12H``, ``PT30M``, ``PT1.5S`` … in ms.

    Raises:
        ValueError: it is none, is negative, or is longer than time is.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or not any(found.groupdict().values()):
        raise ValueError(f"{text!r} is no duration such as PT1H, PT30M or P7D")
    total = sum(
        (Decimal(value) * _MS[unit] for unit, value in found.groupdict().items() if value), Decimal(0)
    )
    if total > _LONGEST_MS:
        raise ValueError(f"{text!r} is too long a duration")
    return int(total)
