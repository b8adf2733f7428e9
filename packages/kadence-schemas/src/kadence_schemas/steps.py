"""Steps: what the check of one value may take.

A step is one schema that is applied to one part of the value, 5 to 20 µs. What the library does at once, as a search,
is counted by its worst case before it begins.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Final

__all__ = ["Steps", "TooManyStepsError", "spend"]

STEPS: Final = 20_000
"""Every check may take so many."""

STEPS_A_BYTE: Final = 2
"""And so many more for each byte of the value's JSON."""


class TooManyStepsError(Exception):
    """The check takes more than it may."""


class Steps:
    """What is left for one check. `spend` takes from the one that was begun last on this thread.

    Args:
        value: what is checked.
        notes: what keywords need to know of the schema.
        a_byte: so many more steps for each byte of its JSON.
    """

    def __init__(self, value: Any, notes: Any, a_byte: int = STEPS_A_BYTE) -> None:
        self.notes = notes
        self._value = value
        self._a_byte = a_byte
        self._is_whole = False
        self.left = STEPS

    def __enter__(self) -> None:
        _now.steps = self

    def __exit__(self, *exception: object) -> None:
        del _now.steps

    @staticmethod
    def now() -> Steps:
        """Those of this thread's check."""
        steps: Steps = _now.steps
        return steps

    def exceed(self) -> None:
        """Add what the value's length allows, which few checks need, or end the check.

        Raises:
            TooManyStepsError: that is not enough.
        """
        if not self._is_whole:
            self._is_whole = True
            self.left += self._a_byte * len(json.dumps(self._value, ensure_ascii=False, default=str))
        if self.left < 0:
            raise TooManyStepsError


_now = threading.local()


def spend(steps: int) -> None:
    """Count steps of this thread's check.

    Raises:
        TooManyStepsError: there are no more.
    """
    now: Steps = _now.steps
    now.left -= steps
    if now.left < 0:
        now.exceed()
