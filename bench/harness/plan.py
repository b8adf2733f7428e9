"""What a child process is told, what it tells back, and what the person at the terminal chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.ground import Ground
    from harness.table import Goal, Table

Figures = dict[str, float]
"""What one run of one client measured, by name."""

Outcome = Figures | str
"""Figures, or the reason why there are none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of one client, as its process gets it.

    Attributes:
        count: how many records, calls or consumers; what it counts is the row's affair.
        seconds: the longest time that is measured.
        work_us: microseconds of Python to spend on each record, standing for the application's own work.
        size: bytes of the values to write, for rows that write.
        busy: a second thread of the process computes in Python all the time.
        ca: file with the certificate to trust; "" means plaintext.
        protocol: group.protocol to ask for; "" leaves the client's default.
        java: the command that starts Java's client: Kafka's ConsumerPerformance, or a program of the row's own.
        meeting: a folder in which members of one run agree when to begin; see `harness.meeting`.
    """

    bootstrap: str
    topic: str
    group: str
    count: int = 0
    seconds: float = 3.0
    work_us: float = 0.0
    size: int = 0
    busy: bool = False
    ca: str = ""
    protocol: str = ""
    java: tuple[str, ...] = ()
    meeting: str = ""

    @property
    def wait(self) -> float:
        """Seconds that one poll may wait: they bound what is lost when a topic ends too early."""
        return min(1.0, self.seconds)


@dataclass(frozen=True, slots=True)
class Line:
    """One client in one way of use: a line of a table. ``run`` is called in the client's own process.

    ``python`` is the interpreter of that process; "" is the one that runs the benchmark.
    """

    title: str
    run: Callable[[Plan], Figures]
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


OTHER = "@other"
"""In the names of lines that run another checkout of Kadence, or another Python."""


def beside_another(lines: MutableMapping[str, Line], source: Path) -> None:
    """Add each of our own lines once more, run by the Kadence under ``source``: two checkouts in one run."""
    for name, line in list(lines.items()):
        if name.startswith("kadence") and OTHER not in name:
            environment = {**line.environment, "PYTHONPATH": str(source)}
            lines[name + OTHER] = replace(line, title=f"{line.title} ({source})", environment=environment)


def beside_other_pythons(lines: MutableMapping[str, Line], pythons: Sequence[str]) -> None:
    """Add each of our own lines once more for each of these interpreters, which must have Kadence installed."""
    for name, line in list(lines.items()):
        if name.startswith("kadence") and OTHER not in name:
            for python in pythons:
                other = replace(line, title=f"{line.title} ({python})", python=python)
                lines[f"{name}{OTHER}:{python}"] = other


@dataclass(frozen=True, slots=True)
class Options:
    """What the person at the terminal chose.

    Attributes:
        records: records of 100 B in a topic; a fifth as many of 1 KiB.
        seconds: the longest time for one run of one client.
        rounds: how often a client reads; the best counts.
        lines: only clients whose names begin with one of these; empty means all.
    """

    records: int = 8_000_000
    seconds: float = 3.0
    rounds: int = 2
    lines: tuple[str, ...] = ()

    def wants(self, line: str) -> bool:
        return not self.lines or line.startswith(self.lines)


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that a user does, measured for all who can do it.

    Attributes:
        name: of the row's file, of ``--rows`` and of the markers in bench/NOTES.md.
        lines: the clients by the names under which a child process finds them.
        measure: runs them and returns tables, and what was promised beside what came out.
    """

    name: str
    lines: dict[str, Line]
    measure: Callable[[Ground, Options], tuple[list[Table], list[Goal]]]
