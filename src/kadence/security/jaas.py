"""``sasl.jaas.config``, Java's way to write credentials down, so that settings of Java and Spark carry over.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

One login module, a control flag, options, a semicolon; values may be quoted. Errors never show a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kadence.errors import ConfigError

__all__ = ["LoginModule", "parse"]

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
  | "(?P<double> (?:[^"\\\n] | \\.)* )"
  | '(?P<single> (?:[^'\\\n] | \\.)* )'
  | (?P<mark> [=;] )
  | (?P<word> [^\s=;"']+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module: the last part of its class name, and its options, which may be secret."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse(text: str) -> LoginModule:
    """Read one login module.

    Raises:
        ConfigError: it is not written as Java writes it.
    """
    tokens = list(_tokens(text))
    try:
        module, flag, *rest = tokens
    except ValueError:
        raise _bad("it is too short") from None
    if module in ("=", ";") or flag.lower() not in _FLAGS:
        raise _bad(f"the login module's class is followed by one of {', '.join(_FLAGS)}")
    if ";" not in rest:
        raise _bad("it ends with a semicolon")
    end = rest.index(";")
    if rest[end + 1 :]:
        raise _bad("only one login module is allowed, ended by the one semicolon")
    options: dict[str, str] = {}
    parts = rest[:end]
    for place in range(0, len(parts), 3):
        name, equals, value = (*parts[place : place + 3], "", "")[:3]
        if equals != "=" or value == "=" or place + 2 >= len(parts):
            raise _bad('options are name="value"')
        options[str(name)] = str(value)
    return LoginModule(module.rpartition(".")[2], options)


class _Quoted(str):
    """A value in quotes, which is never a mark."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quoted) and str.__eq__(self, other)


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _bad("a quote is not closed")
        place = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield _Quoted(
                re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), quoted, flags=re.DOTALL)
            )
        elif match["space"] is None:
            yield match[0]


def _bad(what: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {what}; e.g. org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="…" password="…";',
        key="sasl.jaas.config",
    )
