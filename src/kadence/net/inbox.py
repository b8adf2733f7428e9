"""Cutting a stream into frames, each read into memory of its final size.

A frame that somebody wants leased (a Fetch response) goes into an arena, any other into fresh bytes. The four
bytes of the length are read by themselves: that read cannot block, and only after it is the right memory known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kadence.connection.frames import LENGTH_BYTES, check_length
from kadence.errors import DisconnectedError

if TYPE_CHECKING:
    from kadence.net.arena import Arena, ArenaPool
    from kadence.net.stream import Stream

__all__ = ["Frame", "Inbox"]


class Frame(NamedTuple):
    """One message without its length. ``arena`` is held once, for whoever takes the frame."""

    data: memoryview
    arena: Arena | None


class Inbox:
    """The incoming half of one connection.

    Args:
        expects_lease: asked once per frame, when its first bytes arrive; may raise when none is due.
        limit: the longest frame to believe. address: for messages.
    """

    __slots__ = (
        "_address",
        "_arena",
        "_body",
        "_expects_lease",
        "_filled",
        "_head",
        "_limit",
        "_pool",
        "_stream",
    )

    def __init__(
        self, stream: Stream, pool: ArenaPool, expects_lease: Callable[[], bool], limit: int, address: str
    ) -> None:
        self._stream = stream
        self._pool = pool
        self._expects_lease = expects_lease
        self._limit = limit
        self._address = address
        self._head = memoryview(bytearray(LENGTH_BYTES))
        self._body: memoryview | None = None
        self._arena: Arena | None = None
        self._filled = 0

    def next_frame(self, wake_fd: int) -> Frame | None:
        """The next whole frame; None while it is incomplete.

        Raises:
            DisconnectedError: the peer closed. MalformedMessageError: a length that lies.
            OSError: the connection broke.
        """
        if self._body is None and not self._begin():
            return None
        body, arena = self._body, self._arena
        assert body is not None
        while self._filled < len(body):
            rest = body[self._filled :]
            count = self._stream.read_now(rest) if arena is None else self._stream.fill(rest, wake_fd)
            if not self._advance(count):
                return None
            if arena is not None and self._filled < len(body):
                # `fill` has waited as long as is right; the selector goes on.
                return None
        self._body, self._arena, self._filled = None, None, 0
        return Frame(body, arena)

    def close(self) -> None:
        """Give back the memory of a frame that will not be finished."""
        if self._arena is not None:
            self._arena.release()
        self._body, self._arena = None, None

    def _begin(self) -> bool:
        """Read the length and find memory for the body; False while the length is incomplete."""
        while self._filled < LENGTH_BYTES:
            if not self._advance(self._stream.read_now(self._head[self._filled :])):
                return False
        length = int.from_bytes(self._head, signed=True)
        check_length(length, self._limit, self._address)
        if self._expects_lease():
            self._arena = self._pool.lease(length)
            self._body = self._arena.view
        else:
            self._body = memoryview(bytearray(length))
        self._filled = 0
        return True

    def _advance(self, count: int | None) -> bool:
        if count is None:
            return False
        if count == 0:
            part = " in the middle of a message" if self._filled or self._body is not None else ""
            raise DisconnectedError(f"{self._address} closed the connection{part}")
        self._filled += count
        return True
