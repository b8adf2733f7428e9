"""The help screen of ``kadence top``, with its keys."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["HELP", "Help"]

HELP: Final = """\
 ↑ ↓ k j       move; PgUp PgDn Home End, too
 Enter         open: a group, then a member or a
               partition, and its records
 Esc           back, or forget the filter
 Tab           the next view: members, partitions,
               events, why it lags
 e             groups without members: each, or one line
 w             why the group lags, and what to do
 g or :        go to a group by its name
 /             show only rows with a text in them
 s  S          sort by the next column; the other way
 l             consumers on this machine that publish
               their state (kadence.publish_state)
 d             delay: seconds between two rounds
 Space         pause, and go on
 q             quit

 IN/S   records produced a second     in the last
 OUT/S  records committed a second    half minute
 ETA    time until the lag is 0 at these rates"""


class Help(ModalScreen[None]):
    """The box of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter,space", "dismiss", show=False)
    ]
    DEFAULT_CSS = """
    Help { align: center middle; }
    Help Static { width: 60; height: auto; border: round $primary; background: $surface; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        box = Static(Text(HELP))
        box.border_title = "keys"
        yield box
