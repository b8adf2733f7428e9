"""Frames out of what a connection has read, each in memory of its final size.

A frame that somebody wants lent (a Fetch response) goes into an arena, any other into fresh bytes. Short ones are
whole when they get here. A long one is given memory here, once its length is known, and comes back when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kadence.connection.sent import check_length
from kadence.errors import DisconnectedError
from kadence.net.arena import fresh_memory

if TYPE_CHECKING:
    from kadence.connection.request import Request
    from kadence.net.arena import Arena, ArenaPool
    from kadence.net.intake import Intake

__all__ = ["Frame", "Inbox"]

_LENT_FROM: Final = 40
"""A Fetch response of fewer bytes has no records, so nobody needs to hold its memory."""


class Frame(NamedTuple):
    """One message without its length. ``arena`` is held once, for whoever takes the frame."""

    data: memoryview
    arena: Arena | None


class Inbox:
    """The incoming half of one connection.

    Args:
        fetch_due: asked once per frame, when its first bytes arrive: the fetch that it answers, or None. It may raise
            when no answer is due.
        limit: the longest frame to believe. address: for messages.

    Attributes:
        limit: the same; it may change between frames.
    """

    __slots__ = ("_address", "_arena", "_body", "_fetch_due", "_intake", "_pool", "limit")

    def __init__(
        self,
        intake: Intake,
        pool: ArenaPool,
        fetch_due: Callable[[], Request | None],
        limit: int,
        address: str,
    ) -> None:
        self._intake = intake
        self._pool = pool
        self._fetch_due = fetch_due
        self.limit = limit
        self._address = address
        # Of a long frame that has begun.
        self._body: memoryview | None = None
        self._arena: Arena | None = None

    def next_frame(self) -> Frame | None:
        """The next whole frame; None while it is incomplete.

        Raises:
            DisconnectedError: the peer closed. MalformedMessageError: a length that lies.
            OSError: the connection broke.
        """
        body, arena = self._body, self._arena
        if body is None:
            length = self._intake.begins()
            if length is None:
                if self._intake.ended():
                    raise self._hung_up()
                return None
            check_length(length, self.limit, self._address)
            if (fetch := self._fetch_due()) is not None and length >= _LENT_FROM:
                arena = self._pool.lend(length)
                fetch.lent_bytes = arena.size
                body = arena.view
            else:
                body = memoryview(fresh_memory(length))
            if self._intake.take(body):
                self._body, self._arena = body, arena
                return None
        elif self._intake.missing():
            if self._intake.ended():
                raise self._hung_up()
            return None
        else:
            self._body = self._arena = None
        return Frame(body, arena)

    def close(self) -> None:
        """Give back the memory of a frame that will not be finished."""
        self._intake.drop()
        if self._arena is not None:
            self._arena.release()
        self._body, self._arena = None, None

    def _hung_up(self) -> DisconnectedError:
        part = " in the middle of a message" if self._intake.is_inside else ""
        return DisconnectedError(f"{self._address} closed the connection{part}")
