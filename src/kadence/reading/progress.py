"""How far a reading is, as tqdm's bar where a person sees it: in a terminal, and in a notebook.

tqdm is an extra (``kadence[notebook]``). Without it, and where the output goes to a file or a pipe, nothing is shown.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Final, Protocol

__all__ = ["Bar", "bar"]


class Bar(Protocol):
    """What of tqdm is used."""

    def update(self, n: int) -> object: ...

    def close(self) -> object: ...


class _Nothing:
    def update(self, n: int) -> None:
        pass

    def close(self) -> None:
        pass


_NOTHING: Final = _Nothing()


def bar(title: str, total: int, *, is_wanted: bool) -> Bar:
    """A bar for so many offsets, or one that shows nothing."""
    if not (is_wanted and total and (_in_notebook() or _in_terminal())):
        return _NOTHING
    try:
        with warnings.catch_warnings():
            # Without ipywidgets it shows the bar as text, and warns of that.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return _NOTHING
    made: Bar = tqdm(total=total, desc=title, unit=" records", unit_scale=True)
    return made


def _in_terminal() -> bool:
    """Both: the bar goes to stderr, and who writes stdout into a file is no one who watches."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def _in_notebook() -> bool:
    shell: Any = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
