"""What other people's clients leave behind, and where it is cleaned up.

kafka-python and aiokafka leave sockets, transports and whole clients to the garbage collector. Their finalizers warn,
log and close connections, in whatever test the collector happens to run. So the collector rests while a test runs whose
module has one of these clients. It runs after that test, where nobody hears a warning or a log line. Their loggers
never reach the root logger, and so no test's `caplog`.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Final

__all__ = ["collected_afterwards", "silence_loggers"]

_CLIENTS: Final = frozenset({"kafka", "aiokafka"})
"""Packages whose clients have finalizers in Python."""

_LOGGERS: Final = ("kafka", "aiokafka", "py4j")
"""These packages log in finalizers."""


def silence_loggers() -> None:
    """Keep lines of other clients from the handlers of tests."""
    for name in _LOGGERS:
        logging.getLogger(name).propagate = False


@contextmanager
def collected_afterwards(module: ModuleType) -> Iterator[None]:
    """Run a test of this module; what it leaves of other clients is collected at its end, and unheard."""
    if not _uses_clients(module):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings(), _unheard():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        gc.enable()


@contextmanager
def _unheard() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@cache
def _uses_clients(module: ModuleType) -> bool:
    return any(_origin(each) in _CLIENTS for each in vars(module).values())


def _origin(value: object) -> str:
    """The package that a value of a module comes from."""
    name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return name.partition(".")[0] if isinstance(name, str) else ""
