"""How another thread ends the network thread's wait. The compiled twin is `_drain_c.Wake`."""

from __future__ import annotations

import socket
from typing import Final, Protocol

__all__ = ["ClearedWakeup", "PlainWakeup", "Wakeup"]

_DRAIN: Final = 64


class Wakeup(Protocol):
    """`wake` from any thread, the rest on the network thread. The poller takes the wake-up away when it has seen it."""

    def fileno(self) -> int:
        """The descriptor that becomes readable."""
        ...

    def wake(self) -> None:
        """End the present wait, or the next one. Any thread, and signal handlers. A flood costs one byte."""
        ...

    def close(self) -> None:
        """Close both ends."""
        ...


class ClearedWakeup(Wakeup, Protocol):
    """One that a poller in Python takes away itself."""

    def clear(self) -> None:
        """The wait has seen it."""
        ...


class PlainWakeup:
    """A socket pair and a flag.

    The flag makes a flood of wake-ups cost one byte, so the pair cannot fill up. A wake-up before the wait is
    not lost: the byte lies there until the selector looks.
    """

    __slots__ = ("_reader", "_woken", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._woken = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        try:
            self._writer.send(b"\0")
        except OSError:
            # Closed meanwhile: there is no wait left to end. A full pair cannot be, see the flag.
            return

    def clear(self) -> None:
        """Take the byte away. First the byte, then the flag: the other order can lose a wake-up that comes between."""
        try:
            self._reader.recv(_DRAIN)
        except BlockingIOError:
            pass
        self._woken = False

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
