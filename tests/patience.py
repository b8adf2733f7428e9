"""How tests wait for what other threads, processes and brokers do.

No test measures time: how long something takes is the machine's business. A test waits until a thing is so, and fails
when it is not so after a time in which even a busy machine has done it many times over.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

import pytest

from kadence.whereabouts import frames_of

__all__ = ["PATIENCE", "is_of_pause", "once_inside", "overdue", "standing_inside", "until", "without_pauses"]

PATIENCE: Final = 60.0
"""Seconds after which what must happen counts as a hang."""


def until(done: Callable[[], object], *, what: Callable[[], object] | str = "", every: float = 0.02) -> None:
    """Wait until ``done()`` is true; ``what`` says, or tells then, what did not happen.

    ``done`` may do a step of its own that waits, such as a poll; then ``every`` is 0.
    """
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what() if callable(what) else what}"
        if every:
            time.sleep(every)


def overdue(
    call: Callable[[float], object],
    error: type[Exception],
    *,
    match: str,
    enough: Callable[[], bool] = lambda: True,
) -> None:
    """``call(seconds)`` runs into its deadline, and its error says ``match``, which is of what happened until then.

    On a busy machine a short time may be over before anything, or ``enough``, has happened; then the call is given
    more.
    """
    seconds = 0.1
    while True:
        with pytest.raises(error) as raised:
            call(seconds)
        if (re.search(match, str(raised.value)) and enough()) or seconds > PATIENCE / 4:
            assert raised.match(match)
            assert enough()
            return
        seconds *= 4


def once_inside(act: Callable[[], object]) -> threading.Thread:
    """Let ``act`` happen on another thread as soon as this one stands inside a call of Kadence; join it afterwards."""
    stands = standing_inside(threading.get_ident())

    def run() -> None:
        until(stands, what="nobody waits")
        act()

    thread = threading.Thread(target=run, name="once inside")
    thread.start()
    return thread


def standing_inside(thread: int) -> Callable[[], bool]:
    """For `until`: whether a thread, given by its ``ident``, stands inside a call of Kadence since the look before."""
    before: object = None

    def stands() -> bool:
        nonlocal before
        frames = [frame for frame, _ in frames_of(thread)]
        place, before = before, frames and (id(frames[0]), frames[0].f_lasti)
        return any(map(_waits, frames)) and place == before

    return stands


def is_of_pause(line: str) -> bool:
    """Whether a line of a member's log says that the machine paused it.

    Members of FAST_GROUPS, who heartbeat every 0.2 s, say so after 0.1 s: a busy machine pauses them for longer.
    """
    return "the network thread was kept from running for " in line


def without_pauses(said: str) -> str:
    """What a program with a member wrote, but for how busy the machine was."""
    return "".join(line for line in said.splitlines(keepends=True) if not is_of_pause(line))


def _waits(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    # An event loop that has nothing to do waits in its selector, and awaited calls are on no stack then.
    return module == "selectors" or module.startswith("kadence.")
