"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names by the coordinator (KIP-848).

The engine is RE2 itself, by ``google-re2`` (the extra ``broker``). Python's `re` is no stand-in: it knows other syntax,
and a hostile expression can keep it busy for hours, while RE2's time grows with the length of the name alone.

The cost of an expression is bounded: its length, the engine's memory for it, the number of compiled ones that are kept,
and the work before other clients are served (`Matching`).
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
"""The most memory of RE2 for one expression, by its own count; a longer program is refused."""
_KEPT: Final = 16
"""The number of expressions that stay compiled in this process. Compiling one again takes 45 ms at most."""
_STEP_WORK: Final = 2_000_000
"""The most work of one step of `Matching`, in steps of RE2's slowest engine (about 30 ns each)."""
_COMPILING: Final = 30
"""The work of compiling, for each instruction of the program."""
_CALLING: Final = 120
"""The fixed work of matching one name."""
_SHOWN: Final = 200
"""The most characters of an expression in an error: a response has no room for longer texts."""

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
    """The topics that a regular expression matched.

    Attributes:
        version: of the topics (`TopicImages.version`) that it was matched against, as that process counted.
        timestamp: when, as time of day in ms.
    """

    topics: frozenset[str]
    version: int
    timestamp: int


class InvalidPatternError(Exception):
    """Not an expression of RE2's, or RE2 is not installed; the text says which."""


def validate(pattern: str) -> None:
    """Refuse an expression that RE2 cannot compile.

    Raises:
        InvalidPatternError: with RE2's own message, or the package to install.
    """
    _compiled(pattern)


class Matching:
    """Matches expressions against the names of topics, step by step. One that does not compile matches none.

    Attributes:
        found: the names that each expression matches; complete once `advance` has returned True.
    """

    __slots__ = ("_steps", "found")

    def __init__(self, patterns: Iterable[str], names: Iterable[str]) -> None:
        self.found: dict[str, frozenset[str]] = {}
        self._steps = self._match(list(patterns), list(names))

    def advance(self) -> bool:
        """Do one step, as long as other clients may have to wait; True once all is done."""
        return next(self._steps, True)

    def _match(self, patterns: list[str], names: list[str]) -> Iterator[bool]:
        work = 0
        for pattern in patterns:
            matched: list[str] = []
            try:
                expression = _compiled(pattern)
            except InvalidPatternError:
                # It compiled when its member joined: this process lacks RE2, or has other bounds.
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
    """The names that each expression matches, in one go."""
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
    options.never_capture = True  # Only whole names are matched, and each captured group would cost time.
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPatternError(f"{_short(pattern)} is not in the syntax of RE2: {text[:_SHOWN]}") from None
    finally:
        re2.purge()  # It keeps 128 expressions by itself, of any size.
    _check_as_kafka(pattern)
    return compiled


def _short(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= _SHOWN else f"{pattern[:_SHOWN]!r}..."


def _check_as_kafka(pattern: str) -> None:
    """Refuse expressions that Kafka's RE2/J does not compile, although RE2 does."""
    names = set[str]()
    for part in _PARTS.finditer(pattern):
        if part["escape"] == "C":
            raise InvalidPatternError(f"{_short(pattern)} has \\C, which Kafka does not know")
        name = part["name"]
        if name is not None:
            if name in names:
                raise InvalidPatternError(f"{_short(pattern)} gives two groups the name {_short(name)}")
            names.add(name)
