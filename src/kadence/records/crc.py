"""CRC-32C from the best place there is: our extension, else google-crc32c, else crc32c, else a table in Python."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from kadence.records import _implementation

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["KERNEL", "crc32c"]

log = logging.getLogger("kadence.records")


class _Function(Protocol):
    def __call__(self, data: Buffer, crc: int = 0, /) -> int: ...


def _google() -> _Function:
    import google_crc32c

    if google_crc32c.implementation != "c":
        raise ImportError("google_crc32c without its C part is as slow as ours")
    extend = google_crc32c.extend

    def google(data: Buffer, crc: int = 0, /) -> int:
        # It takes bytes only, hence a copy of anything else.
        return int(extend(crc, data if type(data) is bytes else bytes(data)))

    return google


def _package() -> _Function:
    from crc32c import crc32c as package

    return package


def _make_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


_table: Final = _make_table()
_said_slow = False


def by_table(data: Buffer, crc: int = 0, /) -> int:
    """CRC-32C in Python, some 12 MB/s; says so at its first use."""
    global _said_slow
    if not _said_slow:
        _said_slow = True
        log.warning(
            "checksums are computed in Python, at about 12 MB/s: install kadence[plain] or a build with the "
            "extension, or set check.crcs=false"
        )
    table = _table
    crc ^= 0xFFFFFFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _choose() -> tuple[str, _Function]:
    if _implementation.crc32c is not None:
        return _implementation.crc32c_kernel(), _implementation.crc32c
    for name, load in (("google-crc32c", _google), ("crc32c", _package)):
        try:
            return name, load()
        except ImportError:
            continue
    return "python", by_table


KERNEL, crc32c = _choose()
"""``KERNEL`` names where the checksum comes from; ``crc32c(data, crc=0)`` goes on from ``crc``."""
