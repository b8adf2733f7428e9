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

__all__ = ["at_collection"]


@contextmanager
def at_collection(number: int, act: Callable[[], object]) -> Iterator[list[bool]]:
    """Have another thread do ``act`` when the collector begins on this one for this time, counted from 0.

    Each container that is made begins a collection. A test goes through all numbers until one is not reached.

    Yields:
        a list that has an element once ``act`` was done.
    """
    here, seen = threading.get_ident(), 0
    done: list[bool] = []
    errors: list[BaseException] = []
    held: list[list[int]] = []

    def other() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - it is raised where the test stands
            errors.append(error)

    def happens(phase: str, info: dict[str, int]) -> None:
        nonlocal seen
        if phase == "stop":
            # A threshold of 1 is passed by the second one. This is the first.
            held.append([])
            return
        if threading.get_ident() != here:
            return
        seen += 1
        if seen == number + 1:
            done.append(True)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

    was = gc.get_threshold()
    gc.collect()
    # What is made here is counted, so that the first container after it begins a collection.
    gc.set_threshold(1_000_000)
    # Lists that were freed are used again without a look at the threshold; there are 80 of them at most.
    # One by one: a list of them would be freed, too, and be used again.
    for _ in range(100):
        held.append([])  # noqa: PERF401 - see above
    gc.callbacks.append(happens)
    gc.set_threshold(1)
    try:
        yield done
    finally:
        gc.set_threshold(*was)
        gc.callbacks.remove(happens)
    if errors:
        raise errors[0]
