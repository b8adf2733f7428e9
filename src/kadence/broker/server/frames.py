"""Bytes in any pieces become whole frames; what may be held meanwhile is bounded.

A frame's memory grows with the bytes that came, not with the length that was claimed.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from kadence.wire.reader import Buffer

__all__ = ["READ_BYTES", "FrameError", "Frames"]

READ_BYTES: Final = 64 * 1024
"""What is asked of a socket at once; a frame that is longer gets memory of its own."""
_FIRST_ALLOCATION: Final = 1024 * 1024
_LENGTH: Final = struct.Struct(">i")
_SHORTEST: Final = 8


class FrameError(Exception):
    """The length in front of a frame is none that a Kafka client sends here."""


class Frames:
    """The frames of one connection that have come, and the one that is coming.

    Attributes:
        max_bytes: the longest frame allowed; it may change between frames (it is smaller before a login).
        whole: frames that nobody has taken, oldest first; waiting_bytes: of them.
    """

    __slots__ = ("_big", "_filled", "_small", "_wanted", "max_bytes", "waiting_bytes", "whole")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
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

    def take(self) -> Buffer:
        """The oldest whole frame, without its length."""
        frame = self.whole.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def clear(self) -> None:
        """Forget everything."""
        self.whole.clear()
        self._small.clear()
        self._big = None
        self.waiting_bytes = 0

    def room(self) -> memoryview | None:
        """Where the next bytes of a long frame belong; None: give them to `feed`."""
        return None if self._big is None else memoryview(self._big)[self._filled :]

    def filled(self, count: int) -> None:
        """So many bytes were written to `room`."""
        assert self._big is not None
        self._filled += count
        if self._filled == self._wanted:
            self._add(self._big)
            self._big = None
        elif self._filled == len(self._big):
            self._big += bytes(min(self._filled, self._wanted - self._filled))

    def feed(self, data: bytes) -> None:
        """Take what came.

        Raises:
            FrameError: the connection must end; says why.
        """
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

    def _cut(self) -> None:
        small = self._small
        at = 0
        while len(small) - at >= 4:
            (length,) = _LENGTH.unpack_from(small, at)
            if not _SHORTEST <= length <= self.max_bytes:
                raise FrameError(
                    f"a frame of {length} bytes was announced; allowed are {_SHORTEST} to {self.max_bytes} "
                    "(is this a Kafka client of this listener's security protocol?)"
                )
            have = len(small) - at - 4
            if have >= length:
                self._add(bytes(small[at + 4 : at + 4 + length]))
                at += 4 + length
            elif length > READ_BYTES:
                self._big = bytearray(max(min(length, _FIRST_ALLOCATION), have))
                self._big[:have] = small[at + 4 :]
                self._wanted, self._filled = length, have
                at = len(small)
            else:
                break
        del small[:at]

    def _add(self, frame: Buffer) -> None:
        self.whole.append(frame)
        self.waiting_bytes += len(frame)
