"""Weak sets and dictionaries that one thread looks through while others add to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["all_of"]

T = TypeVar("T")


def all_of(look: Callable[[], Iterable[T]]) -> tuple[T, ...]:
    """What ``look`` goes through. A weak collection raises where another thread adds to it meanwhile: look again."""
    while True:
        try:
            return tuple(look())
        except RuntimeError:
            continue
