"""Requests that threads of the application write by themselves, and whose plain answers wake them (direct.h).

The network thread leaves the way open while it waits, where nothing is under way on the connection. It counts such
requests when it comes back, before it does anything else, and takes over the one that has no answer yet: from then on
that is in flight as any other, with whatever may become of it: another answer, a time limit, a lost connection.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from kadence.connection.request import Request

if TYPE_CHECKING:
    from kadence.connection.connection import BrokerConnection
    from kadence.metrics.sensors import NodeMeters
    from kadence.net.sockets import Stream

__all__ = ["Asked", "DirectUser", "DirectWay", "OffsetForm", "way_of"]


class DirectUser(Protocol):
    """Whose requests they are. Network thread.

    Attributes:
        is_watched: whether the network thread has to find out by itself that an answer is late, and counts soon.
    """

    is_watched: bool

    def may(self, way: DirectWay) -> bool:
        """True if requests may be written on this way during the next wait. What they depend on stays until then."""
        ...

    def took_over(self, way: DirectWay, request: Any, now: int) -> Request:
        """The same as a request of the network thread, whose answer the user gets.

        ``request``: what it was written with.
        """
        ...

    def answered(self, now: int, count: int, waited_ms: int) -> None:
        """So many had their plain answers, after ``waited_ms`` in all."""
        ...


class Asked(Protocol):
    """A request that was written. Any thread."""

    @property
    def is_answered(self) -> bool:
        """True if its plain answer has come."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True until that has come, or the network thread has taken the request over."""
        ...

    def enter(self, fd: int = -1, keeper: object = None) -> bool:
        """Wait for it from now on, on ``fd`` if that is given. False: that is not possible any more."""
        ...

    def wait(self, seconds: float | None) -> None:
        """Sleep until it comes, or the network thread has taken the request over."""
        ...

    def leave(self) -> None:
        """Wait no more. If `is_answered` is False after this the network thread gets the answer."""
        ...

    def kept(self) -> bytes:
        """What follows the correlation id of the answer that `DirectWay.ask_for` asked for, once it has come."""
        ...


class OffsetForm(Protocol):
    """A request that is always the same but for an offset and its leader epoch. Any thread."""

    def ask(self, turn: int, offset: int, epoch: int | None, request: Any) -> Asked | None:
        """Write it, unless the network thread has done anything since `DirectWay.turn` gave ``turn``.

        So whatever was read of its state after that is true. None: nothing was written.

        Args:
            epoch: None: it is not known. request: for `DirectUser.took_over`.
        """
        ...


class DirectWay:
    """The way for such requests on one connection.

    Attributes:
        node_id: of its broker. is_watched: as of its user. intake: of the connection.
    """

    __slots__ = ("_connection", "_meters", "_queue", "_user", "intake", "is_watched", "node_id")

    def __init__(
        self,
        node_id: int,
        intake: Any,
        connection: BrokerConnection,
        queue: deque[Request],
        user: DirectUser,
        meters: NodeMeters,
    ) -> None:
        self.node_id = node_id
        self.intake = intake
        self.is_watched = user.is_watched
        self._connection = connection
        self._queue = queue
        self._user = user
        self._meters = meters
        intake.leave_direct(self)

    # -- network thread

    def belong(self, node_id: int, meters: NodeMeters) -> None:
        """The connection is that node's."""
        self.node_id = node_id
        self._meters = meters

    def may(self) -> int:
        """The correlation id of the first request that may be written during the next wait; below 0: none may."""
        if self._queue or not self._user.may(self):
            return -1
        return self._connection.next_id

    def is_free(self, now: int) -> bool:
        """True if the connection is ready, with nothing under way."""
        return self._connection.idle and self._connection.can_send(now)

    def count(self, now: int) -> None:
        """Count what was written during the wait, and take over what has no answer."""
        answered, waited_ms, size, heard, left, correlation_id, asked_at = self.intake.asked()
        count = answered + (left is not None)
        self._connection.sent_directly(count, size)
        meters = self._meters
        meters.requests.record_alike(now, size, count)
        meters.outgoing.record_alike(now, size, count)
        if answered:
            meters.incoming.record_alike(now, heard, answered)
            meters.latency.record_alike(now, waited_ms, answered)
            self._user.answered(now, answered, waited_ms)
        if left is not None:
            request = self._user.took_over(self, left, now)
            self._connection.took_over(request, correlation_id, asked_at)

    def close(self) -> None:
        """The connection ends."""
        self.intake.leave_direct(None)

    # -- any thread

    def frame(self, request: Request) -> tuple[bytes, int]:
        """A request as bytes, with any correlation id, and its version.

        Raises:
            UnsupportedVersionError: the broker does not take it.
        """
        return self._connection.frame(request)

    def turn(self) -> int:
        """The number of the network thread's present wait; 0: nothing may be written now."""
        turn: int = self.intake.turn()
        return turn

    def offset_form(self, frame: bytes, at: int, answer: bytes, flag: Any) -> OffsetForm:
        """The form of a request with one offset.

        Args:
            frame: as `frame` gives it. at: the place of the offset in it, before that of its epoch. answer: the plain
                one, with its length and any correlation id. flag: raised by the plain answer.
        """
        form: OffsetForm = self.intake.offset_form(frame, at, answer, flag)
        return form

    def ask_for(self, turn: int, frame: bytearray, begin: bytes, request: Any) -> Asked | None:
        """As `OffsetForm.ask`, for a request whose plain answer begins so, with any length and correlation id.

        It is kept for the thread that waits for it (`Asked.enter`), and is not plain as long as none does.
        """
        asked: Asked | None = self.intake.ask_for(turn, frame, begin, request)
        return asked

    def read(self, request: Request, version: int, body: bytes) -> Any:
        """The answer to a request, of which ``body`` is what follows the correlation id.

        Raises:
            MalformedMessageError: these bytes are no such answer, and the connection can no longer be used.
        """
        return self._connection.read(request, version, body)


def way_of(
    node_id: int,
    stream: Stream,
    connection: BrokerConnection,
    queue: deque[Request],
    user: DirectUser,
    meters: NodeMeters,
) -> DirectWay | None:
    """The way on this connection; None if only the network thread can write on it, as with TLS."""
    intake: Any = stream.intake
    if stream.session is None or not intake.takes_requests:
        return None
    return DirectWay(node_id, intake, connection, queue, user, meters)
