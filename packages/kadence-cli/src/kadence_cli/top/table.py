"""A table that draws only the lines on the screen, for thousands of rows. The cursor stays on its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from kadence_cli.figures import shortened
from kadence_cli.top.rows import Column, Line, widths

__all__ = ["Table"]

_MARKS: Final = {
    "": Style.null(),
    "ok": Style(color="green"),
    "busy": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
}
_HEADER: Final = Style(bold=True, color="cyan")
_CURSOR: Final = Style(reverse=True)


class Table(Widget, can_focus=True):
    """Rows under a header, with a cursor."""

    DEFAULT_CSS = "Table { height: 1fr; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home", "edge(-1)", show=False),
        Binding("end,G", "edge(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """Open the row under the cursor."""

        def __init__(self, key: Any) -> None:
            super().__init__()
            self.key = key

    class Scrolled(Message):
        """Other rows are on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: Sequence[Column] = ()
        self._rows: Sequence[Line] = ()
        self._sorted_by: tuple[int, bool] = (0, False)
        self._cursor = 0
        self._top = 0
        self._widths: list[tuple[int, int]] | None = None

    def show(
        self, columns: Sequence[Column], rows: Sequence[Line], sorted_by: tuple[int, bool], *, key: Any = None
    ) -> None:
        """Replace the rows. The cursor goes to the row of ``key``, else stays on its row."""
        kept = self.key if key is None else key
        if columns is not self._columns:
            self._cursor = self._top = 0
        self._columns, self._rows, self._sorted_by = columns, rows, sorted_by
        found = next((index for index, row in enumerate(rows) if row.key == kept), None)
        self._cursor = found if found is not None else min(self._cursor, max(len(rows) - 1, 0))
        self._settle()

    @property
    def key(self) -> Any:
        """The row under the cursor; None in an empty table."""
        return self._rows[self._cursor].key if self._cursor < len(self._rows) else None

    @property
    def keys_on_screen(self) -> tuple[Any, ...]:
        """Of the rows that are drawn."""
        return tuple(row.key for row in self._rows[self._top : self._top + self._height])

    @property
    def _height(self) -> int:
        return max(self.size.height - 1, 1)

    def _settle(self) -> None:
        """Scroll until the cursor is on the screen."""
        before, self._widths = self._top, None
        self._top = min(self._top, self._cursor, max(len(self._rows) - self._height, 0))
        self._top = max(self._top, self._cursor - self._height + 1)
        self.refresh()
        if self._top != before:
            self.post_message(self.Scrolled())

    # ------------------------------------------------------------ keys and mouse

    def action_move(self, by: int) -> None:
        self._cursor = min(max(self._cursor + by, 0), max(len(self._rows) - 1, 0))
        self._settle()

    def action_page(self, direction: int) -> None:
        self.action_move(direction * self._height)

    def action_edge(self, direction: int) -> None:
        self.action_move(direction * len(self._rows))

    def action_open(self) -> None:
        if self.key is not None:
            self.post_message(self.Opened(self.key))

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        index = self._top + event.y - 1
        if event.y and index < len(self._rows):
            self._cursor = index
            self._settle()
            if event.chain == 2:
                self.action_open()

    def on_resize(self) -> None:
        self._settle()

    # ------------------------------------------------------------ drawing

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width, plain = self.size.width, self.rich_style
        if y == 0:
            return self._line(self._header(), plain + _HEADER, width)
        index = self._top + y - 1
        if index >= len(self._rows):
            return Strip.blank(width, plain)
        row = self._rows[index]
        style = plain + _MARKS[row.mark]
        style = style + _CURSOR if index == self._cursor else style
        if row.spans:
            text = shortened(row.cells[0], width).ljust(width)
            return Strip([Segment(text, style)]).adjust_cell_length(width, style)
        return self._line(row.cells, style, width)

    def _header(self) -> list[str]:
        column, backwards = self._sorted_by
        names = [each.name for each in self._columns]
        # Lines of a text are in their order.
        if len(names) > 1:
            names[column] += "↓" if backwards else "↑"
        return names

    def _fitted(self, width: int) -> list[tuple[int, int]]:
        """The widths of the columns, by the rows on the screen."""
        if self._widths is None:
            shown = [row.cells for row in self._rows[self._top : self._top + self._height] if not row.spans]
            longest = [max((len(cells[n]) for cells in shown), default=0) for n in range(len(self._columns))]
            self._widths = widths(self._columns, width, longest)
        return self._widths

    def _line(self, cells: Sequence[str], style: Style, width: int) -> Strip:
        parts = []
        for index, letters in self._fitted(width):
            text = shortened(cells[index], letters)
            parts.append(text.rjust(letters) if self._columns[index].right else text.ljust(letters))
        return Strip([Segment(" ".join(parts).ljust(width), style)]).adjust_cell_length(width, style)
