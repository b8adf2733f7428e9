"""Where another thread is.

CPython 3.11 makes the object of a frame when somebody asks for it, and that may begin a collection. A collection runs
finalizers, which let other threads run: the frame may be left before its object is there, which then stands for memory
that has something else in it. So no collection begins here meanwhile. Since CPython 3.12 none begins inside a call.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["frames_of", "without_collections"]

_MAY_COLLECT_INSIDE: Final = sys.version_info < (3, 12)


def frames_of(thread: int) -> list[tuple[FrameType, int]]:
    """The frames of the thread with this identity, each with its line, the innermost first; none: it has ended."""
    with without_collections():
        frame = sys._current_frames().get(thread)
        return [] if frame is None else list(traceback.walk_stack(frame))


@contextmanager
def without_collections() -> Iterator[None]:
    """Ask for frames that others run in here."""
    if not (_MAY_COLLECT_INSIDE and gc.isenabled()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
