"""Lines for the log that come up under the producer's lock: they are written once it is free."""

from __future__ import annotations

from collections import deque

from kadence.logs import logger

__all__ = ["HeldLines"]

_log = logger("kadence.producer")


class HeldLines:
    """Keeps lines until nobody's lock is held. A handler of the log may send them by this very producer."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, tuple[object, ...]]] = deque()

    def add(self, level: int, text: str, *args: object) -> None:
        """Keep a line. Under the lock."""
        self._kept.append((level, text, args))

    def write(self) -> None:
        """Write what was kept. Network thread, without the lock."""
        while self._kept:
            level, text, args = self._kept.popleft()
            _log.log(level, text, *args)
