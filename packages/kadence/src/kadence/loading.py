"""Loads the library's modules, fast even while another thread computes, and for one thread at a time.

An import lets go of the interpreter several times for each file. To come back it waits until the other thread gives the
interpreter up, a switch interval of 5 ms each time: three seconds for the modules of a consumer. So other threads are
asked to give it up sooner until the modules are there.

Two threads that first use the library at the same time would load parts of the same package from both ends. Python's
own locks, one for each module, then meet in a circle: one of the threads gets an error, or half a module. And a child
that is forked while another thread loads would wait for ever for the modules that this thread had begun. So loads come
one after the other, and a fork comes between them.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Final

__all__ = ["load"]

_INTERVAL: Final = 0.0001
_PATIENCE_S: Final = 5.0
"""No load takes longer, mostly. A thread that loads may wait for us: in a finalizer, or for a lock of the program."""

_lock = RLock()
_heeds_forks = False


def load(name: str) -> ModuleType:
    """Import a module. Raises what the import raises."""
    if not _heeds_forks:
        _heed_forks()
    lock, before = _lock, 0.0
    is_alone = False
    try:
        if is_alone := lock.acquire(timeout=_PATIENCE_S):
            before = sys.getswitchinterval()
            sys.setswitchinterval(min(_INTERVAL, before))
        return import_module(name)
    finally:
        if is_alone:
            if before:
                sys.setswitchinterval(before)
            lock.release()


def _heed_forks() -> None:
    global _heeds_forks  # noqa: PLW0603 - once in a process
    # Of two such functions the later one is called first: a load may need the lock that `logging` takes for a fork.
    import logging  # noqa: F401

    if hasattr(os, "register_at_fork") and not _heeds_forks:  # Windows has no fork
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
    _heeds_forks = True


def _before_fork() -> None:
    _lock.acquire(timeout=_PATIENCE_S)


def _after_fork() -> None:
    # Not this thread's if a load took too long.
    with suppress(RuntimeError):
        _lock.release()


def _in_child() -> None:
    global _lock  # noqa: PLW0603 - the thread that holds it is not there
    try:
        _lock.release()
    except RuntimeError:
        _lock = RLock()
