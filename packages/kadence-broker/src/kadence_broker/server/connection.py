"""One client's connection: frames in, one at a time; buffers out, without joining them.

Kafka's broker serves one request of a connection at a time and reads the next when the answer is on its way; so does
this one. Requests that a client sends meanwhile wait here, up to a bound, then in its socket. For a client that reads
no answers none is made: its next request waits until the last answers are gone. So a connection holds at most the frame
that is served, the frame that is coming, and `_UNSENT_BYTES` beside the answer to the present request. The requests of
all connections together are bounded by `RequestMemory`; beyond it a connection reads nothing before there is room.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kadence.clock import add_ms
from kadence.logs import logger
from kadence.wire.reader import Buffer
from kadence_broker.server.frames import READ_BYTES, FrameError, Frames
from kadence_broker.server.loop import Loop
from kadence_broker.server.memory import RequestMemory
from kadence_broker.server.session import Session
from kadence_broker.server.transport import Transport, TransportError

__all__ = ["Connection"]

_log = logger("kadence.broker")

_WAITING_FRAMES: Final = 32
_WAITING_BYTES: Final = READ_BYTES
"""Above either of these no more is read: waiting requests take memory."""
_UNSENT_BYTES: Final = 256 * 1024
"""Above this no further request is served: its answer would only wait behind."""


class Connection:
    """A connected socket on the loop.

    Args:
        memory: counts the bytes of the requests of all connections.
        on_frame: takes one request; `finish` must be called once for each, after the last `send`.
        on_close: called when the connection is over, for any reason.

    Attributes:
        session: the client's login.
        peer, host: its address with and without its port.
        active_at: when it last sent a whole request or took bytes of an answer (ms).
        on_gone: called if the connection ends before the present request is finished.
        on_closed: called when the connection has ended, after ``on_gone``: a client's state may be bound to it.
    """

    __slots__ = (
        "_events",
        "_frames",
        "_is_busy",
        "_is_ending",
        "_is_frozen",
        "_is_last",
        "_is_serving",
        "_is_starved",
        "_is_summoned",
        "_loop",
        "_memory",
        "_on_close",
        "_on_frame",
        "_out",
        "_sock",
        "_transport",
        "_unsent",
        "active_at",
        "host",
        "is_closed",
        "node_id",
        "on_closed",
        "on_gone",
        "peer",
        "session",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        transport: Transport,
        session: Session,
        peer: str,
        node_id: int,
        max_frame_bytes: int,
        memory: RequestMemory,
        on_frame: Callable[[Connection, Buffer], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._transport = transport
        self.session = session
        self.peer = peer
        self.host = peer.rpartition(":")[0]
        self.node_id = node_id
        self._on_frame = on_frame
        self._on_close = on_close
        self._memory = memory
        self._frames = Frames(max_frame_bytes, memory)
        self._out: deque[memoryview] = deque()
        self._unsent = 0
        self._is_busy = False
        self._is_serving = False
        self._is_summoned = False
        self._is_ending = False
        self._is_last = False
        self._is_frozen = False
        self._is_starved = False
        self.is_closed = False
        self.on_gone: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.active_at = loop.clock.now_ms()
        self._events = selectors.EVENT_READ
        loop.selector.register(sock, self._events, self._on_events)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "busy" if self._is_busy else "idle"
        return f"<connection of {self.peer} to node {self.node_id}, {state}>"

    @property
    def principal(self) -> str:
        """The client's name: from its login, else from its certificate."""
        return self.session.principal or self._transport.principal or "User:ANONYMOUS"

    @property
    def is_waiting_for_us(self) -> bool:
        """Silence is not the client's fault: no answer is unsent and one is owed, or there is no memory to read it."""
        return (self._is_busy and not self._unsent) or self._is_starved

    @property
    def held_bytes(self) -> int:
        """Memory of requests that came, and answers that the client has not taken."""
        return self._frames.held_bytes + self._frames.waiting_bytes + self._unsent

    def allow_frames_of(self, max_bytes: int) -> None:
        """From now on frames may be so long (a login has been accepted)."""
        self._frames.max_bytes = max_bytes

    def expect_tokens(self, expected: bool) -> None:
        """Set whether frames are a SASL mechanism's own bytes from now on (SaslHandshake v0), or requests."""
        self._frames.expect_tokens(expected)

    def let_request_go(self) -> None:
        """The bytes of the present request are no longer needed, although it may not be over."""
        self._frames.let_go()

    # Out

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Queue buffers and send what the socket takes now. They must not change until they are sent."""
        if self.is_closed:
            return
        for each in buffers:
            if len(each):
                self._out.append(memoryview(each))
                self._unsent += len(each)
        if not self._is_frozen:
            self._flush()

    def finish(self) -> None:
        """The present request is over; the next may be served, but not inside the one that called."""
        self._is_busy = False
        self._frames.let_go()
        # The request may lie behind it, and an idle connection keeps nothing.
        self.on_gone = None
        if not (self._is_serving or self._is_quiet):
            self._summon()

    def end(self, buffers: Iterable[Buffer], delay_ms: int = 0) -> None:
        """Send this after ``delay_ms`` and close; requests that come meanwhile are not served (a refused login)."""
        self._is_ending = True
        self._frames.clear()
        self._watch()

        def last_words() -> None:
            self._is_last = True
            self.send(buffers)

        self._loop.at(add_ms(self._loop.clock.now_ms(), delay_ms), last_words)

    def close(self, reason: str | None = None) -> None:
        """End the connection; a reason is logged in one line."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            _log.warning("connection of %s closed: %s", self.peer, reason)
        if self._events:
            self._loop.selector.unregister(self._sock)
            self._events = 0
        self._sock.close()
        self._out.clear()
        self._unsent = 0
        self._frames.clear()
        self._frames.let_go()
        self._on_close(self)
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            on_gone()
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed()

    def freeze(self, *, frozen: bool) -> None:
        """Stop reading and writing, with the socket open, or go on (a fault)."""
        self._is_frozen = frozen
        if self.is_closed:
            return
        self._watch()
        if not frozen:
            self._summon()

    def _flush(self) -> None:
        try:
            sent = self._transport.write(self._out)
        except OSError:
            self.close()
            return
        if sent:
            self._unsent -= sent
            self.active_at = self._loop.turn_at
        if self._is_last and not self._unsent and not self._transport.has_output:
            self.close()
            return
        if self._out or self._events != selectors.EVENT_READ or self._transport.has_output:
            self._watch()

    # In

    def _on_events(self, events: int) -> None:
        if events & selectors.EVENT_WRITE and not self.is_closed:  # else by one that was served before it
            self._flush()
            self._summon()
        if events & selectors.EVENT_READ and not self.is_closed:
            self._receive()

    def _receive(self) -> None:
        appetite = self._frames.appetite
        if not appetite:
            self._is_starved = True
            self._memory.wait(self._go_on)
            self._watch()
            return
        had = len(self._frames)
        try:
            is_open = self._transport.read(self._frames, appetite)
        except BlockingIOError:
            return
        except (FrameError, TransportError) as error:
            self.close(str(error))
            return
        except OSError:
            is_open = False
        if not is_open:
            self.close()
            return
        if self._is_ending:
            self._frames.clear()
            return
        if len(self._frames) != had:
            self.active_at = self._loop.turn_at
        self._serve()

    def _go_on(self) -> None:
        """Read again: there is memory."""
        self._is_starved = False
        if self.is_closed:
            return
        self.active_at = self._loop.turn_at  # it waited for us
        self._watch()
        if self._events & selectors.EVENT_READ:
            self._receive()

    def _summon(self) -> None:
        """Serve what waits, once what runs now has returned."""
        if not self._is_summoned and not self.is_closed:
            self._is_summoned = True
            self._loop.soon(self._answer_summons)

    def _answer_summons(self) -> None:
        self._is_summoned = False
        if not self.is_closed and not self._is_serving:
            self._serve()

    def _serve(self) -> None:
        # A request answered at once comes back through `finish` while we are here; the loop goes on with
        # the next instead of going deeper, or a pipeline of small requests would exhaust the stack.
        self._is_serving = True
        try:
            while self._frames.whole and self._may_serve():
                self._is_busy = True
                self._on_frame(self, self._frames.take())
        except Exception:
            # The loop logs it. A request without `finish` would hold the connection for ever.
            self.close("a bug in serving it")
            raise
        finally:
            self._is_serving = False
        if not (self._is_quiet or self.is_closed):
            self._watch()

    @property
    def _is_quiet(self) -> bool:
        """It waits for nothing but the client's next request."""
        return (
            self._events == selectors.EVENT_READ
            and not (self._frames.whole or self._out)
            and not self._transport.has_output
        )

    def _may_serve(self) -> bool:
        return (
            not self._is_busy
            and not self._is_frozen
            and not self._is_ending
            and not self.is_closed
            and self._unsent <= _UNSENT_BYTES
        )

    def _watch(self) -> None:
        """Register for what is useful now: reading unless too much waits, writing if something is left."""
        events = 0
        if not self._is_frozen:
            waiting = self._frames
            has_room = len(waiting) < _WAITING_FRAMES and waiting.waiting_bytes < _WAITING_BYTES
            if has_room and not self._is_starved:
                events |= selectors.EVENT_READ
            if self._out or self._transport.has_output:
                events |= selectors.EVENT_WRITE
        if events == self._events:
            return
        if not self._events:
            self._loop.selector.register(self._sock, events, self._on_events)
        elif not events:
            self._loop.selector.unregister(self._sock)
        else:
            self._loop.selector.modify(self._sock, events, self._on_events)
        self._events = events
