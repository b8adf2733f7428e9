"""CRC-32C from the best place there is: our extension, else google-crc32c, else crc32c, else a table in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kadence.logs import logger
from kadence.records import _implementation

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["KERNEL", "crc32c"]

log = logger("kadence.records")


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
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    return table


_table: Final = _make_table()


class _Once:
    """Says a thing once per process."""

    def __init__(self) -> None:
        self.is_said = False

    def warn(self, text: str) -> None:
        if not self.is_said:
            self.is_said = True
            log.warning(text)


_once: Final = _Once()


def by_table(data: Buffer, crc: int = 0, /) -> int:
    """CRC-32C in Python, some 12 MB/s; says so at its first use."""
    _once.warn(
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
