"""What can be fuzzed: bytes go in, and nothing may come out but what is documented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Story", "Tally", "Target"]


@dataclass(frozen=True)
class Target:
    """One thing that takes bytes of strangers.

    Attributes:
        name: also of its folder in the corpus.
        seeds: good inputs, made anew from the code each time; what was once found lies in the corpus.
        check: raises if the bytes had an effect that they must not have. Returns what was made of them: None for
            nothing, or the error that refused them.
        allocation: bytes that Python may allocate for one byte of input, and before the first; None: not measured.
        share: how many of a million mutations of `make attack` are of this target. `make test` tries a twentieth.
        memory: MiB by which the process that tries them may grow.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes], object]
    allocation: tuple[int, int] | None = None
    share: int = 0
    memory: int = 64


@dataclass
class Tally:
    """What mutations led to.

    Attributes:
        mutations: how many there were. errors: the documented errors that came, by the name of their type.
    """

    mutations: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def met(self, error: BaseException) -> None:
        """Count an error that is documented."""
        self.errors[type(error).__name__] += 1

    def add(self, other: Tally) -> None:
        """Count what another one has counted, too."""
        self.mutations += other.mutations
        self.errors.update(other.errors)


@dataclass(frozen=True)
class Story:
    """Programs that meet many mutations, one after the other, so that one of them stumbles over what another one left.

    Attributes:
        name: of it. tell: tells the story of this seed. Raises if something came out of it that is not documented.
        share: how many of a million mutations of `make attack` are of this story.
        memory: MiB by which the process that tells it may grow.
    """

    name: str
    tell: Callable[[int], Tally]
    share: int
    memory: int = 64
