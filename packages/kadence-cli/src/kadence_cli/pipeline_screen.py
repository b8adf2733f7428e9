"""The output of ``kadence pipeline run``: a live table on a terminal with rich, else a line at intervals."""

from __future__ import annotations

import time
from types import TracebackType
from typing import IO, Any, Final, Self

from kadence_spark.pipeline.progress import Progress, shown_lag, shown_seconds

__all__ = ["Screen", "line"]

_LINE_S: Final = 5.0


class Screen:
    """Called with the progress whenever it changes; used within ``with``."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next = 0.0
        self._shown: Progress | None = None
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            try:
                from rich.console import Console
                from rich.live import Live
            except ImportError:
                return self
            self._live = Live(console=Console(file=self._stream), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._shown is not None:
            print(line(self._shown), file=self._stream, flush=True)

    def __call__(self, progress: Progress) -> None:
        self._shown = progress
        if self._live is not None:
            self._live.update(_panel(progress))
        elif progress.state == "running" and time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_S
            print(line(progress), file=self._stream, flush=True)


def line(progress: Progress) -> str:
    """The progress of a run in one line, without the error of a failure, which is raised."""
    parts = [
        f"{progress.name} {progress.state}",
        f"{progress.rows_in:,} records read",
        f"{progress.rows_out:,} rows written",
    ]
    if progress.rows_per_second is not None:
        parts.append(f"{progress.rows_per_second:,.0f} records/s")
    if progress.undecoded:
        parts.append(f"{progress.undecoded:,} not decoded")
    if progress.dropped:
        parts.append(f"{progress.dropped:,} dropped")
    parts += [f"{count:,} rows fail {name}" for name, count in progress.expectations.items() if count]
    if progress.lag:
        parts.append(shown_lag(progress.total_lag) + _until(progress))
    return ", ".join(parts)


def _until(progress: Progress) -> str:
    seconds = progress.seconds_to_catch_up
    if not progress.total_lag:
        return ""
    return " and not catching up" if seconds is None else f", caught up in {shown_seconds(seconds)}"


def _panel(progress: Progress) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    table.add_column("partition")
    table.add_column("behind", justify="right")
    table.add_column("end", justify="right")
    # The partitions with the most lag, as many as a small terminal has lines.
    furthest = sorted(progress.lag.items(), key=lambda each: -(each[1] or 0))[:16]
    for name, behind in sorted(furthest):
        table.add_row(name, "?" if behind is None else f"{behind:,}", f"{progress.ends.get(name, 0):,}")
    return Group(Text(line(progress)), table)
