"""Log lines that arise under the producer's lock; they are written once it is free."""

from __future__ import annotations

from collections import deque

from kadence.logs import logger

__all__ = ["HeldLines"]

_log = logger("kadence.producer")


class HeldLines:
    """Keeps log lines until the lock is free: a log handler may send them through this very producer."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, tuple[object, ...]]] = deque()

    def add(self, level: int, text: str, *args: object) -> None:
        """Keep a line. Under the lock."""
        self._kept.append((level, text, args))

    def write(self) -> None:
        """Write the kept lines. Network thread, without the lock."""
        while self._kept:
            level, text, args = self._kept.popleft()
            _log.log(level, text, *args)
