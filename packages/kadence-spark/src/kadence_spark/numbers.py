"""Parses numbers in options. Spark and Kafka use 64 bits for them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LARGEST", "whole_number"]

LARGEST: Final = 2**63 - 1

# Python refuses to parse thousands of digits.
_DIGITS: Final = re.compile(r"\s*0*(\d{1,19})\s*", re.ASCII)


def whole_number(text: str) -> int | None:
    """The number in a text; None: it is not a number from 0 to `LARGEST`."""
    match = _DIGITS.fullmatch(text)
    return None if match is None or int(match[1]) > LARGEST else int(match[1])
