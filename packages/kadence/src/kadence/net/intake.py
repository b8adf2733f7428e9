"""Incoming bytes of one connection, read ahead by the poller, and the frames that `Inbox` takes of them.

Short frames are read into a buffer of the connection, many with one system call. A frame that does not fit there is
read directly into the memory passed to `take`. `_native.drain.Intake` (intake.h) does the same without the interpreter;
`PlainIntake` is for Windows, for TLS whose OpenSSL cannot be called, and for simulated networks.

Each frame gets memory of its final size. One that is to be lent (a Fetch response) goes into an arena, any other into
new bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kadence.clock import Clock, SystemClock
from kadence.connection.sent import LENGTH_BYTES, SHORTEST, check_length
from kadence.errors import DisconnectedError
from kadence.net.arena import fresh_memory

if TYPE_CHECKING:
    from kadence.connection.request import Request
    from kadence.net.arena import Arena, ArenaPool

__all__ = ["Frame", "Inbox", "Intake", "PlainIntake"]

ROOM: Final = 65_536
"""How many bytes are read ahead for each connection."""

_CLOCK: Final = SystemClock()

_AT_ONCE: Final = 1 << 20
"""How many bytes of one connection are read before the others get their turn."""


class Intake(Protocol):
    """The source of frames for `Inbox`."""

    def advance(self) -> None:
        """Read what is there. The poller does it."""
        ...

    def begins(self) -> int | None:
        """The length of the first frame, as sent, when it is complete, or needs a check or memory; else None."""
        ...

    def take(self, into: memoryview) -> int:
        """Move the first frame's body to ``into``, which is as long. Returns how many bytes are still to be read."""
        ...

    def missing(self) -> int:
        """How many bytes the long frame lacks that `take` has begun; once it is 0 the next frame can be taken."""
        ...

    def drop(self) -> None:
        """Drop the memory that was passed to `take`."""
        ...

    def ended(self) -> bool:
        """Whether the peer has closed the stream.

        Raises:
            OSError: the connection broke (ssl.SSLError included).
        """
        ...

    @property
    def heard_at(self) -> int:
        """When (ms of the monotonic clock) something was read last; -1: never."""
        ...

    @property
    def is_inside(self) -> bool:
        """Whether the peer has sent a part of a frame."""
        ...


class PlainIntake:
    """The intake of a stream that Python reads.

    Args:
        read: reads what is there; None for "not now", 0 at the end. clock: the machine's unless given.

    Attributes:
        heard_at: when (ms of the monotonic clock) something was read last; -1: never.
        more: the last read did not empty the connection: bytes may lie in TLS, where no selector sees them.
    """

    __slots__ = (
        "_begin",
        "_clock",
        "_end",
        "_error",
        "_has_ended",
        "_into",
        "_read",
        "_room",
        "heard_at",
        "more",
    )

    def __init__(self, read: Callable[[memoryview], int | None], clock: Clock | None = None) -> None:
        self._clock = clock or _CLOCK
        self._read = read
        self._room = memoryview(bytearray(ROOM))
        self._begin = self._end = 0
        self._into: memoryview | None = None
        self._error: OSError | None = None
        self._has_ended = False
        self.heard_at = -1
        self.more = False

    @property
    def is_due(self) -> bool:
        """Whether `Inbox` has work."""
        return self._has_ended or self._error is not None or self._has_frame()

    def advance(self) -> None:
        taken = 0
        self.more = False
        while not self._has_ended and self._error is None:
            into = self._space()
            if not into or taken >= _AT_ONCE:
                self.more = True
                return
            try:
                count = self._read(into)
            except OSError as error:
                self._error = error
                return
            if count is None:
                return
            self._has_ended = count == 0
            if self._into is not None:
                self._into = self._into[count:]
            else:
                self._end += count
            taken += count
            self.heard_at = self._clock.now_ms()

    def begins(self) -> int | None:
        return self._length() if self._into is None and self._has_frame() else None

    def take(self, into: memoryview) -> int:
        # Only a view accepts bytes at an offset.
        into = memoryview(into)
        start = self._begin + LENGTH_BYTES
        held = min(self._end - start, len(into))
        into[:held] = self._room[start : start + held]
        self._begin = start + held
        if self._begin == self._end:
            self._begin = self._end = 0
        if held < len(into):
            self._into = into[held:]
        return len(into) - held

    def missing(self) -> int:
        left = 0 if self._into is None else len(self._into)
        if not left:
            self._into = None
        return left

    def drop(self) -> None:
        self._into = None

    def ended(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._has_ended

    @property
    def is_inside(self) -> bool:
        return self._end > self._begin or self._into is not None

    def _length(self) -> int:
        return int.from_bytes(self._room[self._begin : self._begin + LENGTH_BYTES], signed=True)

    def _has_frame(self) -> bool:
        if self._into is not None:
            return not self._into
        held = self._end - self._begin
        if held < LENGTH_BYTES:
            return False
        length = self._length()
        return not SHORTEST <= length <= ROOM - LENGTH_BYTES or held - LENGTH_BYTES >= length

    def _space(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._into is not None:
            return self._into
        if self._begin:
            held = self._end - self._begin
            self._room[:held] = bytes(self._room[self._begin : self._end])
            self._begin, self._end = 0, held
        return self._room[self._end :]


_LENT_FROM: Final = 40
"""A Fetch response of fewer bytes has no records, so its memory need not be held."""


class Frame(NamedTuple):
    """One message without its length. ``arena`` is held once, for the receiver of the frame."""

    data: memoryview
    arena: Arena | None


class Inbox:
    """The incoming half of one connection.

    Args:
        fetch_due: asked once per frame, when its first bytes arrive: the fetch that it answers, or None. It may raise
            when no answer is due.
        limit: the longest frame to accept. address: for messages.

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
        # State of a long frame that has begun.
        self._body: memoryview | None = None
        self._arena: Arena | None = None

    def next_frame(self) -> Frame | None:
        """The next whole frame; None while it is incomplete.

        Raises:
            DisconnectedError: the peer closed, or there is no memory for what it sends. MalformedMessageError: a length
            that is impossible. OSError: the connection broke.
        """
        body, arena = self._body, self._arena
        if body is None:
            length = self._intake.begins()
            if length is None:
                if self._intake.ended():
                    raise self._hung_up()
                return None
            check_length(length, self.limit, self._address)
            fetch = self._fetch_due()
            try:
                if fetch is not None and length >= _LENT_FROM:
                    arena = self._pool.lend(length)
                    fetch.lent_bytes = arena.size
                    body = arena.view
                else:
                    body = memoryview(fresh_memory(length))
            except MemoryError as error:
                raise DisconnectedError(
                    f"{self._address} announced a message of {length} bytes, for which there is no memory"
                ) from error
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
        """Release the memory of a frame that will not be finished."""
        self._intake.drop()
        if self._arena is not None:
            self._arena.release()
        self._body, self._arena = None, None

    def _hung_up(self) -> DisconnectedError:
        part = " in the middle of a message" if self._intake.is_inside else ""
        return DisconnectedError(f"{self._address} closed the connection{part}")
