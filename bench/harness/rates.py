"""Rows that read a topic as fast as they can: which client reads how many records per second, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import children
from harness.plan import Figures, Line, Options, Outcome, Plan
from harness.table import Goal, Table

if TYPE_CHECKING:
    from harness.ground import Ground

HEADINGS = ("client", "records/s", "× confluent's best", "CPU µs/record", "peak RSS MB")


@dataclass(frozen=True, slots=True)
class Case:
    """One table: what is read, and how."""

    name: str
    title: str
    size: int
    work_us: float = 0.0
    tls: bool = False


class Rates:
    """What came out for the lines of one case. ``failures`` says why some lines have no figures."""

    def __init__(self, title: str, lines: Mapping[str, Line], runs: Mapping[str, Sequence[Outcome]]) -> None:
        self._title = title
        self._lines = {name: lines[name] for name in runs}
        failures = (
            f"{lines[name].title}: {run if isinstance(run, str) else 'read no records'}"
            for name, made in runs.items()
            for run in made
            if isinstance(run, str) or not run["records"]
        )
        self.failures = list(dict.fromkeys(failures))
        self._figures: dict[str, list[Figures]] = {
            name: [run for run in made if not isinstance(run, str) and run["records"]]
            for name, made in runs.items()
        }

    def rate(self, *prefixes: str) -> float | None:
        """Records per second of the fastest run of the lines whose names begin so."""
        return max(
            (
                run["records"] / run["seconds"]
                for name, made in self._figures.items()
                for run in made
                if name.startswith(prefixes)
            ),
            default=None,
        )

    def cpu(self, line: str) -> float | None:
        """Microseconds of processor time for each record: the least of the line's runs."""
        return min((run["cpu"] / run["records"] * 1e6 for run in self._figures.get(line, [])), default=None)

    def table(self, notes: Sequence[str] = ()) -> Table:
        """The table; each client's best run counts, and its CPU is that of the cheapest run."""
        yardstick = self.rate("confluent")
        turns = {int(run["turns"]) for made in self._figures.values() for run in made if run.get("turns")}
        notes = list(notes)
        if turns:
            notes.append(f"The work was {min(turns)} to {max(turns)} turns of an empty loop, as calibrated.")
        lines = [self._cells(name, line.title, yardstick) for name, line in self._lines.items()]
        return Table(self._title, HEADINGS, lines, notes, self.failures)

    def _cells(self, name: str, title: str, yardstick: float | None) -> tuple[str, ...]:
        rate, cpu = self.rate_of(name), self.cpu(name)
        if rate is None or cpu is None:
            return (title, *["–"] * 4)
        memory = min(run["rss"] for run in self._figures[name])
        ratio = f"{rate / yardstick:.2f}" if yardstick else "–"
        return (title, f"{rate / 1000:,.0f} k", ratio, f"{cpu:.2f}", f"{memory:.0f}")

    def rate_of(self, line: str) -> float | None:
        """Records per second of the fastest run of one line."""
        return max((run["records"] / run["seconds"] for run in self._figures.get(line, [])), default=None)

    def ratio_goal(
        self, what: str, ours: str, theirs: str | tuple[str, ...], least: float, whose: str
    ) -> Goal:
        """Our rate is at least ``least`` times the best rate of theirs in the same run."""
        promised = f"≥ {least:g} × {whose}"
        mine = self.rate_of(ours)
        peer = self.rate(*([theirs] if isinstance(theirs, str) else theirs))
        if mine is None or peer is None:
            return Goal(what, promised, "–")
        return Goal(what, promised, f"{mine / peer:.2f} × ({mine / 1000:,.0f} k/s)", mine >= least * peer)

    def cpu_goal(self, what: str, ours: str, most: float) -> Goal:
        """A record costs at most so many microseconds of processor time."""
        cpu = self.cpu(ours)
        promised = f"≤ {most:g} µs CPU a record"
        return (
            Goal(what, promised, "–") if cpu is None else Goal(what, promised, f"{cpu:.2f} µs", cpu <= most)
        )


def run_case(
    row: str,
    case: Case,
    lines: Mapping[str, Line],
    ground: Ground,
    options: Options,
    only_once: Sequence[str] = ("aiokafka", "kafka-python", "java"),
    *,
    java: tuple[str, ...] = (),
    before: Callable[[Plan], None] = lambda _plan: None,
) -> Rates:
    """All clients of a case. The rounds take turns, so that a slow minute of the machine hits all alike.

    ``only_once``: clients that are far from the figures that matter; one run of them tells enough. ``java``: the
    command that starts Java's client, in place of ConsumerPerformance. ``before``: what each run needs beforehand.
    """
    topic, count = ground.values(case.size, options)
    runs: dict[str, list[Outcome]] = {name: [] for name in lines if options.wants(name)}
    for turn in range(options.rounds):
        for name, made in runs.items():
            if turn and name.startswith(tuple(only_once)):
                continue
            plan = Plan(
                bootstrap=ground.tls if case.tls else ground.bootstrap,
                topic=topic,
                group=f"bench-{row}-{case.name}-{name}-{turn}",
                count=count,
                seconds=options.seconds,
                work_us=case.work_us,
                ca=ground.certificate if case.tls else "",
                protocol={"java-classic": "classic", "java-new": "consumer"}.get(name, ""),
                java=java or ground.java,
            )
            before(plan)
            outcome = children.run(row, name, lines[name], plan)
            made.append(outcome)
            said = (
                outcome
                if isinstance(outcome, str)
                else f"{outcome['records'] / outcome['seconds']:,.0f} records/s"
            )
            print(f"  {row} {case.name} {name}: {said}", flush=True)
    return Rates(case.title, lines, runs)
