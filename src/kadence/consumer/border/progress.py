"""When the application polled last: the one fact behind the poll timer (B4).

Written by the application thread, read by the network thread; each field is replaced as a whole.
Waiting inside poll() is progress. A user callback inside it is not: a callback that hangs is processing
that hangs.
"""

from __future__ import annotations

__all__ = ["Progress"]


class Progress:
    """See the head of this file. ``_since``: since when the application works by itself; None: it waits in poll()."""

    __slots__ = ("_depth", "_since")

    def __init__(self) -> None:
        self._since: int | None = None
        self._depth = 0

    # -- application thread

    def polled(self, now: int) -> None:
        """A poll that returned at once, from the buffer."""
        self._since = now

    def enter_poll(self, now: int) -> None:
        self._depth += 1
        self._since = None

    def leave_poll(self, now: int) -> None:
        self._depth -= 1
        self._since = now

    def enter_callback(self, now: int) -> None:
        self._since = now

    def leave_callback(self, now: int) -> None:
        """The callback returned; if it ran inside poll(), the application waits there again."""
        self._since = None if self._depth else now

    # -- network thread

    def processing_since(self, now: int) -> int | None:
        """Since when (ms) nothing was polled; None while the application waits in poll() or never polled."""
        since = self._since
        return since if since is None else min(since, now)
