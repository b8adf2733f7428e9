"""Tables of the benchmarks: aligned text for the terminal, Markdown for docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One client's line. Figures are None when it failed; ``failure`` then says why."""

    name: str
    failure: str
    per_second: float | None
    cpu_microseconds: float | None
    peak_rss_mb: float | None
    yardstick_per_second: float | None

    def cells(self) -> tuple[str, str, str, str, str]:
        if self.per_second is None or self.cpu_microseconds is None or self.peak_rss_mb is None:
            return (self.name, "–", "–", "–", "–")
        ratio = f"{self.per_second / self.yardstick_per_second:.2f}" if self.yardstick_per_second else "–"
        return (
            self.name,
            f"{self.per_second / 1000:,.0f} k",
            ratio,
            f"{self.cpu_microseconds:.2f}",
            f"{self.peak_rss_mb:.0f}",
        )


HEADINGS = ("client", "records/s", "× confluent-kafka best", "CPU µs/record", "peak RSS MB")


def text_table(rows: Sequence[Row]) -> str:
    cells = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [
        line[0].ljust(widths[0])
        + "".join(f"  {cell.rjust(width)}" for cell, width in zip(line[1:], widths[1:], strict=True))
        for line in cells
    ]
    return "\n".join(lines + [f"{row.name}: {row.failure}" for row in rows if row.failure])


def markdown(rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row.cells()) + " |" for row in rows])


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
