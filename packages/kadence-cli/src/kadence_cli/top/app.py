"""The screen of ``kadence top``: draws the gatherer's rounds, and sets the wishes for the next ones."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from kadence.lazy_dataclasses import dataclass, replace
from kadence.printable import plural, printable
from kadence_cli.figures import clock_time, shortened
from kadence_cli.names import spelled
from kadence_cli.same_cluster import SameCluster
from kadence_cli.top import rows as r
from kadence_cli.top.gathering import OTHERS, Gatherer, Model, Round, Wish
from kadence_cli.top.keys import Help
from kadence_cli.top.local import Process, by_member
from kadence_cli.top.memory import Memory, memory_file
from kadence_cli.top.partition_rows import partition_rows
from kadence_cli.top.records import LINES, MOST, Records, command, commands_fit, record_rows, stack_rows
from kadence_cli.top.table import Table
from kadence_cli.why.finding import Finding
from kadence_cli.why.page import completed, lines

__all__ = ["Top"]

KEYS: Final = "↵ open  esc back  tab view  / filter  g group  w why  s sort  ? help  q quit"

_TABS: Final[Mapping[str, tuple[str, ...]]] = {
    "groups": ("groups",),
    "group": ("members", "partitions", "events", "why"),
    "member": ("partitions",),
    "processes": ("processes",),
    "process": ("reading", "events", "stacks"),
    "partition": ("records", "stacks"),
}
"""The views of each place, in Tab's order."""

_COLUMNS: Final[Mapping[str, Sequence[r.Column]]] = {
    "groups": r.GROUPS,
    "members": r.MEMBERS,
    "partitions": r.PARTITIONS,
    "events": r.EVENTS,
    "why": r.WHY,
    "processes": r.PROCESSES,
    "reading": r.READING,
    "records": LINES,
    "stacks": LINES,
}

_NUMBERS_FIRST_LARGE: Final = frozenset(
    {
        "MEM",
        "LAG",
        "TREND",
        "IN/S",
        "OUT/S",
        "ETA",
        "OWNS",
        "NOT READ",
        "STALLS",
        "ABOVE",
        "IN WORK",
        "HELD UP BY",
    }
)

_STATE: Final = next(index for index, column in enumerate(r.GROUPS) if column.name == "STATE")

_NEWS: Final = 4
"""Lines of events under a table."""


@dataclass(slots=True)
class _Place:
    """A place on the screen: the shown group, member or partition, its view, filter and sort order."""

    kind: str
    group: str = ""
    key: Any = None
    tab: int = 0
    filter: str = ""
    start: int = 0
    came_from: Any = None

    @property
    def view(self) -> str:
        return _TABS[self.kind][self.tab]


class _Arrived(Message):
    def __init__(self, round_: Round) -> None:
        super().__init__()
        self.round = round_


class _Names(Suggester):
    """Completes the name of a group."""

    def __init__(self, model: Model) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._model = model

    async def get_suggestion(self, value: str) -> str | None:
        found = (name for name in sorted(self._model.groups) if name.startswith(value))
        # The prompt shows the text unchanged.
        return next((name for name in found if name == printable(name)), None)


def _elsewhere(found: Sequence[Finding]) -> list[Finding]:
    """Reasons without commands that would only open this screen."""
    return [
        replace(each, commands=tuple(line for line in each.commands if not line.startswith("kadence top ")))
        for each in found
    ]


