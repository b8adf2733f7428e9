"""Several processes of one run begin to measure at the same time, when the last of them has something to do.

A member makes a file when it is ready. Once all have, the bench writes the time to begin, of the machine's monotonic
clock, into another one. Java's members do the same.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

BEGIN = "begin"
LOOK_S = 0.02
AHEAD_S = 0.5
"""So that all have read when to begin before it is time."""


def ready(folder: str) -> None:
    """This member has had its first record."""
    Path(folder, f"ready-{os.getpid()}").touch()


def beginning(folder: str) -> float:
    """When to begin; waits until all are ready."""
    while not (file := Path(folder, BEGIN)).exists():
        time.sleep(LOOK_S)
    return float(file.read_text())


def await_members(folder: str, members: int, patience_s: float) -> bool:
    """Let them begin once all are ready. False: they were not in time, and begin without the others."""
    until = time.monotonic() + patience_s
    place = Path(folder)
    while len(list(place.glob("ready-*"))) < members and time.monotonic() < until:
        time.sleep(LOOK_S)
    written = place / "written"
    written.write_text(str(time.monotonic() + AHEAD_S))
    written.rename(place / BEGIN)
    return time.monotonic() < until
