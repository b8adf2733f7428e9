"""Tables of the benchmarks: aligned text for the terminal, Markdown for bench/NOTES.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Table:
    """Lines under headings; the first column is words, the others are figures. ``failures`` say why a line has none."""

    title: str
    headings: tuple[str, ...]
    lines: Sequence[tuple[str, ...]]
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()

    def text(self) -> str:
        cells = [self.headings, *self.lines]
        widths = [max(len(line[column]) for line in cells) for column in range(len(self.headings))]
        aligned = [
            line[0].ljust(widths[0])
            + "".join(f"  {cell.rjust(width)}" for cell, width in zip(line[1:], widths[1:], strict=True))
            for line in cells
        ]
        return "\n".join([self.title, *aligned, *self.failures])

    def markdown(self) -> str:
        rule = "|---|" + "---:|" * (len(self.headings) - 1)
        lines = [f"**{self.title}**", "", _markdown_line(self.headings), rule]
        lines += [_markdown_line(line) for line in self.lines]
        return "\n".join([*lines, *(f"\n{note}" for note in (*self.notes, *self.failures))])


@dataclass(frozen=True, slots=True)
class Goal:
    """Something promised, what came out, and whether it was kept (None: could not be measured)."""

    what: str
    promised: str
    measured: str
    is_kept: bool | None = field(default=None)

    def cells(self) -> tuple[str, str, str, str]:
        verdict = {True: "yes", False: "**no**", None: "not measured"}[self.is_kept]
        return (self.what, self.promised, self.measured, verdict)


def goals_table(goals: Sequence[Goal]) -> Table:
    headings = ("what a user does", "goal", "measured", "reached")
    return Table("Goals", headings, [goal.cells() for goal in goals])


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_section(file: Path, name: str, command: str, paragraphs: Sequence[str]) -> None:
    """Replace what lies between the markers of section ``name`` in ``file``; the text around stays."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    body = "\n\n".join([begin, f"Made by `{command}`.", *paragraphs, end])
    text = file.read_text() if file.exists() else ""
    if begin in text:
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: body, text, flags=re.DOTALL)
    else:
        text = f"{text.rstrip()}\n\n{body}\n".lstrip()
    file.write_text(text)
