"""What one way of reading costs, stage by stage: as text, as Markdown beside an earlier measurement, and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from harness.floor import Floor
from harness.threads import APPLICATION, NETWORK, Usage

SYSTEM = "network thread: the system (copying, waiting)"
OWN = "network thread: its own code"
AROUND = "application: everything around"
RAW = "bytes read from a socket and not looked at"


@dataclass(frozen=True, slots=True)
class Report:
    """One way of reading.

    Attributes:
        unit: what is counted: a record, or a broker's answer where there are no records.
        stages: microseconds of processor time for each unit.
        raw: microseconds for what is needed at least; 0 where that is not measured.
        facts: what else was counted, with the unit in its name.
    """

    title: str
    unit: str
    stages: Mapping[str, float]
    raw: float
    facts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        return cls(**data)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def total(self) -> float:
        return sum(self.stages.values())

    def text(self) -> str:
        lines = [f"\n{self.title}: µs of CPU for each {self.unit}"]
        lines += [f"  {name:<48}{cost:10.3f}{cost / self.total:7.0%}" for name, cost in self.stages.items()]
        lines.append(f"  {'total':<48}{self.total:10.3f}")
        if self.raw:
            lines.append(f"  {f'({RAW})':<48}{self.raw:10.3f}")
        lines += [f"  {name:<48}{_figure(fact):>10}" for name, fact in self.facts.items()]
        return "\n".join(lines)

    def markdown(self, before: Report | None) -> str:
        """A table; with an earlier report its figures stand in a column of their own."""
        columns = [("before", before), ("now", self)] if before else [("now", self)]
        lines = [["", *(name for name, _ in columns)]]
        stages = dict.fromkeys([*self.stages, *(before.stages if before else ())])
        lines += [[name, *(_cost(each.stages, name) for _, each in columns)] for name in stages]
        lines.append(["**together**", *(f"**{each.total:.3f}**" for _, each in columns)])
        lines += [[name, *(_fact(each.facts, name) for _, each in columns)] for name in self.facts]
        lines.insert(1, ["---", *("---:" for _ in columns)])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"µs of processor time for each {self.unit}:\n\n{table}"


def _cost(stages: Mapping[str, float], name: str) -> str:
    return f"{stages[name]:.3f}" if name in stages else "–"


def _fact(facts: Mapping[str, float], name: str) -> str:
    return _figure(facts[name]) if name in facts else "–"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def report(title: str, runs: Mapping[str, dict[str, Any]], floor: Floor | None, *, is_arrow: bool) -> Report:
    """Of the runs ``cpu`` and ``calls``. ``floor`` says what was measured alone; it is taken off the application's."""
    run = runs["cpu"]
    unit, units = ("record", run["records"]) if run["records"] else ("answer", run["answers"])
    units = max(units, 1)

    def used(kind: str) -> Usage:
        return Usage(**run["after"].get(kind, {})) - Usage(**run["before"].get(kind, {}))

    def each(seconds: float) -> float:
        return float(seconds / units * 1e6)

    network, application = used(NETWORK), each(used(APPLICATION).seconds)
    stages = {SYSTEM: each(network.system), OWN: each(network.user)}
    if floor is None:
        stages["application"] = application
    else:
        own = {"application: checksum": floor.checksum}
        if is_arrow:
            own["application: columns made"] = floor.columns
        else:
            own |= {"application: records made": floor.records, "application: fields touched": floor.touched}
        stages |= own | {AROUND: application - sum(own.values())}
    if others := used("others").seconds:
        stages["other threads"] = each(others)
    facts = {**_rates(run, unit, units, network), **_calls(runs["calls"])}
    return Report(title, unit, stages, floor.raw if floor else 0.0, facts)


def _rates(run: dict[str, Any], unit: str, units: float, network: Usage) -> dict[str, float]:
    answers = max(run["answers"], 1)
    rates = {f"{unit}s/s": units / run["seconds"]}
    if unit != "answer":
        rates["records in an answer"] = units / answers
    rates["network thread's µs for an answer"] = network.seconds / answers * 1e6
    rates["its sleeps for an answer"] = network.sleeps / answers
    return rates


def _calls(run: dict[str, Any]) -> dict[str, float]:
    """Calls of Python's functions and of C's: the application's for a record, the network thread's for an answer."""
    found = {}
    for kind, of, count in (
        (APPLICATION, "record" if run["records"] else "answer", run["records"] or run["answers"]),
        (NETWORK, "answer", run["answers"]),
    ):
        before, after = (run[when].get(kind, (0, 0)) for when in ("before", "after"))
        for language, place in (("Python", 0), ("C", 1)):
            found[f"{kind}'s {language} calls for each {of}"] = (after[place] - before[place]) / max(count, 1)
    return found


def tops(run: dict[str, Any], count: int) -> str:
    """The functions in which each thread spends most, without what they call."""
    text = []
    for kind, after in sorted(run["after"].items()):
        before = run["before"].get(kind, {})
        spent: Sequence[tuple[float, int, str]] = [
            (seconds - before.get(name, (0, 0.0))[1], calls - before.get(name, (0, 0.0))[0], name)
            for name, (calls, seconds) in after.items()
        ]
        total = sum(seconds for seconds, _, _ in spent) or 1.0
        by_record = run["records"] and kind == APPLICATION
        unit = max(run["records"] if by_record else run["answers"], 1)
        text.append(
            f"  {kind} under cProfile, share and calls for each {'record' if by_record else 'answer'}:"
        )
        for seconds, calls, name in sorted(spent, reverse=True)[:count]:
            text.append(f"    {seconds / total:5.0%} {calls / unit:9.3f}  {name}")
    return "\n".join(text)
