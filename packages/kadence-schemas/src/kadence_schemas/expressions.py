"""Regular expressions of untrusted schemas, searched in a bounded time.

Python's search backtracks, and cannot be stopped. So its worst case is estimated before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from kadence_schemas.steps import spend

__all__ = ["Expressions"]

_AT_ONCE: Final = 500
"""How many looks of a search at a character count as a step."""

_QUICK: Final = 100_000
"""Python does every search that takes at most this many looks."""

_LETTERS_AT_ONCE: Final = 100
"""How many characters of a compiled set count as a step; each set counts ten more."""

_LENGTHS: Final = 1000
"""For how many lengths of text the longest search is remembered."""

_NEVER: Final = 10**15
"""Practically unlimited."""


class Expressions:
    """The regular expressions of one schema, each compiled once."""

    def __init__(self) -> None:
        self._known: dict[str, _Expression] = {}

    def search(self, pattern: str, text: str) -> bool:
        """Whether a pattern is found in a text.

        Raises:
            re.error: it is not a valid pattern.
            TooManyStepsError: the search might take too long.
        """
        return self.made(pattern).search(text)

    def made(self, pattern: str) -> _Expression:
        """The compiled pattern."""
        found = self._known.get(pattern)
        if found is None:
            spend(len(pattern))
            found = self._known[pattern] = _Expression(pattern)
        return found


class _Expression:
    """One pattern.

    Python searches if even its worst case is quick. Otherwise RE2 does, whose time depends only on the text; its
    letters, digits and spaces are those of ASCII. If RE2 does not support the pattern, or is not
    installed, Python searches if enough steps are left for the worst case.
    """

    def __init__(self, pattern: str) -> None:
        self._parsed = _parsed(pattern)
        # Python's compiler goes through all characters of a set.
        spend(_letters_of_sets(self._parsed) // _LETTERS_AT_ONCE)
        self._search = re.compile(pattern).search
        self._pattern = pattern
        self._known_looks: dict[int, int] = {}
        self._linear: Any = None
        self._is_linear_made = False

    def search(self, text: str) -> bool:
        looks = self._most_looks(len(text))
        if looks > _QUICK:
            linear = self._re2()
            if linear is not None:
                spend(len(text) * len(self._pattern) // _AT_ONCE)
                return linear.search(text) is not None
        spend(looks // _AT_ONCE)
        return self._search(text) is not None

    def _most_looks(self, length: int) -> int:
        found = self._known_looks.get(length)
        if found is None:
            if len(self._known_looks) >= _LENGTHS:
                self._known_looks.clear()
            spend(len(self._pattern) // 5)
            found = self._known_looks[length] = self._counted_looks(length)
        return found

    def _counted_looks(self, length: int) -> int:
        if self._parsed is None:
            return _NEVER
        _, looks = _worst(self._parsed, length)
        return min(looks if _is_anchored(self._parsed) else looks * (length + 1), _NEVER)

    def _re2(self) -> Any:
        if not self._is_linear_made:
            self._is_linear_made = True
            self._linear = _compiled_by_re2(self._pattern)
        return self._linear


def _compiled_by_re2(pattern: str) -> Any:
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        # It contains a look-around or a back-reference.
        return None


def _parsed(pattern: str) -> Any:
    """The pattern as parsed by Python's own parser; None: the parser was not found."""
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        return None
    return list(_parser.parse(pattern))


def _letters_of_sets(part: Any) -> int:
    """The number of characters in the ranges of a parsed pattern's sets, plus a thousand for each set."""
    if not isinstance(part, tuple | list) and not hasattr(part, "data"):
        return 0
    if isinstance(part, tuple) and len(part) == 2:
        if str(part[0]) == "RANGE":
            return int(part[1][1] - part[1][0])
        if str(part[0]) == "IN":
            return 1000 + sum(map(_letters_of_sets, part[1]))
    return sum(map(_letters_of_sets, list(part)))


def _is_anchored(items: list[Any]) -> bool:
    return (
        bool(items)
        and str(items[0][0]) == "AT"
        and str(items[0][1]) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
    )


def _worst(items: Iterable[Any], length: int) -> tuple[int, int]:
    """The number of ways to match a text of a length from one place, and the looks that all of them take."""
    ways = looks = 1
    for name, argument in items:
        some, each = _worst_of(str(name), argument, length)
        looks = min(looks + ways * each, _NEVER)
        ways = min(ways * some, _NEVER)
    return ways, looks


def _worst_of(name: str, argument: Any, length: int) -> tuple[int, int]:
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, body = argument
        ways, looks = _repeated(int(least), min(int(most), length + 1), *_worst(body, length))
        return (1 if name == "POSSESSIVE_REPEAT" else ways), looks
    if name == "BRANCH":
        return _either(argument[1], length)
    if name == "GROUPREF_EXISTS":
        return _either([argument[1], argument[2] or []], length)
    if name == "SUBPATTERN":
        return _worst(argument[-1], length)
    if name == "ATOMIC_GROUP":
        return 1, _worst(argument, length)[1]
    if name in ("ASSERT", "ASSERT_NOT"):
        return 1, _worst(argument[1], length)[1]
    # A repeated group may be as long as the text; anything else is a look at a character.
    return 1, length + 1 if name == "GROUPREF" else 1


def _either(branches: Iterable[Any], length: int) -> tuple[int, int]:
    each = [_worst(branch, length) for branch in branches]
    return min(sum(ways for ways, _ in each), _NEVER), min(sum(looks for _, looks in each), _NEVER)


def _repeated(least: int, most: int, ways: int, looks: int) -> tuple[int, int]:
    times = max(least, most, 1)
    if ways == 1:
        return max(most - least + 1, 1), min(looks * times, _NEVER)
    # More than 50 doublings need not be computed.
    if times > 50:
        return _NEVER, _NEVER
    tried = sum(ways**each for each in range(times))
    return min(tried + ways**times, _NEVER), min(tried * looks, _NEVER)