class Top(App[None]):
    """``kadence top``.

    Args:
        config: of the admin client. group: the first one to show; None: the list. delay: seconds between two rounds.
        records: whether records may be shown. cluster: completes the commands on the screen; None: with the brokers.
        name: of the cluster, as in ``cluster 'prod'``; empty without one.
    """

    TITLE = "kadence top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; background: $primary; color: $text; text-style: bold; }
    #about { height: auto; min-height: 2; }
    #news { height: auto; color: $text-muted; }
    #keys { height: 1; background: $panel; }
    #prompt { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("slash", "ask('filter')", show=False),
        Binding("g,colon", "ask('group')", show=False),
        Binding("d", "ask('delay')", show=False),
        Binding("l", "local", show=False),
        Binding("w", "why", show=False),
        Binding("e", "empty", show=False),
        Binding("escape,backspace", "leave", show=False),
        Binding("tab", "next_view(1)", show=False, priority=True),
        Binding("shift+tab", "next_view(-1)", show=False, priority=True),
        Binding("s", "sort", show=False),
        Binding("S", "reverse", show=False),
        Binding("space", "pause", show=False),
        Binding("question_mark,h", "help", show=False),
    ]

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        group: str | None = None,
        delay: float = 2.0,
        records: bool = True,
        cluster: SameCluster | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        self._name = name
        self._cluster = cluster or SameCluster(str(config.get("bootstrap.servers", "")))
        self._shows_records = records
        self._config = config
        self._delay = delay
        self.model = Model()
        self._memory_file = memory_file()
        self._memory = Memory.load(self._memory_file)
        self.places = [_Place("groups")]
        if group:
            self.places.append(self._group(group))
        self._is_paused = False
        self._asked = ""
        self._heard_at = time.monotonic()
        self._gatherer: Gatherer | None = None
        # The parts of the screen. A query would not find them while the screen is closed, when the timer still ticks
        # and rounds still arrive; an update of a removed part has no effect.
        self._title_line = Static(id="title", markup=False)
        self._about_lines = Static(id="about", markup=False)
        self._table = Table()
        self._news_lines = Static(id="news", markup=False)
        self._prompt = Input(id="prompt", suggester=_Names(self.model))
        self._keys_line = Static(KEYS, id="keys", markup=False)

    def compose(self) -> ComposeResult:
        yield self._title_line
        yield self._about_lines
        yield self._table
        yield self._news_lines
        yield self._prompt
        yield self._keys_line

    def on_mount(self) -> None:
        self._table.focus()
        self._gatherer = Gatherer(self._config, self._arrived, delay=self._delay)
        self._draw()
        self._gatherer.start()
        self.set_interval(1.0, self._draw_title)

    def on_unmount(self) -> None:
        if self._gatherer is not None:
            self._gatherer.close()

    # ------------------------------------------------------------ what arrives

    def _arrived(self, round_: Round) -> None:
        # On the gatherer's thread; messages may be posted from any thread.
        self.post_message(_Arrived(round_))

    @on(_Arrived)
    def _take(self, message: _Arrived) -> None:
        self._heard_at = time.monotonic()
        self.model.add(message.round)
        if not self._is_paused:
            self._draw()

    @on(Table.Scrolled)
    def _scrolled(self) -> None:
        self._wish()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw)

    def _wish(self) -> None:
        if self._gatherer is None:
            return
        place = self._place
        if place.kind == "groups":
            shown = self._table.keys_on_screen
            wish = Wish(tuple(key for key in shown if key is not r.FOLDED), OTHERS)
        elif place.group:
            why = place.group if place.view == "why" else ""
            wish = Wish(
                (place.group,), 0, listing=not self.model.groups, why=why, records=self._wished(place)
            )
        else:
            wish = Wish((), 0, listing=False, records=self._wished(place))
        self._gatherer.change(wish=wish)

    # ------------------------------------------------------------ keys

    @property
    def _place(self) -> _Place:
        return self.places[-1]

    @on(Table.Opened)
    def _open(self, message: Table.Opened) -> None:
        place, key = self._place, message.key
        if key is r.FOLDED:
            self.action_empty()
        elif place.kind == "groups":
            self._go(self._group(key))
        elif place.view == "members":
            here = by_member(self.model.processes).get(key)
            if here is not None:
                self._go(_Place("process", place.group, here.key, came_from=key))
            else:
                self._go(_Place("member", place.group, key, came_from=key))
        elif place.kind == "processes":
            process = self._process(key)
            # So that its group is asked about, which says where a partition's records begin.
            group = (process.state.get("group_id") if process else None) or ""
            self._go(_Place("process", group, key, came_from=key))
        elif place.view in {"partitions", "reading"}:
            self._go(
                _Place("partition", place.group, key, start=self._start(place.group, key), came_from=key)
            )

    def _start(self, group: str, tp: Any) -> int:
        """Records from the group's position on; without lag, the records before it."""
        history = self.model.history(group)
        committed, end = history.offsets(tp) if tp in history.partitions else (None, None)
        if committed is None:
            return max((end or 0) - MOST, 0)
        return committed if end is None or committed < end else max(end - MOST, 0)

    def _wished(self, place: _Place) -> tuple[Any, int] | None:
        is_wished = self._shows_records and place.view == "records"
        return (place.key, place.start) if is_wished else None

    def _group(self, name: str) -> _Place:
        """Open a group, in the view that was chosen last."""
        views = _TABS["group"]
        tab = views.index(self._memory.tab) if self._memory.tab in views else 0
        return _Place("group", name, tab=tab, came_from=name)

    def _go(self, place: _Place) -> None:
        self.places.append(place)
        self._draw()

    def action_leave(self) -> None:
        key = None
        if self._place.filter:
            self._place.filter = ""
        elif len(self.places) > 1:
            key = self.places.pop().came_from
        self._draw(key)

    def action_local(self) -> None:
        if self._place.kind != "processes":
            self._go(_Place("processes"))

    def action_why(self) -> None:
        """Show why the open group lags, or the one under the cursor."""
        place = self._place
        if place.kind == "groups":
            group = self._table.key
        else:
            group = place.group
        if not group or group is r.FOLDED:
            return
        if place.kind != "group":
            place = _Place("group", group, came_from=self._table.key)
            self.places.append(place)
        place.tab = _TABS["group"].index("why")
        self._draw()

    def action_empty(self) -> None:
        """Show groups without members one by one, or in one line."""
        self._memory.unfolds = not self._memory.unfolds
        self._remembered()

    def _remembered(self) -> None:
        self._memory.save(self._memory_file)
        self._draw()

    def action_next_view(self, by: int) -> None:
        self._place.tab = (self._place.tab + by) % len(_TABS[self._place.kind])
        if self._place.kind == "group":
            self._memory.tab = self._place.view
        self._remembered()

    def action_sort(self) -> None:
        columns = _COLUMNS[self._place.view]
        if len(columns) == 1:
            return
        shown = [index for index, _ in r.widths(columns, self._table.size.width)]
        column, _ = self._sorting()
        following = shown[(shown.index(column) + 1) % len(shown)] if column in shown else shown[0]
        name = columns[following].name
        self._memory.sort[self._place.view] = (name, name in _NUMBERS_FIRST_LARGE)
        self._remembered()

    def action_reverse(self) -> None:
        column, backwards = self._sorting()
        view = self._place.view
        if len(_COLUMNS[view]) == 1:
            return
        self._memory.sort[view] = (_COLUMNS[view][column].name, not backwards)
        self._remembered()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        if self._gatherer is not None:
            self._gatherer.change(paused=self._is_paused)
        self._heard_at = time.monotonic()
        self._draw()

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_ask(self, what: str) -> None:
        prompt = self._prompt
        self._asked = what
        prompt.placeholder = {
            "filter": "show only rows with this text",
            "group": "name of a group",
            "delay": f"seconds between two rounds (now {self._delay:g})",
        }[what]
        prompt.value = self._place.filter if what == "filter" else ""
        prompt.display = True
        self._keys_line.display = False
        prompt.focus()

    def on_key(self, event: events.Key) -> None:
        if self._asked and event.key == "escape":
            event.stop()
            event.prevent_default()
            if self._asked == "filter":
                self._place.filter = ""
            self._answered()

    @on(Input.Changed)
    def _typed(self, message: Input.Changed) -> None:
        if self._asked == "filter":
            self._place.filter = message.value
            self._draw()

    @on(Input.Submitted)
    def _submitted(self, message: Input.Submitted) -> None:
        text, asked = message.value.strip(), self._asked
        self._answered()
        if asked == "group" and text:
            exact = text if text in self.model.groups else self._only(text)
            self._go(self._group(exact))
        elif asked == "delay" and text:
            self._set_delay(text)

    def _only(self, text: str) -> str:
        """The group whose name begins so, if there is exactly one."""
        found = [name for name in self.model.groups if name.startswith(text)]
        return found[0] if len(found) == 1 else text

    def _set_delay(self, text: str) -> None:
        try:
            delay = float(text)
        except ValueError:
            delay = 0.0
        if not 0.1 <= delay <= 3600:
            self.notify(f"a delay is 0.1 to 3600 seconds, not {text!r}", severity="error")
            return
        self._delay = delay
        if self._gatherer is not None:
            self._gatherer.change(delay=delay)
        self._draw_title()

    def _answered(self) -> None:
        self._asked = ""
        self._prompt.display = False
        self._keys_line.display = True
        self._table.focus()
        self._draw()

    # ------------------------------------------------------------ drawing

    def _sorting(self) -> tuple[int, bool]:
        view = self._place.view
        # By name until the user sorts otherwise, because rows that stay in place can be read. Groups by their state:
        # groups with problems first, unused ones last.
        # Lines of a text stay as they are.
        kept = {} if len(_COLUMNS[view]) == 1 else self._memory.sort
        name, backwards = kept.get(view, ("", False))
        names = [column.name for column in _COLUMNS[view]]
        if name in names:
            return names.index(name), backwards
        return _STATE if view == "groups" else 0, False

    def _draw(self, key: Any = None) -> None:
        place = self._place
        column, backwards = self._sorting()
        found: list[r.Line] = r.arranged(
            self._rows(place), column, backwards=backwards, containing=place.filter
        )
        if place.view == "groups" and not self._memory.unfolds and not place.filter:
            found = r.folded(found)
        self._table.show(_COLUMNS[place.view], found, (column, backwards), key=key)
        self._news_lines.update(self._news(place))
        self._draw_title()
        self.call_after_refresh(self._wish)

    def _rows(self, place: _Place) -> Sequence[r.Line]:
        model, view = self.model, place.view
        if place.kind == "process":
            process = self._process(place.key)
            if process is None:
                return []
            if view == "stacks":
                return stack_rows(process, self.size.width)
            return r.reading_rows(process) if view == "reading" else r.event_rows(r.process_events(process))
        if view == "groups":
            return r.group_rows(model)
        if view == "processes":
            return r.process_rows(model.processes)
        history = model.history(place.group)
        if place.kind == "partition":
            return self._partition_rows(place)
        if view == "members":
            return r.member_rows(history, by_member(model.processes))
        if view == "events":
            return r.event_rows(history.events)
        if view == "why":
            return r.why_rows(self._why(place.group))
        return partition_rows(history, place.key)

    def _partition_rows(self, place: _Place) -> list[r.Row]:
        width = self.size.width
        if place.view == "stacks":
            owner = self.model.history(place.group).owner(place.key)
            here = by_member(self.model.processes)
            return stack_rows(here.get(owner.member_id) if owner else None, width)
        found = self.model.records
        if not self._shows_records:
            found = Records(place.key, place.start, trouble="records are not shown here (--no-records)")
        elif found is not None and (found.partition, found.start) != (place.key, place.start):
            found = None
        return record_rows(found, self._cluster.command(command(place.key, place.start)), width)

    def _why(self, group: str) -> list[str]:
        why = self.model.why
        if why is None or why.group != group:
            return ["looking …"]
        width = self.size.width
        return [
            *textwrap.wrap(why.says, width),
            *commands_fit(lines(completed(_elsewhere(why.found), self._cluster), width), width),
        ]

    def _process(self, key: str) -> Process | None:
        return next((each for each in self.model.processes if each.key == key), None)

    def _news(self, place: _Place) -> Text:
        """The latest events, for a view that does not list them."""
        if place.view in {"events", "processes"}:
            return Text("")
        if place.kind == "process":
            process = self._process(place.key)
            said = [(each, "") for each in r.process_events(process)] if process else []
        elif place.kind == "groups":
            said = [
                (event, f"{name}: ")
                for name, history in self.model.histories.items()
                for event in list(history.events)[-_NEWS:]
            ]
            said.sort(key=lambda each: each[0].at)
        else:
            said = [(event, "") for event in list(self.model.history(place.group).events)[-_NEWS:]]
        lines = [f"{clock_time(event.at)} {prefix}{event.text}" for event, prefix in said[-_NEWS:]]
        return Text("\n".join(shortened(line, self.size.width) for line in lines), style="dim")

    def _draw_title(self) -> None:
        place, width = self._place, self.size.width
        servers = str(self._config.get("bootstrap.servers", ""))
        where = f"{self._name} {servers}".lstrip()
        state = "PAUSED" if self._is_paused else f"every {self._delay:g} s"
        right = f"{state}  {clock_time(time.time())} "
        path = f" kadence top  {printable(self._path(place))}"
        if len(path) + len(right) >= width:
            # The name is more important than the other views.
            path = f" kadence top  {printable(self._path(place, with_tabs=False))}"
        room = width - len(right) - len(path) - 3
        left = f"{path}  {shortened(where, room)}" if room > 8 else shortened(path, width - len(right) - 1)
        self._title_line.update(Text(left.ljust(width - len(right)) + right))
        self._about_lines.update(self._about(place, width))

    def _path(self, place: _Place, *, with_tabs: bool = True) -> str:
        if place.kind == "groups":
            return "groups"
        if place.kind == "processes":
            return "on this machine"
        shown = _TABS[place.kind] if with_tabs else (place.view,)
        tabs = "/".join(f"[{name}]" if name == place.view else name for name in shown)
        if place.kind == "process":
            process = self._process(place.key)
            name = str(process.state.get("client_id", "")) if process else ""
            return f"{name}  {tabs}"
        return f"{spelled(place.key) if place.kind == 'partition' else place.group}  {tabs}"

    def _about(self, place: _Place, width: int) -> Text:
        lines = self._summary(place)
        text = Text("\n".join(shortened(line, width) for line in lines[:2]))
        wrong = self._trouble()
        if wrong:
            text = Text(shortened(lines[0], width) + "\n")
            # It wraps instead of being cut, because the advice is at its end.
            text.append(printable(wrong), style="bold red")
        return text

    def _trouble(self) -> str:
        """The problem of the connection to the brokers, if any."""
        if self._is_paused:
            return ""
        silent = time.monotonic() - self._heard_at
        if self.model.trouble:
            return f"{self.model.trouble}; trying again every {self._delay:g} s"
        if silent > self._delay + 2:
            return f"the brokers have not answered for {silent:.0f} s; waiting"
        return ""

    def _summary(self, place: _Place) -> list[str]:
        model = self.model
        if place.kind == "process":
            process = self._process(place.key)
            return (
                r.process_summary(process) if process else ["its process no longer publishes its state", ""]
            )
        if place.kind == "processes":
            return ["consumers that publish their state: kadence.publish_state(consumer)", ""]
        if place.kind == "groups":
            latest = model.latest
            took = f", asked in {latest.took * 1000:,.0f} ms" if latest else ""
            shown = f", filter {place.filter!r}" if place.filter else ""
            return [f"{plural(len(model.groups), 'group')}{took}{shown}", ""]
        if place.group in model.refused:
            return [model.refused[place.group], ""]
        lines = r.group_summary(model.history(place.group))
        if place.kind == "member":
            members = model.history(place.group).description
            found = (
                next((each for each in members.members if each.member_id == place.key), None)
                if members
                else None
            )
            name = found.client_id if found else "that left"
            lines[1] = f"member {name}, id {place.key}"
        if place.filter:
            lines[1] += f", filter {place.filter!r}"
        return lines
