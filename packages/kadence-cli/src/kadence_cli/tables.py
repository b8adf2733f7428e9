"""Rows as a table for people: plain columns, one line a row, shortened to the width of the terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from kadence.printable import printable

__all__ = ["print_table", "terminal_size", "terminal_width"]

_GAP: Final = 2
_LEAST: Final = 6
"""The least width of a column."""


def terminal_size() -> tuple[int, int]:
    """Columns and lines of the terminal of stdout, as `shutil.get_terminal_size`: `shutil` loads each compressor."""
    columns, lines = (_number(os.environ.get(name, "")) for name in ("COLUMNS", "LINES"))
    if not (columns and lines):
        try:
            size = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            size = os.terminal_size((0, 0))
        columns, lines = columns or size.columns or 80, lines or size.lines or 24
    return columns, lines


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def terminal_width(stream: IO[str]) -> int:
    """Columns of the terminal; 80 if ``stream`` is not one."""
    return terminal_size()[0] if stream.isatty() else 80


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    stream: IO[str],
    *,
    title: str = "",
    wide: bool = False,
    wrap: bool = False,
) -> None:
    """Print a table.

    Args:
        wide: whole values, in lines of any length. Otherwise the longest texts are shortened with "…", and lists end
            with the number of omitted items, e.g. ``t-0, t-1 +4``.
        wrap: long values go on in the next line of their column instead of being shortened.
    """
    whole = [[_cell(row.get(column)) for column in columns] for row in rows]
    is_number = [_is_number([row.get(column) for row in rows]) for column in columns]
    widths = [max(len(line[at]) for line in [list(columns), *whole]) for at in range(len(columns))]
    if not wide:
        _fit(widths, is_number, [len(column) for column in columns], terminal_width(stream))
    if title:
        print(title, file=stream)
    head = _joined(list(columns), widths, is_number)
    print(f"\x1b[1m{head}\x1b[0m" if stream.isatty() else head, file=stream)
    for row, line in zip(rows, whole, strict=True):
        if wrap:
            parts = [textwrap.wrap(cell, width) or [""] for cell, width in zip(line, widths, strict=True)]
            for number in range(max(map(len, parts))):
                cells = [part[number] if number < len(part) else "" for part in parts]
                print(_joined(cells, widths, is_number), file=stream)
            continue
        cells = [
            _shortened(row.get(column), cell, width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        ]
        print(_joined(cells, widths, is_number), file=stream)


def _is_number(values: Sequence[Any]) -> bool:
    given = [value for value in values if value is not None]
    return bool(given) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in given
    )


def _joined(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, is_number, strict=True)
    ]
    return (" " * _GAP).join(parts).rstrip()


def _fit(widths: list[int], is_number: Sequence[bool], heads: Sequence[int], width: int) -> None:
    """Shrink the widest column of text until the lines fit, or no column can shrink. Numbers are not shortened."""
    texts = [at for at, number in enumerate(is_number) if not number]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        able = [at for at in texts if widths[at] > max(_LEAST, heads[at])]
        if not able:
            return
        widths[max(able, key=lambda at: widths[at])] -= 1
        excess -= 1


def _shortened(value: Any, cell: str, room: int) -> str:
    if len(cell) <= room:
        return cell
    if isinstance(value, list | tuple):
        for count in range(len(value) - 1, 0, -1):
            text = f"{_joined_list(value[:count])} +{len(value) - count}"
            if len(text) <= room:
                return text
    # Names have common beginnings and ids different ends: keep a piece of both.
    end = (room - 1) // 3
    return f"{cell[: room - 1 - end]}…{cell[-end:] if end else ''}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return _joined_list(value)
    return printable(str(value))


def _joined_list(values: Sequence[Any]) -> str:
    return printable(", ".join(map(str, values)))
