"""What can be fuzzed: bytes go in, and nothing may come out but what is documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """One thing that takes bytes of strangers.

    Attributes:
        name: also of its folder in the corpus.
        seeds: good inputs, made anew from the code each time; what was once found lies in the corpus.
        check: raises if the bytes had an effect that they must not have.
        mutations: how many `make test` tries: what takes a second or two.
        allocation: bytes that Python may allocate for one byte of input, and before the first; None: not measured.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes], object]
    mutations: int = 300
    allocation: tuple[int, int] | None = None
