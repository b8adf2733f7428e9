"""The end of the program: what Kadence does there, before other `atexit` handlers and after all of them.

`atexit` calls what was registered last first. So what a program has registered before it loaded Kadence runs after our
handler, and so does that of `logging`; both may still send. What `atexit` holds is let go once all handlers have run,
when threads still run: our handler acts again then. CPython 3.11 to 3.13 do so, but no text promises it. If it came
later, network threads would not run any more: what they have not sent would be lost, and a warning would say so.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

__all__ = ["after_handlers", "among_handlers", "be_called"]

_Act = Callable[[], object]

_among: Final[list[_Act]] = []
_after: Final[list[_Act]] = []


def among_handlers(act: _Act) -> None:
    """Have this done by our handler, before that of `logging`: programs may still make calls when it is done."""
    _among.append(act)


def after_handlers(act: _Act, *, late: bool = False) -> None:
    """Have this done when all handlers have run.

    Args:
        late: after what is not late.
    """
    _after.insert(len(_after) if late else 0, act)


def be_called() -> None:
    """See to it that `atexit` has our handler: a program may have emptied its table, or run all it had, and gone on."""
    if not _Handler.is_held:
        atexit.register(_Handler())


class _Handler:
    """Nothing but `atexit` refers to it.

    Attributes:
        is_held: whether `atexit` has one.
    """

    is_held: ClassVar[bool] = False

    def __init__(self) -> None:
        self._has_run = False
        _Handler.is_held = True

    def __call__(self) -> None:
        self._has_run = True
        _do(_among)

    def __del__(self) -> None:
        type(self).is_held = False
        # A program that empties the table of `atexit` does not end there. A handler that has loaded us is among the
        # last: ours is not called any more.
        if self._has_run or not threading.main_thread().is_alive():
            _do(_after)


def _do(acts: Sequence[_Act]) -> None:
    """All of them, whatever one raises."""
    if acts:
        try:
            acts[0]()
        finally:
            _do(acts[1:])


be_called()
