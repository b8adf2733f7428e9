"""Batches written by hand, byte by byte: a second opinion on our own encoder, and batches that none would write."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")

Header = tuple[bytes, bytes | None]


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while True:
        byte = raw & 0x7F
        raw >>= 7
        if not raw:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
    *,
    extra: bytes = b"",
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers)) + b"".join(sized(name) + sized(value) for name, value in headers) + extra
    return varint(len(body)) + body


@dataclass(frozen=True)
class Row:
    """A record as a test thinks of it."""

    offset: int
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b"value"
    headers: tuple[Header, ...] = ()


def batch(
    body: bytes,
    count: int,
    *,
    base_offset: int = 0,
    last_delta: int | None = None,
    attributes: int = 0,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int = 1_700_000_000_000,
    producer_id: int = -1,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """A batch around a body that is already encoded (and compressed)."""
    delta = count - 1 if last_delta is None else last_delta
    rest = HEADER.pack(
        0, 0, 0, 0, 0, attributes, delta, base_timestamp, max_timestamp, producer_id, 0, -1, count
    )[21:]
    checksum = crc32c.crc32c(rest + body) if crc is None else crc
    size = len(rest) + len(body) + 9 if length is None else length
    return struct.pack(">qiibI", base_offset, size, leader_epoch, magic, checksum) + rest + body


def from_rows(rows: Iterable[Row], **header: Any) -> bytes:
    """An uncompressed batch of rows with any offsets."""
    listed = list(rows)
    base_offset = header.setdefault("base_offset", listed[0].offset)
    base_timestamp = header.setdefault("base_timestamp", listed[0].timestamp)
    header.setdefault("last_delta", listed[-1].offset - base_offset)
    body = b"".join(
        record(row.offset - base_offset, row.timestamp - base_timestamp, row.key, row.value, row.headers)
        for row in listed
    )
    return batch(body, len(listed), **header)


def marker(offset: int, producer_id: int, *, commit: bool, **header: Any) -> bytes:
    """The control batch that ends a transaction."""
    body = record(0, 0, struct.pack(">hh", 0, 1 if commit else 0), struct.pack(">hi", 0, 0))
    return batch(body, 1, base_offset=offset, producer_id=producer_id, attributes=0x30, **header)
