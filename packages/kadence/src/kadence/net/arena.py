"""Memory for Fetch responses: big, reused, never cleared.

A response is read straight into an arena and stays there until the application has decoded it, so the bytes
are copied once between the socket and the user's objects. Fresh memory costs a page fault per 4 KiB (about as much as
receiving it), so arenas from there on are kept for the next response.

The network thread lends; any thread retains and releases. The only things that threads share are a list used
as a counter and a queue of returned arenas, both with operations that are atomic by themselves: a lock here
could make the network thread wait for an application thread that holds the interpreter. And the memory itself: each
thread creates and drops slices of it, so it is a `MemorySlice` (`_native/buffers.pyx`) and not a memoryview. Reference
cycles may keep a closed client until they are collected, so `close` releases the memory.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from typing import Any, Final, TypeAlias

from kadence.errors import IllegalStateError

__all__ = ["Arena", "ArenaPool", "fresh_memory"]

Memory: TypeAlias = memoryview
"""A `MemorySlice`, which has the methods of a memoryview that are needed here."""

_SMALLEST: Final = 1_024
"""Overhead of an arena. About half of it is for its objects, which are not counted by themselves."""
_KEPT_FROM: Final = 4_096
_MAPPED_FROM: Final = 262_144
_NOTHING: Final = memoryview(b"")
_BOTTOM: Final = object()
_HOLD: Final = object()


class _Returned:
    """Memory that came back and that the network thread has not seen yet. Any thread puts it here."""

    __slots__ = ("is_closed", "memories")

    def __init__(self) -> None:
        self.memories: deque[Memory] = deque()
        self.is_closed = False

    def close(self) -> None:
        """Closed: memory that comes back is dropped."""
        self.is_closed = True
        self.memories.clear()


class Arena:
    """One loan of memory; satisfies `kadence.connection.Loan`. Made by `ArenaPool.lend`."""

    __slots__ = ("_holds", "_memory", "_returned", "size", "view")

    def __init__(self, memory: Memory, length: int, returned: _Returned) -> None:
        self.view = memory[:length]
        """The requested bytes, writable; none once the last holder has released it."""
        self.size = len(memory)
        """Bytes of memory held, a little above the length asked for."""
        self._memory = memory
        self._returned = returned
        # One token per holder. The holder that pops the bottom one is the last, and there can be only one.
        self._holds: list[object] = [_BOTTOM]

    @property
    def holds(self) -> int:
        """How many hold it now. Any thread."""
        return len(self._holds)

    def retain(self) -> None:
        """One more holder. Any thread that holds it already."""
        self._holds.append(_HOLD)

    def release(self) -> None:
        """One holder less; the last gives the memory back. Any thread.

        Raises:
            IllegalStateError: it was released more often than it was held, so bytes in use are at risk.
        """
        try:
            token = self._holds.pop()
        except IndexError:
            raise IllegalStateError("an arena was released twice") from None
        if token is _BOTTOM:
            memory, self._memory, self.view = self._memory, _NOTHING, _NOTHING
            returned = self._returned
            returned.memories.append(memory)
            # Checked afterwards: memory put there during `close` is seen by one of the two.
            if returned.is_closed:
                returned.memories.clear()

    def __repr__(self) -> str:
        return f"<Arena {len(self.view)} of {self.size} bytes held={len(self._holds)}>"


class ArenaPool:
    """Lends arenas and takes them back. Network thread only.

    Args:
        spare_bytes: how much unused memory to keep. Above it the memory that was returned first goes.

    Attributes:
        slack: how many bytes arenas lent from now on may be larger in all than fresh ones would be.
        limit: unused memory is kept only as far as it makes no more than this together with what is lent.
    """

    __slots__ = (
        "_count",
        "_lent_bytes",
        "_limit",
        "_order",
        "_returned",
        "_sizes",
        "_spare_bytes",
        "_unused_bytes",
        "slack",
    )

    def __init__(self, spare_bytes: int) -> None:
        self._spare_bytes = spare_bytes
        # Unused memory by a running number, in the order of its return; and the numbers by size.
        self._order: dict[int, Memory] = {}
        self._sizes: dict[int, deque[int]] = {}
        self._count = 0
        self._unused_bytes = 0
        self._returned = _Returned()
        self._lent_bytes = 0
        self.slack = self._limit = 1 << 62

    @property
    def in_use(self) -> int:
        """Bytes lent and not yet given back."""
        if self._returned.memories:
            self._collect()
        return self._lent_bytes

    @property
    def limit(self) -> int:
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._trim()

    def held(self) -> int:
        """As `in_use`, for any thread. While the network thread collects returned memory it may be less, never more."""
        # In this order: memory that is in neither was given back, and memory that is in both is subtracted twice.
        returned = sum(map(len, tuple(self._returned.memories)))
        return max(self._lent_bytes - returned, 0)

    @property
    def spare(self) -> int:
        """Bytes kept for the next loans."""
        self._collect()
        return self._unused_bytes

    def lend(self, length: int) -> Arena:
        """An arena of at least ``length`` bytes with one holder. Its content is undefined."""
        self._collect()
        capacity = _capacity(length)
        spare = self._fitting(length, capacity) if capacity >= _KEPT_FROM else None
        memory = spare or _shared_memory(capacity)
        self._lent_bytes += len(memory)
        self._trim()
        self.slack -= max(len(memory) - capacity, 0)
        return Arena(memory, length, self._returned)

    def _fitting(self, length: int, capacity: int) -> Memory | None:
        """The smallest spare that fits, unless it is so large that a small response would pin it."""
        most = min(4 * capacity, capacity + max(self.slack, 0))
        size = min((size for size in self._sizes if length <= size <= most), default=0)
        if not size:
            return None
        numbers = self._sizes[size]
        # The one that came back last: its pages are still in the processor's cache.
        memory = self._order.pop(numbers.pop())
        self._forget(size)
        return memory

    def close(self) -> None:
        """The client has ended: nothing is lent any more, and outstanding loans are dropped when they come back."""
        self._returned.close()
        self._order.clear()
        self._sizes.clear()
        self._unused_bytes = self._lent_bytes = 0

    def _collect(self) -> None:
        returned = self._returned.memories
        while returned:
            # Subtracted before it leaves the queue, for `held` on another thread.
            size = len(returned[0])
            self._lent_bytes -= size
            memory = returned.popleft()
            if size < _KEPT_FROM:
                continue
            self._unused_bytes += size
            self._count += 1
            self._order[self._count] = memory
            numbers = self._sizes.get(size)
            if numbers is None:
                numbers = self._sizes[size] = deque()
            numbers.append(self._count)
        self._trim()

    def _trim(self) -> None:
        most = min(self._spare_bytes, self._limit - self._lent_bytes)
        while self._unused_bytes > most and self._order:
            number = next(iter(self._order))
            size = len(self._order.pop(number))
            # The first one overall is also the first of its size.
            self._sizes[size].popleft()
            self._forget(size)

    def _forget(self, size: int) -> None:
        """Remove one unused piece of this size."""
        self._unused_bytes -= size
        if not self._sizes[size]:
            del self._sizes[size]

    def __repr__(self) -> str:
        return f"<ArenaPool in_use={self.in_use} spare={self.spare}>"


def _shared_memory(capacity: int) -> Memory:
    """New memory for several threads."""
    # Only clients that read records lend memory. Others need not load that room.
    from kadence._native.buffers import memory_slice

    found: Any = memory_slice(fresh_memory(capacity))
    memory: Memory = found
    return memory


def fresh_memory(capacity: int) -> bytearray | mmap.mmap:
    """New memory.

    A large bytearray would be cleared first, holding the interpreter (8 MiB: 5 ms). A mapping is not, and goes back
    to the system when it is dropped. Its pages are allocated as bytes come, so a wrong length costs nothing. Huge
    pages, where the system has them, make work with large records a tenth cheaper.
    """
    if capacity < _MAPPED_FROM or not hasattr(mmap, "MAP_PRIVATE"):  # Windows has another interface for this
        return bytearray(capacity)
    memory = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _capacity(length: int) -> int:
    """``length`` rounded up to one of eight sizes per power of two, so that sizes repeat and waste stays small."""
    if length <= _SMALLEST:
        return _SMALLEST
    step = 1 << (length.bit_length() - 4)
    return -(-length // step) * step
