"""Cython's words for types and functions, for sources that run compiled and plain, such as `consumer.fetch._steps`.

Such a source takes these words under the name ``cython``, so the plain form runs the same whether Cython is installed
or not. Its line ``import cython`` is for the compiler alone. The compiler leaves out what is under
``if not cython.compiled``; a ``_*_c.pxd`` says which C types the fields and functions have, and names the extension.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeAlias, TypeVar

__all__ = [
    "Py_ssize_t",
    "bint",
    "cast",
    "ccall",
    "cclass",
    "cfunc",
    "compiled",
    "critical_section",
    "exceptval",
    "final",
    "freelist",
    "inline",
    "longlong",
    "nonecheck",
    "ulong",
    "void",
]

T = TypeVar("T")

compiled: Final = False
"""The compiler takes it for true, and leaves out what is for the other form."""

bint: TypeAlias = bool
Py_ssize_t: TypeAlias = int
longlong: TypeAlias = int
ulong: TypeAlias = int
void: TypeAlias = None


def cclass(kind: T) -> T:
    """A class, or a function, as it is."""
    return kind


ccall = cfunc = final = inline = cclass


def exceptval(*_: Any, **__: Any) -> Callable[[T], T]:
    """What a C function returns for an exception; a Python function raises it."""
    return cclass


def nonecheck(_: bool) -> Callable[[T], T]:
    """Whether the compiled form looks for None where a C type is named. Plain, that is an AttributeError anyway."""
    return cclass


def freelist(_: int) -> Callable[[T], T]:
    """How many dead objects of a class are kept for new ones."""
    return cclass


_NOTHING: Final = nullcontext()


def critical_section(_: object) -> AbstractContextManager[None]:
    """What no other thread enters for the same object where there is no interpreter's lock; with it, nothing.

    The plain form does without: other threads may come between any two of its steps anyway.
    """
    return _NOTHING


def cast(_: type[T], value: Any) -> T:
    """The value, which is known to be of this type."""
    result: T = value
    return result
