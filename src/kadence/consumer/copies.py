"""Fetched bytes that were copied out of their arena, because they kept much more memory of it than their own size.

The network thread copies small answers, for the smallest arena holds 16 KiB: thousands of answers with one record each
would fill `buffer.memory` with next to nothing. The application copies what paused partitions leave of an arena.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kadence.connection.request import Loan

__all__ = ["Copies", "frees", "is_small"]

_OBJECTS: Final = 256
"""About what the objects take that belong to one copy."""

_LARGEST: Final = 16_384
"""The network thread copies nothing larger: large answers are read where they lie."""


class Copies:
    """All copies of one consumer. Each number has one writer.

    Attributes:
        packed: bytes that the network thread copied, ever. copied: those that the application did, ever.
        released: bytes that were given back, ever (application).
    """

    __slots__ = ("copied", "packed", "released")

    def __init__(self) -> None:
        self.packed = self.copied = self.released = 0

    @property
    def held(self) -> int:
        """Bytes that copies take. Any thread."""
        return self.packed + self.copied - self.released

    def pack(self, data: memoryview) -> tuple[bytes, Loan]:
        """A copy and its loan. Network thread."""
        loan = _Copy(self, _taken((len(data),)))
        self.packed += loan.size
        return bytes(data), loan

    def copy(self, data: memoryview | bytes) -> tuple[bytes, Loan]:
        """A copy and its loan. Application thread."""
        loan = _Copy(self, _taken((len(data),)))
        self.copied += loan.size
        return bytes(data), loan


class _Copy:
    """The loan of one copy. The application gives it back."""

    __slots__ = ("_copies", "size")

    holds = 1

    def __init__(self, copies: Copies, size: int) -> None:
        self._copies = copies
        self.size = size

    def retain(self) -> None:
        raise NotImplementedError("nobody shares a copy")

    def release(self) -> None:
        self._copies.released += self.size


def is_small(sizes: Collection[int]) -> bool:
    """Whether parts of such sizes may be copied on the way from the network to the application."""
    return _taken(sizes) <= _LARGEST


def frees(sizes: Collection[int], arena: Loan) -> bool:
    """Whether copies of all parts of an arena take at most half as much as it does."""
    return 2 * _taken(sizes) <= arena.size


def _taken(sizes: Collection[int]) -> int:
    return sum(sizes) + _OBJECTS * len(sizes)
