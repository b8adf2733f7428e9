"""Pages output that is longer than the terminal, as git does: $KADENCE_PAGER, else $PAGER, else less."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from kadence_cli.tables import terminal_size

__all__ = ["paged"]


class _Page(io.StringIO):
    """A buffer that looks like the terminal that its text is for."""

    def isatty(self) -> bool:
        return True


@contextmanager
def paged(stream: IO[str]) -> Iterator[IO[str]]:
    """A stream to write to in place of ``stream``; the pager shows the text if it does not fit the terminal."""
    if not stream.isatty():
        yield stream
        return
    page = _Page()
    yield page
    text = page.getvalue()
    # The prompt needs a line.
    if text.count("\n") < terminal_size()[1] or not _shown(text):
        stream.write(text)


def _shown(text: str) -> bool:
    """Whether there is a pager, and it ran. It may end before it has read everything."""
    command = os.environ.get("KADENCE_PAGER", os.environ.get("PAGER", "less"))
    if not command.strip():
        return False
    # Loaded for the first text that is longer than the terminal.
    import shlex
    import signal
    import subprocess

    try:
        pager = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            text=True,
            # Colours, no clearing of the screen, and lines that are too long are cut: a table stays one.
            env={"LESS": "FRXS", **os.environ},
        )
    except (OSError, ValueError):
        return False
    # Ctrl-C is for the pager, where it ends a search.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):
            pager.communicate(text)
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return True
