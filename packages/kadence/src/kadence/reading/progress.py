"""The progress of a reading as tqdm's bar, in a terminal or a notebook.

tqdm is an extra (``kadence[notebook]``). Without it, or if the output goes to a file or a pipe, no bar is shown.
"""

from __future__ import annotations

import sys
import warnings
from typing import Final, Protocol

from kadence.loaded import attribute_if_loaded

__all__ = ["Bar", "bar"]


class Bar(Protocol):
    """The part of tqdm that is used."""

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
            # Without ipywidgets tqdm shows the bar as text, and warns.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return _NOTHING
    made: Bar = tqdm(total=total, desc=title, unit=" records", unit_scale=True)
    return made


def _in_terminal() -> bool:
    """Whether both are a terminal: the bar goes to stderr, but a user who redirects stdout does not watch it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def _in_notebook() -> bool:
    get_ipython = attribute_if_loaded("IPython", "get_ipython")
    return get_ipython is not None and type(get_ipython()).__name__ == "ZMQInteractiveShell"
