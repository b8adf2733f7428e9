r"""Translates the connector's regular expressions from Java's syntax to Python's, or refuses them.

Both languages agree on most patterns of topics. Different syntax is rewritten: named groups, ``\Q...\E``, ``\z`` and
the classes ``\p{...}``, which are exact here, because topic names have only ASCII letters, digits, ``.``, ``_`` and
``-``. Patterns that Python would interpret differently (sets within sets), or not at all, are refused.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from kadence.errors import ConfigError

__all__ = ["compiled"]

_LOWER, _UPPER, _DIGIT, _PUNCTUATION = "a-z", "A-Z", "0-9", r"._\-"

_CLASSES: Final[dict[str, str]] = {
    **dict.fromkeys(("Lower", "Ll", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "IsLetter"), _LOWER + _UPPER),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), _DIGIT),
    "Alnum": _LOWER + _UPPER + _DIGIT,
    "XDigit": "a-fA-F0-9",
    **dict.fromkeys(("Punct", "P", "IsP", "IsPunctuation"), _PUNCTUATION),
    **dict.fromkeys(("ASCII", "Graph", "Print"), _LOWER + _UPPER + _DIGIT + _PUNCTUATION),
}
"""For each Java class, its characters that are allowed in topic names."""

_TOKEN: Final = re.compile(
    r"""
      \\Q (?P<quoted> .*?) (?: \\E | \Z)
    | \\(?P<negation> [pP]) (?: \{ (?P<class> [^}]*) \} | (?P<letter> [A-Za-z]))
    | \\k< (?P<again> [A-Za-z][A-Za-z0-9]*) >
    | \\(?P<end> z)
    | (?P<escape> \\.)
    | \(\?< (?P<name> [A-Za-z][A-Za-z0-9]*) >
    | (?P<open> \[\^?)
    | (?P<close> \])
    | (?P<both> &&)
    | (?P<other> .)
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=64)
def compiled(text: str) -> re.Pattern[str]:
    """A Java regular expression as Python's.

    Raises:
        ConfigError: it is invalid, or uses a feature that Python lacks; the message names it.
    """
    try:
        return re.compile(_translated(text))
    except re.error as problem:
        raise ConfigError(f"{text!r} is no regular expression that can be read here: {problem}") from None


def _translated(text: str) -> str:
    parts: list[str] = []
    in_set = False
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "quoted":
                parts.append(re.escape(token["quoted"]))
            case "class" | "letter":
                parts.append(_class(text, token, in_set=in_set))
            case "again":
                parts.append(f"(?P={token['again']})")
            case "end":
                parts.append(r"\Z")
            case "name":
                parts.append(f"(?P<{token['name']}>")
            case "open" | "both" if in_set:
                raise ConfigError(
                    f"{text!r} has a set of characters within a set ({token.group()} at {token.start()}), which only "
                    r"Java has: write the resulting set, or \[ and \& for the characters"
                )
            case "open" | "close":
                in_set = token.lastgroup == "open"
                parts.append(token.group())
            case _:
                parts.append(token.group())
    return "".join(parts)


def _class(text: str, token: re.Match[str], *, in_set: bool) -> str:
    r"""``\p{Lower}``, as a set of its own or as part of the one around it."""
    members = _CLASSES.get(token["class"] or token["letter"])
    negated = token["negation"] == "P"
    if members is None or (negated and in_set):
        known = ", ".join(name for name in _CLASSES if not name.startswith(("Is", "java")))
        raise ConfigError(
            f"{text!r} has the class {token.group()}, which is not known here"
            f"{' within a set' if negated else ''}: known are {known}, or write the characters, such as [a-z]"
        )
    if in_set:
        return members
    return f"[{'^' if negated else ''}{members}]"
