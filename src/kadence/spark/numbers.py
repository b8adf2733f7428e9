"""Numbers in options, as texts. Spark and Kafka keep them in 64 bits."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LARGEST", "whole_number"]

LARGEST: Final = 2**63 - 1

# Python refuses to read thousands of digits.
_DIGITS: Final = re.compile(r"\s*0*(\d{1,19})\s*", re.ASCII)


def whole_number(text: str) -> int | None:
    """The number that a text says; None: it says none from 0 to `LARGEST`."""
    match = _DIGITS.fullmatch(text)
    return None if match is None or int(match[1]) > LARGEST else int(match[1])
