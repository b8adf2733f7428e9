"""Makes rows of cells, and defines the columns with their texts and widths. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kadence.lazy_dataclasses import dataclass
from kadence.printable import plural
from kadence.types import TopicPartition
from kadence_cli.figures import clock_time, count, duration, rate
from kadence_cli.names import ranges, spelled
from kadence_cli.top.local import Process
from kadence_cli.top.partition_rows import PartitionRow, progress_cells, progress_mark, progress_sort
from kadence_cli.top.sampling import Event, GroupHistory, Progress

if TYPE_CHECKING:
    from kadence_cli.top.gathering import Model

__all__ = [
    "EVENTS",
    "FOLDED",
    "GROUPS",
    "MEMBERS",
    "PARTITIONS",
    "PROCESSES",
    "READING",
    "WHY",
    "Column",
    "Line",
    "Row",
    "arranged",
    "event_rows",
    "folded",
    "group_rows",
    "group_summary",
    "member_rows",
    "process_events",
    "process_rows",
    "process_summary",
    "reading_rows",
    "where",
    "why_rows",
    "widths",
]

L = TypeVar("L", bound="Row | PartitionRow")

_STATES: Final = {"PreparingRebalance": "Preparing", "CompletingRebalance": "Completing"}
"""Kafka's two long state names, shortened for the column."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``width``: characters; 0: the rest of the line. ``right``: aligned to the right, for numbers.

    ``from_width``: the least terminal width at which it is shown. ``elastic``: it may be widened for long names, by
    room that another column does not need.
    """

    name: str
    width: int
    right: bool = False
    from_width: int = 0
    elastic: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One line.

    Attributes:
        key: its identity. sort: a value for each column, None for unknown. mark: "", "ok", "busy" or "bad".
        folds: it may be folded into the line for several groups. spans: its first cell takes the whole line.
    """

    key: Any
    cells: tuple[str, ...]
    sort: tuple[Any, ...]
    mark: str = ""
    folds: bool = False
    spans: bool = False

    def value(self, column: int) -> Any:
        """The sort key of a column."""
        return self.sort[column]


Line = Row | PartitionRow


FOLDED: Final = object()
"""The key of the line for all groups without members."""

_LIBRARY: Final = re.compile(r"[/\\\\]lib[/\\\\]python\d|[/\\\\]Lib[/\\\\]|site-packages|<frozen ")
"""Frames of a stack that are Python's or of an installed package."""

_SEEN_S: Final = 1.0
"""A record that holds up its partition for a shorter time is not shown."""

_PROGRESS: Final = (
    Column("LAG", 8, right=True),
    Column("TREND", 10),
    Column("IN/S", 6, right=True),
    Column("OUT/S", 6, right=True),
    Column("ETA", 6, right=True),
)

_ABOVE: Final = Column("ABOVE", 7, right=True, from_width=96)

_IN_WORK: Final = Column("IN WORK", 9, right=True, from_width=110)

GROUPS: Final = (
    Column("GROUP", 0),
    Column("STATE", 11),
    Column("TYPE", 8, from_width=96),
    Column("MEM", 4, right=True),
    *_PROGRESS,
)

MEMBERS: Final = (
    Column("MEMBER", 0),
    Column("HOST", 15, from_width=100, elastic=True),
    Column("OWNS", 16, elastic=True),
    *_PROGRESS,
    _ABOVE,
    _IN_WORK,
)

PARTITIONS: Final = (
    Column("PARTITION", 0),
    Column("OWNER", 14, elastic=True),
    Column("COMMITTED", 11, right=True, from_width=110),
    Column("END", 11, right=True, from_width=110),
    *_PROGRESS,
    _ABOVE,
)

PROCESSES: Final = (
    Column("CLIENT", 0),
    Column("PID", 8, right=True),
    Column("GROUP", 18, elastic=True),
    Column("PARTITIONS", 11, right=True),
    Column("NOT READ", 9, right=True),
    Column("STALLS", 7, right=True),
    Column("IN WORK", 9, right=True),
)

READING: Final = (
    Column("PARTITION", 20, elastic=True),
    Column("LAG", 8, right=True),
    Column("FOR", 6, right=True),
    Column("FETCHED", 0),
    Column("HELD UP BY", 20, from_width=96),
)

