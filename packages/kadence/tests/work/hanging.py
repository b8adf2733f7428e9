"""A module whose import never ends in a child of `process`, and a handler in it."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

if multiprocessing.current_process().name == "kadence-work":
    time.sleep(600)


def work(record: Any) -> None:
    """Never runs."""
