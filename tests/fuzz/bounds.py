"""How much memory a call takes, and how many steps: counted, so that a busy machine counts the same."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

__all__ = ["allocated", "steps"]


def allocated(call: Callable[[], object]) -> int:
    """The most bytes that Python held more during the call than before it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def steps(call: Callable[[], object]) -> int:
    """How many functions the call calls, in Python and in C."""
    count = 0

    def step(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count
