"""Lets the event loop run between handlers. Coroutines that never suspend would block it as long as there is work."""

from __future__ import annotations

import asyncio
from collections import deque

from kadence.client.async_shell import BREATH_MS
from kadence.clock import Clock

__all__ = ["LoopTurns"]


class LoopTurns:
    """Decides when the worker tasks of one loop let it turn. On the loop.

    Attributes:
        due_at: the time from which on they must let the loop turn (ms).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self.due_at = clock.now_ms() + BREATH_MS
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Let the loop turn. Each turn resumes one of the tasks that wait here: all at once would block it again."""
        turned = self._loop.create_future()
        self._waiting.append(turned)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turned)
        await turned

    def _turned(self) -> None:
        self.due_at = self._clock.now_ms() + BREATH_MS
        first = self._waiting.popleft()
        if not first.done():
            first.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._turned)
