"""Subscriptions by regular expression: RE2's syntax, matched against whole topic names by the coordinator (KIP-848).

The engine is RE2 itself, by ``google-re2`` (the extra ``broker``). Python's `re` is no stand-in: it knows other syntax,
and an expression of a stranger can keep it busy for hours, where RE2's time grows with the length of the name alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

__all__ = ["InvalidPatternError", "Resolved", "matches", "validate"]

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


def matches(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Which of the topics ``names`` each expression matches. One that does not compile matches none."""
    known = list(names)
    found = {}
    for pattern in patterns:
        try:
            expression = _compiled(pattern)
        except InvalidPatternError:
            # It was good when its member joined: this process lacks RE2.
            found[pattern] = frozenset[str]()
            continue
        found[pattern] = frozenset(name for name in known if expression.fullmatch(name))
    return found


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        raise InvalidPatternError(
            "this broker matches regular expressions with google-re2, which is not installed "
            "(pip install 'kadence[broker]')"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPatternError(f"{pattern!r} is not in the syntax of RE2: {text}") from None
    _check_as_kafka(pattern)
    return compiled


def _check_as_kafka(pattern: str) -> None:
    """Refuse what Kafka's RE2/J does not compile, although RE2 does."""
    names = set[str]()
    for part in _PARTS.finditer(pattern):
        if part["escape"] == "C":
            raise InvalidPatternError(f"{pattern!r} has \\C, which Kafka does not know")
        name = part["name"]
        if name is not None:
            if name in names:
                raise InvalidPatternError(f"{pattern!r} gives two groups the name {name!r}")
            names.add(name)
