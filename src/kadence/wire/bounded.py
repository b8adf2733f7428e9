"""Reads untrusted messages: limits how many objects a message may become.

`Reader` bounds memory by the bytes that came, but an element of two bytes becomes an object of some two hundred, so a
frame of 100 MB of empty names would become gigabytes. A broker reads requests with this, a client answers.
"""

from __future__ import annotations

from typing import Final

from kadence.wire.errors import WireError
from kadence.wire.reader import Buffer, Reader

__all__ = ["MAX_ELEMENTS", "BoundedReader"]

MAX_ELEMENTS: Final = 250_000
"""Elements of all arrays of one request together; more than any client of a broker of this size can mean."""


class BoundedReader(Reader):
    """A `Reader` whose arrays have ``most`` elements in all. As Kafka it ignores what follows a message."""

    __slots__ = ("_left", "_most")

    def __init__(self, buf: Buffer, pos: int = 0, most: int = MAX_ELEMENTS) -> None:
        self.buf = buf  # what `Reader` does, without a call for each request
        self.pos = pos
        self._left = self._most = most

    def _plausible(self, count: int) -> int:
        self._spend(count)
        return super()._plausible(count)

    def compact_count(self) -> int:
        count = self._plausible(self.uvarint() - 1)
        if count < 0:
            raise self._null("array")
        return count

    def unknown_tags(self) -> dict[int, bytes]:
        pos = self.pos
        if pos < len(self.buf) and self.buf[pos] == 0:  # as good as always
            self.pos = pos + 1
            return {}
        self._spend(self.uvarint())
        self.pos = pos
        return super().unknown_tags()

    def finish(self) -> None:
        return

    def _spend(self, count: int) -> None:
        if count > 0:
            self._left -= count
            if self._left < 0:
                raise WireError(f"the arrays of one message have more than {self._most} elements")
