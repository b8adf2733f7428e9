"""An immutable mapping of which a changed copy costs as much as what changed, not as much as all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isqrt
from typing import Final, TypeVar, overload

__all__ = ["Layered"]

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_FEWEST: Final = 32
"""So many entries may always lie on top: to copy them costs next to nothing."""

_ABSENT: Final = object()


class Layered(Mapping[K, V]):
    """A mapping in two layers: a large one that copies share, and a small one on top with what is newer.

    The top layer holds no more than the square root of the number of entries. A change that would make it larger makes
    one layer of both, so n single changes copy about n times that root, and not n² entries. Entries keep the order in
    which they came, as in a dict. Any thread reads it without a lock, since nobody ever changes it.

    Args:
        entries: all of them. Whoever hands them over does not change them any more.
    """

    __slots__ = ("_below", "_count", "_top")

    def __init__(self, entries: dict[K, V] | None = None) -> None:
        self._below: dict[K, V] = {} if entries is None else entries
        self._top: dict[K, V] = {}
        self._count = len(self._below)

    def changed(self, entries: Mapping[K, V]) -> Layered[K, V]:
        """A copy with these entries added, or put in place of those with the same keys."""
        top = {**self._top, **entries}
        if len(top) > max(_FEWEST, isqrt(len(self._below))):
            return Layered({**self._below, **top})
        copy = Layered(self._below)
        copy._top = top
        copy._count = len(self._below) + sum(key not in self._below for key in top)
        return copy

    def __getitem__(self, key: K) -> V:
        found = self._top.get(key, _ABSENT)
        return self._below[key] if found is _ABSENT else found  # type: ignore[return-value]

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: V | D) -> V | D: ...

    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        """As of a dict."""
        found = self._top.get(key, _ABSENT)
        return self._below.get(key, default) if found is _ABSENT else found  # type: ignore[return-value]

    def __contains__(self, key: object) -> bool:
        return key in self._top or key in self._below

    def __iter__(self) -> Iterator[K]:
        yield from self._below
        yield from (key for key in self._top if key not in self._below)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Layered({dict(self)!r})"
