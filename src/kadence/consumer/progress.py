"""When the application polled last: the one background event behind the poll timer (B4).

Written by the application thread, read by the network thread; each field is replaced as a whole.
Waiting inside poll() is progress. A user callback inside it is not: a callback that hangs is processing
that hangs.
"""

from __future__ import annotations

__all__ = ["Progress"]


class Progress:
    """Keeps when the application polled last.

    ``_since``: since when (ms) nothing was polled; None while the application waits in poll().

    Attributes:
        by_turns: waiting in poll() counts only as long as `turned` is called: under asyncio a loop that
            something blocks makes no progress, though a task waits in poll().
    """

    __slots__ = ("_callbacks", "_depth", "_since", "by_turns")

    def __init__(self) -> None:
        self._since: int | None = None
        self._depth = 0
        # Those under way: one may run inside another, or in another task. A poll begins to count anew, so one that
        # Ctrl-C ended untold is not believed to run for ever.
        self._callbacks = 0
        self.by_turns = False

    # -- application thread

    def polled(self, now: int) -> None:
        """A poll that returned at once, from the buffer."""
        self._since = now

    def enter_poll(self, now: int) -> None:
        self._depth += 1
        self._callbacks = 0
        self._since = now if self.by_turns else None

    def leave_poll(self, now: int) -> None:
        self._depth -= 1
        self._since = now

    def enter_callback(self, now: int) -> None:
        self._callbacks += 1
        self._since = now

    def leave_callback(self, now: int) -> None:
        """The callback returned; if it ran inside poll() and no other callback, the application waits there again."""
        self._callbacks = max(self._callbacks - 1, 0)
        self._since = None if self._depth and not self._callbacks and not self.by_turns else now

    def turned(self, now: int) -> None:
        """The event loop turns; if a task waits in poll(), that is progress."""
        if self._depth and not self._callbacks:
            self._since = now

    # -- network thread

    def processing_since(self, now: int) -> int | None:
        """Since when (ms) nothing was polled; None while the application waits in poll() or never polled."""
        since = self._since
        return since if since is None else min(since, now)
