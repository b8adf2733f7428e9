"""Bytes that are nearly right: inputs of a corpus with a few things changed, the same ones for the same seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["DEEP", "LONGEST", "Mutator"]

LONGEST: Final = 64 * 1024
"""Bytes of a mutated input; what goes wrong in a longer one goes wrong in a short one."""

DEEP: Final = b'[{"a":' * 5_000
"""A document that is nested deeper than any parser may follow."""
_BYTES: Final = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_NUMBERS: Final = tuple(
    struct.pack(layout, number)
    for layout, bits in ((">h", 16), (">i", 32), (">q", 64))
    for number in (-(2 ** (bits - 1)), -2, -1, 0, 1, 2, 127, 128, 1000, 2 ** (bits - 1) - 1)
)
_VARINTS: Final = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x00",
    b"\x81\x80\x01",
)
_LIES: Final = _NUMBERS + _VARINTS
"""What lengths, counts, offsets and versions look like that nobody would write."""


class Mutator:
    """Makes inputs from a corpus.

    Args:
        inputs: what to begin from; at least one.
        seed: of all that follows.
    """

    def __init__(self, inputs: Sequence[bytes], seed: int) -> None:
        self._inputs = inputs
        self._chance = random.Random(seed)
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._set,
            self._flip,
            self._lie,
            self._lie,
            self._insert,
            self._delete,
            self._cut,
            self._repeat,
            self._move,
            self._splice,
        )

    def begin(self, seed: int) -> None:
        """Let all that follows come from this seed."""
        self._chance.seed(seed)

    def __call__(self) -> bytes:
        """The next input."""
        chance = self._chance
        out = bytearray(chance.choice(self._inputs))
        # Most of what is changed often is refused at once; one or two changes reach further in.
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
            chance.choice(self._ways)(out)
        return bytes(out[:LONGEST])

    def _place(self, out: bytearray) -> int:
        """Where to change something: beginnings hold the lengths and versions."""
        chance = self._chance
        return (
            chance.randrange(min(len(out), 64) + 1)
            if chance.random() < 0.4
            else chance.randrange(len(out) + 1)
        )

    def _length(self, out: bytearray) -> int:
        return self._chance.choice((1, 1, 2, 4, 8, self._chance.randrange(1, len(out) + 2)))

    def _set(self, out: bytearray) -> None:
        if out:
            out[self._place(out) % len(out)] = self._chance.choice((*_BYTES, self._chance.randrange(256)))

    def _flip(self, out: bytearray) -> None:
        if out:
            out[self._place(out) % len(out)] ^= 1 << self._chance.randrange(8)

    def _lie(self, out: bytearray) -> None:
        at, lie = self._place(out), self._chance.choice(_LIES)
        out[at : at + (len(lie) if self._chance.random() < 0.7 else 1)] = lie

    def _insert(self, out: bytearray) -> None:
        at = self._place(out)
        out[at:at] = self._chance.randbytes(self._chance.choice((1, 1, 2, 4, 16)))

    def _delete(self, out: bytearray) -> None:
        at = self._place(out)
        del out[at : at + self._length(out)]

    def _cut(self, out: bytearray) -> None:
        del out[self._place(out) :]

    def _repeat(self, out: bytearray) -> None:
        at = self._place(out)
        some = bytes(out[at : at + self._length(out)])[:1024]
        out[at:at] = some * self._chance.choice((1, 1, 2, 30))

    def _move(self, out: bytearray) -> None:
        at = self._place(out)
        some = bytes(out[at : at + self._length(out)])
        del out[at : at + len(some)]
        to = self._place(out)
        out[to:to] = some

    def _splice(self, out: bytearray) -> None:
        other = self._chance.choice(self._inputs)
        at, from_ = self._place(out), self._chance.randrange(len(other) + 1)
        out[at:] = other[from_:]
