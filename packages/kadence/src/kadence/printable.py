"""Text that others chose, made fit for a terminal and for a line of a log.

Whoever may join a group or write to a topic chooses group ids, client ids, keys and values. In raw form a control
character in them gives the terminal orders, a newline begins a line that nobody here wrote, and a bidirectional
override shows letters in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["plural", "printable", "printable_json", "text_of"]

_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, marks and overrides of direction, line and paragraph separators."""


def printable(text: str) -> str:
    r"""The text in one line that only shows itself: other characters become ``\x1b`` or ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    shown = _UNSAFE.sub(_escaped, text)
    # Half of a surrogate pair cannot be written to any stream.
    return shown.encode(errors="backslashreplace").decode()


def plural(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 record`` or ``1,200 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def text_of(thing: object, show: Callable[[Any], str] = str) -> str:
    """``str(thing)``, or by ``repr``. Where that raises, for it is an application's code: the class of the thing."""
    try:
        return show(thing)
    except Exception as error:  # noqa: BLE001 - what it raises says nothing about what is to be shown
        return f"<{type(thing).__name__}, whose text raises {type(error).__name__}>"


def printable_json(text: str) -> str:
    """A JSON text with the same meaning, in which such characters of strings are escaped."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escaped_in_json, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
