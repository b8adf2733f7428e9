"""Finds the line of each key of a TOML file, which the standard library's parser does not report.

`tomllib` has parsed the file before, so it is valid: this scan only finds the beginnings of keys, and skips text that
may look like one, in multi-line strings, and in lists and tables within a value.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Path", "line_of", "positions"]

Path = tuple[str | int, ...]
"""The path to a key: names, and indexes of list elements from 0."""

_SIMPLE: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DOTTED: Final = rf"{_SIMPLE}(?:[ \t]*\.[ \t]*{_SIMPLE})*"
_HEADER: Final = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?")
_KEY: Final = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
# The tokens of a value, as far as brackets, line ends and the next key matter.
_TOKEN: Final = re.compile(
    r"\"\"\"(?:[^\\]|\\.)*?\"\"\"\"{0,2}"
    r"|'''.*?''''{0,2}"
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{},\n]|[^"'\#\[\]{},\n]+""",
    re.DOTALL,
)


def positions(text: str) -> dict[Path, int]:
    """The line, from 1, of each key and each table of a TOML document."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    at = 0
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        if header := _HEADER.match(text, at):
            table = _table(_names(header.group(2)), counts, is_element=header.group(1) == "[[")
            _note(found, table, line)
            at = header.end()
        elif key := _KEY.match(text, at):
            path = table + _names(key.group(1))
            _note(found, path, line)
            at = _skip_value(text, key.end(), path, found)
        else:
            # An empty line or a comment.
            at = text.find("\n", at) + 1 or len(text)
    return found


def line_of(path: Path, known: dict[Path, int]) -> int:
    """The line of a key, or of the nearest enclosing table in the file."""
    while path and path not in known:
        path = path[:-1]
    return known.get(path, 1)


def _note(found: dict[Path, int], path: Path, line: int) -> None:
    """A dotted key creates the tables on its path, which begin on the line that first names them."""
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _table(names: Path, counts: dict[Path, int], *, is_element: bool) -> Path:
    """The path of a header; a table below a list of tables belongs to the list's last element."""
    path: Path = ()
    for position, name in enumerate(names):
        path += (name,)
        if is_element and position == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _names(dotted: str) -> Path:
    # tomllib parses quoted names.
    document: Any = tomllib.loads(f"{dotted} = 0")
    names: list[str | int] = []
    while isinstance(document, dict):
        ((name, document),) = document.items()
        names.append(name)
    return tuple(names)


def _skip_value(text: str, at: int, path: Path, found: dict[Path, int]) -> int:
    """The end of the value that begins here; records the lines of keys of tables within it."""
    depth: list[Path] = []
    indexes: list[int] = []
    for token, start, end in _tokens(text, at):
        if token == "\n" and not depth:
            return end
        if token in "[{":
            inner = path if not depth else _element(depth, indexes, text, at, token)
            depth.append(inner)
            indexes.append(0 if token == "[" else -1)
        elif token in "]}":
            depth.pop()
            indexes.pop()
        elif token == "," and indexes and indexes[-1] >= 0:
            indexes[-1] += 1
        if depth and indexes[-1] < 0 and token in "{,\n" and (key := _KEY.match(text, end)):
            _note(found, depth[-1] + _names(key.group(1)), text.count("\n", 0, start) + 1)
            at = end
    return len(text)


def _element(depth: list[Path], indexes: list[int], text: str, at: int, token: str) -> Path:
    """The path of a list or table within a value."""
    if indexes[-1] >= 0:
        return (*depth[-1], indexes[-1])
    key = _KEY.match(text, at)
    return depth[-1] + (_names(key.group(1)) if key else ())


def _tokens(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    for match in _TOKEN.finditer(text, at):
        yield match.group(), match.start(), match.end()
