"""Bytes in any pieces become whole frames; what may be held meanwhile is bounded.

A frame's memory grows with the bytes that came, not with the length that was claimed. In `RequestMemory` it counts by
the length that was claimed, since it will be read to its end.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from kadence.wire.reader import Buffer
from kadence_broker.server.memory import RequestMemory

__all__ = ["READ_BYTES", "FrameError", "Frames"]

READ_BYTES: Final = 64 * 1024
"""The bytes to read from a socket at once; a longer frame gets memory of its own."""
_OWN_MEMORY_FROM: Final = READ_BYTES // 2
"""Once so much of a longer frame has come, it gets memory of its own: twice what has come, and so again when full."""
_LENGTH: Final = struct.Struct(">i")
_SHORTEST: Final = 8
"""The start of every request: the numbers of its API and version, and its correlation id."""


class FrameError(Exception):
    """The length in front of a frame is none that a Kafka client sends here."""


class Frames:
    """The frames of one connection that have come, and the one that is coming.

    Args:
        memory: where they count until they were taken and let go.

    Attributes:
        max_bytes: the longest frame allowed; it may change between frames (it is smaller before a login).
        min_bytes: the shortest; a bare token may have fewer than a request.
        whole: complete frames that were not taken yet, oldest first. waiting_bytes: their bytes.
    """

    __slots__ = (
        "_big",
        "_coming",
        "_filled",
        "_memory",
        "_missing",
        "_served",
        "_small",
        "_wanted",
        "max_bytes",
        "min_bytes",
        "waiting_bytes",
        "whole",
    )

    def __init__(self, max_bytes: int, memory: RequestMemory) -> None:
        self.max_bytes = max_bytes
        self.min_bytes = _SHORTEST
        self._memory = memory
        # Bytes that count: of the frame that is coming, of those that were taken and not let go.
        self._coming = 0
        self._served = 0
        self._missing = 0
        """The missing bytes of the frame that is coming, while it has no memory of its own."""
        self.waiting_bytes = 0
        self._small = bytearray()
        self._big: bytearray | None = None
        self._wanted = 0
        self._filled = 0
        self.whole: deque[Buffer] = deque()

    def __len__(self) -> int:
        """Whole frames that wait."""
        return len(self.whole)

    @property
    def held_bytes(self) -> int:
        """Memory of the frame that is coming."""
        return len(self._small) + len(self._big or b"")

    @property
    def appetite(self) -> int:
        """The most bytes to read now; 0: none before `RequestMemory` has room."""
        if not self._memory.is_full:
            return READ_BYTES
        return self._missing if self._big is None else self._wanted - self._filled

    def take(self) -> Buffer:
        """The oldest whole frame, without its length. It counts until `let_go`."""
        frame = self.whole.popleft()
        self.waiting_bytes -= len(frame)
        self._served += len(frame)
        return frame

    def let_go(self) -> None:
        """Release the frame that was taken."""
        if self._served:
            self._memory.change(-self._served)
            self._served = 0

    def expect_tokens(self, expected: bool) -> None:
        """Set whether frames are a SASL mechanism's own bytes from now on (SaslHandshake v0), or requests."""
        self.min_bytes = 0 if expected else _SHORTEST

    def clear(self) -> None:
        """Forget everything that was not taken."""
        self._memory.change(-self.waiting_bytes)
        self.whole.clear()
        self._small.clear()
        self._big = None
        self._expect(0)
        self.waiting_bytes = 0

    def room(self) -> memoryview | None:
        """The memory for the next bytes of a long frame; None: give them to `feed`."""
        return None if self._big is None else memoryview(self._big)[self._filled :]

    def filled(self, count: int) -> None:
        """So many bytes were written to `room`."""
        assert self._big is not None
        self._filled += count
        if self._filled == self._wanted:
            self._expect(0)
            self._add(self._big)
            self._big = None
        elif self._filled == len(self._big):
            self._big += bytes(min(self._filled, self._wanted - self._filled))

    def feed(self, data: bytes) -> None:
        """Take what came.

        Raises:
            FrameError: the connection must end; says why.
        """
        if not self._small and self._big is None and self._is_whole(data):
            self._add(data[4:])
            return
        at = 0
        while self._big is not None and at < len(data):
            room = memoryview(self._big)[self._filled :]
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            room.release()  # an array with views cannot grow
            self.filled(count)
            at += count
        if at < len(data):
            self._small += data[at:] if at else data
            self._cut()

    def _is_whole(self, data: bytes) -> bool:
        """Just one frame has come, as from nearly every client: it need not be cut."""
        length = len(data) - 4
        return self.min_bytes <= length <= self.max_bytes and _LENGTH.unpack_from(data)[0] == length

    def _cut(self) -> None:
        small = self._small
        at = 0
        begun = self._coming
        self._expect(0)
        while len(small) - at >= 4:
            (length,) = _LENGTH.unpack_from(small, at)
            if not self.min_bytes <= length <= self.max_bytes:
                raise FrameError(
                    f"a frame of {length} bytes was announced; allowed are {self.min_bytes} to {self.max_bytes} "
                    "(is this a Kafka client of this listener's security protocol?)"
                )
            have = len(small) - at - 4
            if have >= length:
                self._add(bytes(small[at + 4 : at + 4 + length]))
                at += 4 + length
            elif length <= READ_BYTES:
                self._expect(length, missing=length - have)
                break
            elif self._memory.is_full and (at or length != begun):
                # The part that has come does not count: else a few such parts could fill the memory and wait for ever.
                break
            elif have < _OWN_MEMORY_FROM:
                self._expect(length, missing=length - have)
                break
            else:
                self._expect(length)
                self._big = bytearray(min(length, 2 * have))
                self._big[:have] = small[at + 4 :]
                self._wanted, self._filled = length, have
                at = len(small)
        del small[:at]

    def _expect(self, count: int, *, missing: int = 0) -> None:
        """So much counts for what is coming."""
        self._missing = missing
        if count != self._coming:
            self._memory.change(count - self._coming)
            self._coming = count

    def _add(self, frame: Buffer) -> None:
        self.whole.append(frame)
        self.waiting_bytes += len(frame)
        self._memory.change(len(frame))
