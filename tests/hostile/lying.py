"""Answers that can be read and lie: offsets that go back, other topics and epochs, counts that do not fit, bombs."""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Any, Final

from kadence.protocol.error_codes import NAMES
from kadence.records import encode_batch
from kadence.wire import Structure

__all__ = ["lie_about"]

_NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 100, 1_000_000, 2**31 - 1, 2**62, 2**63 - 1)
_TEXTS: Final = (
    "",
    "t",
    "u",
    "m",
    "g",
    "tx",
    "\0",
    "\ud800",
    "x" * 300,
    "a/b",
    "range",
    "127.0.0.1",
    "consumer",
)
_CODES: Final = tuple(NAMES)
_MOST_COPIES: Final = 200
_BOMB: Final = 4 << 20
"""Bytes of zeros in few compressed ones."""


def lie_about(answer: Any, chance: random.Random, but: Container[str] = ()) -> None:
    """Change some of what an answer says. It may be such that nobody could write it.

    Args:
        but: names of fields that stay as they are.
    """
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        fields = [field for field in _fields(answer) if field[1] not in but]
        if not fields:
            return
        message, name = chance.choice(fields)
        value = getattr(message, name)
        setattr(message, name, _other(name, value, chance))


def _fields(message: Any) -> list[tuple[Any, str]]:
    """All fields of a message and of those in it."""
    found: list[tuple[Any, str]] = []
    for name in type(message).__slots__:
        value = getattr(message, name, None)
        if name == "unknown_tags":
            continue
        found.append((message, name))
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Structure):
                found += _fields(each)
    return found


def _other(name: str, value: Any, chance: random.Random) -> Any:
    if name == "error_code":
        return chance.choice(_CODES)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((*_NUMBERS, value - 1, value + 1, value - 100, value + 1_000, -value))
    if isinstance(value, str):
        return chance.choice((*_TEXTS, value + "m", value[:-1]))
    if name == "records":
        return _other_records(bytes(value or b""), chance)
    if isinstance(value, bytes):
        return chance.choice(
            (b"", bytes(16), chance.randbytes(16), value[:-1], value * 2, chance.randbytes(70))
        )
    if isinstance(value, list):
        return _other_list(value, chance)
    # A message that is not there, or null: other than that it cannot be anything that is known here.
    return chance.choice((None, value))


def _other_list(value: list[Any], chance: random.Random) -> Any:
    return chance.choice(
        (
            [],
            None,
            value[:-1],
            value[::-1],
            value + value[:1],
            value * chance.choice((2, 3, _MOST_COPIES // (len(value) + 1) + 1)),
        )
    )


def _other_records(records: bytes, chance: random.Random) -> bytes:
    """Batches in another order, of other offsets, of a transaction, or that grow when they are decompressed."""
    way = chance.randrange(7)
    offset = chance.choice((0, 1, 5, 50, 199, 2**62))
    if way == 0:
        return records[chance.randrange(len(records) + 1) :]
    if way == 1:
        return records * 2
    if way == 2:
        made = chance.choice(_NUMBERS[4:]).to_bytes(8, "big") + records[8:]
        return made if records else b""
    if way == 3:
        rows = [(0, None, bytes(_BOMB), ())]
        return encode_batch(
            rows, base_offset=offset, compression=chance.choice(("gzip", "lz4", "zstd", "snappy"))
        )
    if way == 4:
        old = [(0, b"k", b"old", ())] * 3
        return encode_batch(old, base_offset=offset, leader_epoch=chance.choice((0, 5, 2**31 - 1)))
    if way == 5:
        return encode_batch(
            [(0, None, b"x", ())],
            base_offset=offset,
            producer_id=5,
            producer_epoch=1,
            base_sequence=0,
            transactional=True,
        )
    return records[: chance.randrange(len(records) + 1)]
