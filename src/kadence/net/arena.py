"""Memory for Fetch responses: big, reused, never cleared.

A response is read straight into an arena and stays there until the application has decoded it, so the bytes
are copied once between the socket and the user's objects. Fresh memory of that size costs a page fault per
4 KiB (about as much as receiving it), so arenas are kept for the next response.

The network thread leases; any thread retains and releases. The only things that threads share are a list used
as a counter and a queue of returned arenas, both with operations that are atomic by themselves: a lock here
could make the network thread wait for an application thread that holds the interpreter.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Final, TypeAlias

from kadence.errors import IllegalStateError

__all__ = ["Arena", "ArenaPool"]

Memory: TypeAlias = bytearray | mmap.mmap

_SMALLEST: Final = 16_384
_MAPPED_FROM: Final = 262_144
_BOTTOM: Final = object()
_HOLD: Final = object()


class Arena:
    """One leased stretch of memory; satisfies `kadence.connection.Lease`. Made by `ArenaPool.lease`."""

    __slots__ = ("_holds", "_memory", "_returned", "view")

    def __init__(self, memory: Memory, length: int, returned: deque[Memory]) -> None:
        self.view = memoryview(memory)[:length]
        """The bytes that were asked for, writable."""
        self._memory = memory
        self._returned = returned
        # One token per holder. Whoever pops the bottom one is the last, and there can only be one such.
        self._holds: list[object] = [_BOTTOM]

    @property
    def size(self) -> int:
        """Bytes of memory held, a little above the length asked for."""
        return len(self._memory)

    @property
    def holds(self) -> int:
        """How many hold it; one look, on any thread."""
        return len(self._holds)

    def retain(self) -> None:
        """One more holder. Any thread that holds it already."""
        self._holds.append(_HOLD)

    def release(self) -> None:
        """One holder less; the last gives the memory back. Any thread.

        Raises:
            IllegalStateError: it was released more often than it was held, so somebody's bytes are at risk.
        """
        try:
            token = self._holds.pop()
        except IndexError:
            raise IllegalStateError("an arena was released twice") from None
        if token is _BOTTOM:
            self._returned.append(self._memory)

    def __repr__(self) -> str:
        return f"<Arena {len(self.view)} of {self.size} bytes held={len(self._holds)}>"


class ArenaPool:
    """Leases arenas and takes them back. Network thread only.

    Args:
        spare_bytes: how much unused memory to keep. Above it the memory that was returned first goes.

    Attributes:
        slack: how many bytes arenas leased from now on may be larger in all than fresh ones would be.
        limit: unused memory is kept only as far as it makes no more than this together with what is leased.
    """

    __slots__ = ("_leased_bytes", "_returned", "_spare", "_spare_bytes", "limit", "slack")

    def __init__(self, spare_bytes: int) -> None:
        self._spare_bytes = spare_bytes
        self._spare: list[Memory] = []
        self._returned: deque[Memory] = deque()
        self._leased_bytes = 0
        self.slack = self.limit = 1 << 62

    @property
    def in_use(self) -> int:
        """Bytes leased and not yet given back."""
        self._collect()
        return self._leased_bytes

    def held(self) -> int:
        """As `in_use`, for any thread: looks without collecting, so it may be a moment behind."""
        return self._leased_bytes - sum(map(len, tuple(self._returned)))

    @property
    def spare(self) -> int:
        """Bytes kept for the next leases."""
        self._collect()
        return sum(map(len, self._spare))

    def lease(self, length: int) -> Arena:
        """An arena of at least ``length`` bytes with one holder. Its content is whatever was there before."""
        self._collect()
        capacity = _capacity(length)
        memory = self._fitting(length, capacity) or _fresh(capacity)
        self._leased_bytes += len(memory)
        self._trim()
        self.slack -= max(len(memory) - capacity, 0)
        return Arena(memory, length, self._returned)

    def _fitting(self, length: int, capacity: int) -> Memory | None:
        """The smallest spare that fits, unless it is so large that a small response would pin it."""
        best = -1
        most = min(4 * capacity, capacity + max(self.slack, 0))
        for place, memory in enumerate(self._spare):
            if length <= len(memory) <= most and (best < 0 or len(memory) < len(self._spare[best])):
                best = place
        return self._spare.pop(best) if best >= 0 else None

    def _collect(self) -> None:
        while self._returned:
            memory = self._returned.popleft()
            self._leased_bytes -= len(memory)
            self._spare.append(memory)
        self._trim()

    def _trim(self) -> None:
        kept = sum(map(len, self._spare))
        most = min(self._spare_bytes, self.limit - self._leased_bytes)
        while kept > most and self._spare:
            kept -= len(self._spare.pop(0))

    def __repr__(self) -> str:
        return f"<ArenaPool in_use={self.in_use} spare={self.spare}>"


def _fresh(capacity: int) -> Memory:
    """New memory.

    A large bytearray would be cleared first, holding the interpreter (8 MiB: 5 ms). A mapping is not, and goes back
    to the system when it is dropped.
    """
    if capacity < _MAPPED_FROM:
        return bytearray(capacity)
    return mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _capacity(length: int) -> int:
    """``length`` rounded up to one of eight sizes per power of two, so that sizes repeat and waste stays small."""
    if length <= _SMALLEST:
        return _SMALLEST
    step = 1 << (length.bit_length() - 4)
    return -(-length // step) * step
