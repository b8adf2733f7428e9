"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names by the coordinator (KIP-848).

The engine is RE2 itself, by ``google-re2`` (the extra ``broker``). Python's `re` is no stand-in: it knows other syntax,
and an expression of a stranger can keep it busy for hours, where RE2's time grows with the length of the name alone.

What an expression may cost is bounded: its length, the engine's memory for it, how many compiled ones are kept, and the
work between two looks at other clients (`Matching`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

__all__ = ["MOST_CHARACTERS", "InvalidPatternError", "Matching", "Resolved", "matches", "validate"]

MOST_CHARACTERS: Final = 16 * 1024
"""The longest expression. RE2 keeps some 100 bytes for each character beside the memory that it counts."""
_ENGINE_BYTES: Final = 1024 * 1024
"""What RE2 may take for one expression, by its own count; a longer program is refused."""
_KEPT: Final = 16
"""How many expressions stay compiled in this process. To compile one again takes 45 ms at most."""
_STEP_WORK: Final = 2_000_000
"""What a step of `Matching` may do, in steps of RE2's slowest engine (about 30 ns each)."""
_COMPILING: Final = 30
"""The work of compiling, for each instruction of the program."""
_CALLING: Final = 120
"""The work of asking about one name at all."""
_SHOWN: Final = 200
"""So many characters of an expression stand in an error: an answer has no room for longer texts."""

_PARTS: Final = re.compile(
    r"""\\Q.*?(?:\\E|\Z)                                  # literal text
      | \\(?P<escape>.)
      | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]          # a class of characters
      | \(\?P?<(?P<name>[^>]*)>
    """,
    re.DOTALL | re.VERBOSE,
)
"""The parts of an expression in which RE2 of C++ and RE2/J of Kafka differ, and those in which they only seem to."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a regular expression matched.

    Attributes:
        version: of the topics (`Topics.version`) that it was matched against, as that process counted.
        timestamp: when, as time of day in ms.
    """

    topics: frozenset[str]
    version: int
    timestamp: int


class InvalidPatternError(Exception):
    """No expression of RE2's, or there is no RE2 to ask; the text says which."""


def validate(pattern: str) -> None:
    """Refuse what RE2 cannot compile.

    Raises:
        InvalidPatternError: with RE2's own words, or what to install.
    """
    _compiled(pattern)


class Matching:
    """Expressions on their way through the names of topics, step by step. One that does not compile matches none.

    Attributes:
        found: which names each expression matches; whole once `advance` has returned True.
    """

    __slots__ = ("_steps", "found")

    def __init__(self, patterns: Iterable[str], names: Iterable[str]) -> None:
        self.found: dict[str, frozenset[str]] = {}
        self._steps = self._match(list(patterns), list(names))

    def advance(self) -> bool:
        """Do as much as others may have to wait for; True once nothing is left to do."""
        return next(self._steps, True)

    def _match(self, patterns: list[str], names: list[str]) -> Iterator[bool]:
        work = 0
        for pattern in patterns:
            matched: list[str] = []
            try:
                expression = _compiled(pattern)
            except InvalidPatternError:
                # It was good when its member joined: this process lacks RE2, or its bounds were others.
                self.found[pattern] = frozenset()
                continue
            size = expression.programsize
            work += size * _COMPILING
            for name in names:
                if work >= _STEP_WORK:
                    work = 0
                    yield False
                if expression.fullmatch(name):
                    matched.append(name)
                work += _CALLING + size * len(name)
            self.found[pattern] = frozenset(matched)


def matches(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Which of ``names`` each expression matches, in one go."""
    matching = Matching(patterns, names)
    while not matching.advance():
        pass
    return matching.found


@lru_cache(maxsize=_KEPT)
def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise InvalidPatternError(
            "this broker matches regular expressions with google-re2, which is not installed "
            "(pip install 'kadence[broker]')"
        ) from None
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidPatternError(
            f"a regular expression of {len(pattern)} characters; this broker takes {MOST_CHARACTERS}"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _ENGINE_BYTES
    options.never_capture = (
        True  # Only whole names are asked for, and each group would cost time in each match.
    )
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPatternError(f"{_short(pattern)} is not in the syntax of RE2: {text[:_SHOWN]}") from None
    finally:
        re2.purge()  # It keeps 128 of its own accord, of any size.
    _check_as_kafka(pattern)
    return compiled


def _short(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= _SHOWN else f"{pattern[:_SHOWN]!r}..."


def _check_as_kafka(pattern: str) -> None:
    """Refuse what Kafka's RE2/J does not compile, although RE2 does."""
    names = set[str]()
    for part in _PARTS.finditer(pattern):
        if part["escape"] == "C":
            raise InvalidPatternError(f"{_short(pattern)} has \\C, which Kafka does not know")
        name = part["name"]
        if name is not None:
            if name in names:
                raise InvalidPatternError(f"{_short(pattern)} gives two groups the name {_short(name)}")
            names.add(name)
