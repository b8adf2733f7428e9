"""A module that no child of `process` can import, and a handler in it."""

from __future__ import annotations

import multiprocessing
from typing import Any

if multiprocessing.current_process().name == "kadence-work":
    raise ImportError("no such library here")


def work(record: Any) -> None:
    """Never runs."""