_LAG: Final = GROUPS.index(_PROGRESS[0])

_UNUSED: Final = frozenset({"Empty", "Dead"})
"""States of a group without members."""

WHY: Final = (Column("WHY IT LAGS, THE WORST FIRST", 0),)

EVENTS: Final = (Column("TIME", 8), Column("WHAT HAPPENED", 0))


# ---------------------------------------------------------------- rows


def widths(
    columns: Sequence[Column], width: int, longest: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """The columns that fit into a terminal, as (index, width); the one without a width takes the rest.

    Args:
        longest: the width of each column's longest cell. Names are not cut while another column has room.
    """
    shown = [(index, column) for index, column in enumerate(columns) if width >= column.from_width]
    taken = sum(column.width for _, column in shown) + len(shown) - 1
    letters = {index: column.width or max(4, width - taken) for index, column in shown}
    if longest is not None:
        needs = {index: max(longest[index], len(column.name) + 1) for index, column in shown}
        rest = next(index for index, column in shown if not column.width)
        for index in [index for index, column in shown if column.elastic]:
            lacks = needs[index] - letters[index]
            free = letters[rest] - needs[rest]
            # The column without a width gives room that it does not need, and takes the rest.
            moved = (
                min(lacks, free)
                if lacks > 0 and free > 0
                else max(lacks, free)
                if lacks < 0 and free < 0
                else 0
            )
            letters[index] += moved
            letters[rest] -= moved
    return list(letters.items())


def arranged(rows: Iterable[L], column: int, *, backwards: bool, containing: str = "") -> list[L]:
    """Rows that contain a text, sorted by a column; those without a value come last."""
    wanted = containing.lower()
    found = [row for row in rows if not wanted or any(wanted in str(cell).lower() for cell in row.cells)]
    values = [(row.value(column), row) for row in found]
    known = [each for each in values if each[0] is not None]
    known.sort(key=lambda each: each[0], reverse=backwards)
    return [row for _, row in known] + [row for value, row in values if value is None]


_NOTHING: Final = Progress(None, (), None, None)


_WORST: Final = ("bad", "busy", "ok", "")


def _mark(state: str) -> str:
    return {"Stable": "ok", "Empty": "", "Dead": "bad"}.get(state, "busy")


def group_rows(model: Model) -> list[Row]:
    """The list of groups."""
    rows = []
    for name, listed in model.groups.items():
        history = model.histories.get(name)
        described = history.description if history else None
        state = described.state if described else listed.state
        kind = described.group_type if described else listed.group_type
        members = len(described.members) if described else None
        progress = history.total if history and described else _NOTHING
        mark = "bad" if name in model.refused else _mark(state)
        coming = progress_mark(progress)
        # An unused group is neither healthy nor unhealthy, unless records wait for it.
        shown = min(mark, coming if mark or coming == "bad" else "", key=_WORST.index)
        rows.append(
            Row(
                name,
                (name, _STATES.get(state, state), kind, count(members), *progress_cells(progress)),
                (
                    name,
                    (_care(mark, members, progress), state, name),
                    kind,
                    members,
                    *progress_sort(progress),
                ),
                shown,
                folds=mark != "bad"
                and not members
                and not (history and history.is_used)
                and state in _UNUSED,
            )
        )
    return rows


def folded(rows: Sequence[Line]) -> list[Line]:
    """The list of groups; the last line stands for all groups that have had no members while `top` ran.

    If there are no other groups, these are shown one by one.
    """
    folds = [row for row in rows if row.folds]
    if not folds or len(folds) == len(rows):
        return list(rows)
    lags = [lag for row in folds if (lag := row.value(_LAG))]
    about = f"{len(lags):,} with lag, {count(sum(lags))} in all; " if lags else ""
    text = f"▸ {plural(len(folds), 'group')} without members; {about}e shows them"
    line = Row(FOLDED, (text,), (None,) * len(GROUPS), "busy" if lags else "", spans=True)
    return [*(row for row in rows if not row.folds), line]


def _care(mark: str, members: int | None, progress: Progress) -> int:
    """The urgency of a group; 0: highest. Unused groups come last."""
    if mark == "bad":
        return 0
    if progress.lag and (mark == "busy" or progress.catches_up_in == math.inf):
        return 1 if members else 2
    if mark == "busy":
        return 1
    return 3 if members or progress.lag else 4


def member_rows(history: GroupHistory, here: Mapping[str, Process]) -> list[Row]:
    """The members of a group. ``here``: those that publish their state on this machine, by member id."""
    rows = []
    for member in history.description.members if history.description else ():
        progress = history.progress_of(member.assignment)
        above = history.above(member.assignment)
        known = here.get(member.member_id)
        in_work = None if known is None else _in_work(known.state)
        name = member.group_instance_id or member.client_id or member.member_id
        rows.append(
            Row(
                member.member_id,
                (
                    name if known is None else f"● {name}",
                    member.host.removeprefix("/"),
                    ranges(member.assignment) or "-",
                    *progress_cells(progress),
                    count(above),
                    count(in_work),
                ),
                (name, member.host, len(member.assignment), *progress_sort(progress), above, in_work),
                progress_mark(progress),
            )
        )
    return rows


def group_summary(history: GroupHistory) -> list[str]:
    """Two lines about a group."""
    group = history.description
    if group is None:
        return [history.group_id, "not known yet"]
    total = history.total
    about = [group.state, group.group_type]
    if group.epoch is not None:
        about.append(f"epoch {group.epoch}")
    if group.assignor:
        about.append(group.assignor)
    about += [
        plural(len(group.members), "member"),
        plural(len(list(history.partitions)), "partition"),
        f"coordinator {group.coordinator}",
    ]
    wait = total.catches_up_in
    if wait is None:
        eta = ""
    elif wait == 0:
        eta = "caught up"
    else:
        eta = "never catches up" if wait == math.inf else f"caught up in {duration(wait)}"
    if silent := history.silent:
        more = f" and {len(silent) - 1:,} more" if len(silent) > 1 else ""
        eta = f"never catches up: {silent[0]}{more} reads nothing"
    line = [
        f"lag {count(total.lag)}",
        f"in {rate(total.produced)}/s",
        f"out {rate(total.consumed)}/s",
        eta,
        plural(history.rebalances, "rebalance") + " seen",
    ]
    return [", ".join(about), ", ".join(each for each in line if each)]


# ---------------------------------------------------------------- events, and processes of this machine


def event_rows(events: Iterable[Event]) -> list[Row]:
    """The events of a group or a process, the latest first."""
    return [
        Row(number, (clock_time(event.at), event.text), (-number, event.text))
        for number, event in reversed(list(enumerate(events)))
    ]


def why_rows(lines: Sequence[str]) -> list[Row]:
    """The page of `kadence groups why`, a row for each line; the first of a reason is marked."""
    return [
        Row(number, (line,), (number,), "bad" if line[:1].isdecimal() else "")
        for number, line in enumerate(lines)
    ]


def process_rows(found: Iterable[Process]) -> list[Row]:
    """The consumers that publish their state on this machine."""
    rows = []
    for each in found:
        if each.trouble:
            cells = (each.trouble, str(each.pid), *("-",) * 5)
            rows.append(Row(each.key, cells, (each.trouble, each.pid, *(None,) * 5), "bad"))
            continue
        state = each.state
        group = state["group_id"]
        held = sum(_is_held(partition) for partition in state["partitions"])
        numbers = (len(state["partitions"]), held, len(state["stalls"]))
        in_work = _in_work(state)
        is_stalled = any(stall["ended"] is None for stall in state["stalls"])
        rows.append(
            Row(
                each.key,
                (
                    state["client_id"],
                    str(each.pid),
                    group or "-",
                    *(f"{number:,}" for number in numbers),
                    count(in_work),
                ),
                (state["client_id"], each.pid, group, *numbers, in_work),
                "bad" if is_stalled else "busy" if held else "ok",
            )
        )
    return rows


def _in_work(state: Mapping[str, Any]) -> int | None:
    """How many records `process` has read and not done; None: it was never called, or the state lacks it."""
    work = state.get("work")
    return None if work is None else work["running"] + work["waiting"] + work["retrying"]


def _is_held(partition: Mapping[str, Any]) -> bool:
    why = partition["not_fetched"]
    return why is not None and not why["expected"]


def reading_rows(process: Process) -> list[Row]:
    """The partitions of a consumer, and why one is not fetched."""
    rows = []
    for each in process.state.get("partitions", ()):
        tp = TopicPartition(each["topic"], each["partition"])
        why = each["not_fetched"]
        seconds = why["for"] if why else None
        said = "yes" if why is None else why["words"] + (f" ({why['detail']})" if why["detail"] else "")
        stuck = _stuck(each)
        rows.append(
            Row(
                tp,
                (
                    spelled(tp),
                    count(each["lag"]),
                    duration(seconds),
                    said,
                    "" if stuck is None else f"{stuck['offset']} for {duration(stuck['for'])}",
                ),
                (tp, each["lag"], seconds, said, None if stuck is None else stuck["for"]),
                "ok" if why is None else "" if why["expected"] else "bad",
            )
        )
    return rows


def _stuck(partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The record that holds up a partition, if it does so for long enough."""
    found: Mapping[str, Any] | None = partition.get("stuck")
    return found if found is not None and found["for"] >= _SEEN_S else None


def _work_summary(state: Mapping[str, Any]) -> str:
    """The state of `process`, and the record that holds it up."""
    work = state.get("work")
    if work is None:
        return ""
    said = (
        f"process: {work['running']:,} run, {work['waiting']:,} wait, {work['retrying']:,} to be repeated; "
    )
    if work["key_waiting"] > 1:
        said += f"{work['key_waiting']:,} wait behind one record; "
    stuck = [(each, found) for each in state["partitions"] if (found := _stuck(each)) is not None]
    if stuck:
        at, found = max(stuck, key=lambda pair: pair[1]["for"])
        said += (
            f"the record of {spelled(TopicPartition(at['topic'], at['partition']))} at offset {found['offset']} holds "
            f"up for {duration(found['for'])}; "
        )
    return said


def process_summary(process: Process) -> list[str]:
    """Two lines about a consumer."""
    state = process.state
    if not state:
        return [f"process {process.pid}", process.trouble]
    member = f", generation {state['generation']}" if state["generation"] >= 0 else ""
    late = state["lateness"]
    said = _work_summary(state) + (
        f"network thread late by {late['last'] * 1000:,.0f} ms now, {late['longest'] * 1000:,.0f} ms at most"
    )
    stalled = [stall for stall in state["stalls"] if stall["ended"] is None]
    if stalled:
        said = f"NOT POLLED since {clock_time(stalled[-1]['since'])}; {where(stalled[-1]['stack'])}"
    partitions = plural(len(state["partitions"]), "partition")
    return [f"process {process.pid}, group {state['group_id'] or '-'}{member}, {partitions}", said]


def process_events(process: Process) -> list[Event]:
    """Its stalls and rebalances, the oldest first."""
    events = []
    for stall in process.state.get("stalls", ()):
        if stall["ended"] is None:
            length = "not ended yet"
        else:
            length = f"for {duration(stall['ended'] - stall['since'])}"
        left = ", the group was left" if stall["left_group"] else ""
        events.append(Event(stall["since"], f"stall, {length}{left}; {where(stall['stack'])}"))
    for each in process.state.get("rebalances", ()):
        took = (each["ended"] - each["started"]) * 1000
        change = f"+{len(each['added'])} −{len(each['removed'])} partitions"
        events.append(
            Event(
                each["ended"],
                f"rebalance to {each['generation']} in {took:,.0f} ms, {change}; {each['cause']}",
            )
        )
    return sorted(events, key=lambda event: event.at)


def where(stack: str) -> str:
    """The place of the application's code, short: the innermost stack frame that is not a library's."""
    frames = [line.strip() for line in stack.splitlines() if line.strip().startswith('File "')]
    if not frames:
        return "no stack"
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    file, line, function = (*(own or frames)[-1].split(", "), "", "")[:3]
    name = file.removeprefix("File ").strip('"').replace("\\", "/").rpartition("/")[2]
    return f"{function} ({name}:{line.removeprefix('line ')})"
