"""One client's connection: frames in, one at a time; buffers out, without joining them.

Kafka's broker serves one request of a connection at a time and reads the next when the answer is on its
way; so does this one. What a client sends meanwhile waits here, up to a bound, then in its socket.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kadence.broker.server.loop import Loop
from kadence.wire.reader import Buffer

__all__ = ["Connection"]

_log = logging.getLogger("kadence.broker")

_READ_BYTES: Final = 64 * 1024
_WAITING_FRAMES: Final = 32
_SCATTER: Final = 256
"""Buffers per `sendmsg`; the system's own limit is 1024."""
_FIRST_ALLOCATION: Final = 1024 * 1024
"""A frame's memory grows with the bytes that came, not with the length that was claimed."""
_LENGTH = struct.Struct(">i")
_SHORTEST_FRAME: Final = 8


class Connection:
    """A connected socket on the loop.

    Args:
        on_frame: takes one request; `finish` must be called once for each, after the last `send`.
        on_close: told when the connection is over, whoever ended it.
    """

    __slots__ = (
        "_big",
        "_events",
        "_filled",
        "_frames",
        "_is_busy",
        "_is_serving",
        "_loop",
        "_max_frame_bytes",
        "_on_close",
        "_on_frame",
        "_out",
        "_small",
        "_sock",
        "_wanted",
        "is_closed",
        "node_id",
        "peer",
    )

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        peer: str,
        node_id: int,
        max_frame_bytes: int,
        on_frame: Callable[[Connection, Buffer], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self.peer = peer
        self.node_id = node_id
        self._max_frame_bytes = max_frame_bytes
        self._on_frame = on_frame
        self._on_close = on_close
        self._small = bytearray()
        self._big: bytearray | None = None
        self._wanted = 0
        self._filled = 0
        self._frames: deque[Buffer] = deque()
        self._out: deque[memoryview] = deque()
        self._is_busy = False
        self._is_serving = False
        self.is_closed = False
        self._events = selectors.EVENT_READ
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.selector.register(sock, self._events, self._on_events)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "busy" if self._is_busy else "idle"
        return f"<connection of {self.peer} to node {self.node_id}, {state}>"

    # Out

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Queue buffers and send what the socket takes now. They must not change until they are sent."""
        if self.is_closed:
            return
        self._out.extend(memoryview(each) for each in buffers if len(each))
        self._flush()

    def finish(self) -> None:
        """The present request is over; the next may be served."""
        self._is_busy = False
        if not self._is_serving:
            self._serve()

    def close(self, reason: str | None = None) -> None:
        """End the connection; a reason is logged in one line."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            _log.warning("connection of %s closed: %s", self.peer, reason)
        if self._events:
            self._loop.selector.unregister(self._sock)
        self._sock.close()
        self._out.clear()
        self._frames.clear()
        self._on_close(self)

    def _flush(self) -> None:
        out = self._out
        try:
            while out:
                sent = self._sock.sendmsg([out[at] for at in range(min(len(out), _SCATTER))])
                while sent:
                    first = out[0]
                    if sent < len(first):
                        out[0] = first[sent:]
                        break
                    sent -= len(first)
                    out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._watch()

    # In

    def _on_events(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ and not self.is_closed:
            self._receive()

    def _receive(self) -> None:
        try:
            if self._big is not None:
                count = self._sock.recv_into(memoryview(self._big)[self._filled :])
                self._filled += count
                self._extend_big()
            else:
                data = self._sock.recv(_READ_BYTES)
                count = len(data)
                self._small += data
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        if self._cut_frames():
            self._serve()

    def _extend_big(self) -> None:
        """Complete, or make room for as much again as has come."""
        assert self._big is not None
        if self._filled == self._wanted:
            self._frames.append(self._big)
            self._big = None
        elif self._filled == len(self._big):
            self._big += bytes(min(self._filled, self._wanted - self._filled))

    def _cut_frames(self) -> bool:
        """Take complete frames out of what has come; False when the connection had to be closed."""
        small = self._small
        at = 0
        while self._big is None and len(small) - at >= 4:
            (length,) = _LENGTH.unpack_from(small, at)
            if not _SHORTEST_FRAME <= length <= self._max_frame_bytes:
                self.close(
                    f"a frame of {length} bytes was announced; allowed are {_SHORTEST_FRAME} to "
                    f"{self._max_frame_bytes} (is this a Kafka client, without TLS?)"
                )
                return False
            have = len(small) - at - 4
            if have >= length:
                self._frames.append(bytes(small[at + 4 : at + 4 + length]))
                at += 4 + length
            elif length > _READ_BYTES:
                self._big = bytearray(max(min(length, _FIRST_ALLOCATION), have))
                self._big[:have] = small[at + 4 :]
                self._wanted, self._filled = length, have
                at = len(small)
            else:
                break
        del small[:at]
        return True

    def _serve(self) -> None:
        # A request answered at once comes back through `finish` while we are here; the loop goes on with
        # the next instead of going deeper, or a pipeline of small requests would exhaust the stack.
        self._is_serving = True
        try:
            while not self._is_busy and self._frames and not self.is_closed:
                self._is_busy = True
                self._on_frame(self, self._frames.popleft())
        finally:
            self._is_serving = False
        if not self.is_closed:
            self._watch()

    def _watch(self) -> None:
        """Register for what is useful now: reading unless too much waits, writing if something is left."""
        events = 0
        if len(self._frames) < _WAITING_FRAMES:
            events |= selectors.EVENT_READ
        if self._out:
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
