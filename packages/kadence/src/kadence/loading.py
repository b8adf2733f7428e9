"""Loads the library's modules, fast even while another thread computes.

An import lets go of the interpreter several times for each file. To come back it waits until the other thread gives the
interpreter up, a switch interval of 5 ms each time: three seconds for the modules of a consumer. So other threads are
asked to give it up sooner until the modules are there.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from importlib import import_module
from types import ModuleType
from typing import Final

__all__ = ["load"]

_INTERVAL: Final = 0.0001
_lock: Final = allocate_lock()
_loads = 0
_before = 0.0


def load(name: str) -> ModuleType:
    """Import a module. Raises what the import raises."""
    global _before, _loads  # noqa: PLW0603 - the switch interval is one for all threads, and so is this
    with _lock:
        if not _loads:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_INTERVAL, _before))
        _loads += 1
    try:
        return import_module(name)
    finally:
        with _lock:
            _loads -= 1
            if not _loads:
                sys.setswitchinterval(_before)
