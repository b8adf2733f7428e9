"""What another thread does while the collector runs on this one.

A container that is made may begin a collection: on CPython 3.11 inside any call in C, since 3.12 between bytecodes
only. A collection runs callbacks and finalizers, and these may let other threads run. So at each place where one can
begin, whatever another thread does may happen.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LEADS", "at_collection"]

LEADS: Final = (0, 1)
"""With a threshold of 1 every second container that is made begins a collection: these, or the others."""


@contextmanager
def at_collection(number: int, act: Callable[[], object], *, lead: int = 0) -> Iterator[list[bool]]:
    """Have another thread do ``act`` when the collector begins on this one for this time, counted from 0.

    What is yielded has one element once it has. A test goes through all numbers until one is not reached.
    """
    here, seen = threading.get_ident(), 0
    done: list[bool] = []
    errors: list[BaseException] = []

    def other() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - it is raised where the test stands
            errors.append(error)

    def begins(phase: str, info: dict[str, int]) -> None:
        nonlocal seen
        if phase != "start" or threading.get_ident() != here:
            return
        seen += 1
        if seen == number + 1:
            done.append(True)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    was = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(begins)
    gc.set_threshold(1)
    led: list[list[int]] = [[] for _ in range(lead)]
    try:
        yield done
    finally:
        gc.set_threshold(*was)
        gc.callbacks.remove(begins)
        del led
    if errors:
        raise errors[0]
