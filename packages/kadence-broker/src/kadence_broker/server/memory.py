"""Counts the bytes of the requests of all connections, and keeps connections from reading when they are too many.

After Kafka's SimpleMemoryPool: a long request counts whole from the moment its length is known, and is then read to its
end, so that memory is given back. While the bound is reached no further one is begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["RequestMemory"]


class RequestMemory:
    """The bytes of requests that all connections of one broker hold.

    Args:
        max_bytes: 0 or below: any number. The last request that is begun may go beyond it, as in Kafka.
        soon: does what it is given a little later.

    Attributes:
        held_bytes: the bytes that are held now.
    """

    __slots__ = ("_is_summoned", "_max_bytes", "_soon", "_waiting", "held_bytes")

    def __init__(self, max_bytes: int, soon: Callable[[Callable[[], None]], None]) -> None:
        self._max_bytes = max_bytes
        self._soon = soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_summoned = False
        self.held_bytes = 0

    def __repr__(self) -> str:
        bound = self._max_bytes if self._max_bytes > 0 else "any number of"
        return f"<{self.held_bytes} of {bound} bytes held, {len(self._waiting)} connections wait>"

    @property
    def is_full(self) -> bool:
        """No further request may be begun."""
        return 0 < self._max_bytes <= self.held_bytes

    def change(self, count: int) -> None:
        """So many bytes more are held, or less."""
        self.held_bytes += count
        if self._waiting and not self._is_summoned and not self.is_full:
            self._is_summoned = True
            self._soon(self._let_in)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` once there is room; the longest waiting first."""
        self._waiting.append(go_on)

    def _let_in(self) -> None:
        self._is_summoned = False
        try:
            while self._waiting and not self.is_full:
                self._waiting.popleft()()
        finally:
            self.change(0)  # after a bug in one of them the others still wait
