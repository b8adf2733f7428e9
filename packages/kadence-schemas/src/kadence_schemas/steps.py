"""Steps: the bound on the check of one value.

A step is one schema that is applied to one part of the value, 5 to 20 µs. Operations of the library, such as a search,
are counted by their worst case before they begin.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Final

__all__ = ["Steps", "TooManyStepsError", "spend"]

STEPS: Final = 20_000
"""How many steps every check may take."""

STEPS_A_BYTE: Final = 2
"""How many more for each character of the value's JSON."""


class TooManyStepsError(Exception):
    """The check takes too many steps."""


class Steps:
    """The steps left for one check. `spend` takes from the check begun last on this thread.

    Args:
        value: the value to check. notes: facts about the schema for keywords. a_byte: how many more steps for each
            character of its JSON.
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
        """The steps of this thread's check."""
        steps: Steps = _now.steps
        return steps

    def exceed(self) -> None:
        """Add the steps for the value's length, which few checks need, or end the check.

        Raises:
            TooManyStepsError: these are not enough.
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
        TooManyStepsError: none is left.
    """
    now: Steps = _now.steps
    now.left -= steps
    if now.left < 0:
        now.exceed()
