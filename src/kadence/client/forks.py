"""Forks of this process: a client that was made before one is the parent's, and every call in the child says so."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Final, TypeVar

from kadence.errors import ForkedError

__all__ = ["FORKS", "forked_error", "in_children"]

T = TypeVar("T")


class _Forks:
    """Those of this process, and of those it comes from.

    Attributes:
        count: how many. Another number means another process.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


FORKS: Final = _Forks()

_told: weakref.WeakKeyDictionary[object, Callable[[object], None]] = weakref.WeakKeyDictionary()


def in_children(what: T, act: Callable[[T], None]) -> None:
    """Have ``act(what)`` called first thing in each child process, as long as there is ``what``.

    For what a call looks at before it looks who it is. A lock may be held for ever there.
    """
    _told[what] = act  # type: ignore[assignment]


def forked_error(kind: str) -> ForkedError:
    """What a call of a client of this kind raises in a child of the process that made it."""
    return ForkedError(f"this {kind} was made before fork(); make a new one in the child")


def _forked() -> None:
    FORKS.count += 1
    for what, act in list(_told.items()):
        act(what)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
