"""The four compressions of a record batch, with a bound on the decompressed size.

A batch does not state its decompressed size, and a kilobyte can become gigabytes. So no library allocates as it likes
here: gzip gets a maximum size; snappy states its size, which is checked first; lz4 and zstd write into our own buffer,
which starts at an estimate and grows in steps up to the bound. No decompression context is shared or kept: cramjam
makes one per call, so threads do not share one.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any, Final

from kadence._native.buffers import scratch
from kadence.errors import ConfigError, RecordTooLargeError, UnsupportedRecordFormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CODECS", "CodecError", "codec_id", "compress", "decompress"]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs; the index is the number in a batch's attributes."""

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_INT: Final = struct.Struct(">i")

_SMALLEST_GUESS: Final = 16 * 1024
_MEMBER: Final = 128
"""First buffer size for a gzip member; doubled each time."""
_LEVELS: Final = {"gzip": 6, "lz4": 1, "zstd": 3}
"""Kafka's defaults, except lz4: its level 9 takes many times as long for a few per cent less."""


def _library() -> Any:
    """cramjam."""
    import cramjam

    return cramjam


if getattr(sys, "_is_gil_enabled", lambda: True)():
    # Loaded now, so that the first batch need not wait. On a free-threaded Python, a cramjam that does not declare
    # support would switch the global lock on for the process: there the first batch loads it.
    _library()


class CodecError(ValueError):
    """The codec refused the bytes."""


def codec_id(name: str) -> int:
    """Number of a codec.

    Raises:
        ConfigError: no such codec.
    """
    try:
        return CODECS.index(name)
    except ValueError:
        raise ConfigError(f"compression must be one of {', '.join(CODECS)}, not {name!r}") from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress a batch's records in the form that every Kafka client reads.

    Args:
        codec: 1 gzip, 2 snappy, 3 lz4, 4 zstd (0 copies).
        level: the codec's own level; None takes a good default. snappy has no levels.
    """
    name = CODECS[codec]
    if level is None:
        level = _LEVELS.get(name, 0)
    if name == "gzip":
        stream = zlib.compressobj(level, zlib.DEFLATED, 31)
        return stream.compress(data) + stream.flush()
    if name == "snappy":
        return _xerial_compress(memoryview(data))
    if name == "lz4":
        # Independent blocks: Kafka's Java reader refuses linked ones, which are cramjam's default.
        frame = _library().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    if name == "zstd":
        return bytes(_library().zstd.compress(data, level=level))
    return bytes(data)


def _xerial_compress(data: memoryview) -> bytes:
    parts = [_XERIAL_HEAD]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(_library().snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts.append(_INT.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(codec: int, data: memoryview, limit: int) -> Buffer:
    """Decompress a batch's records into at most ``limit`` bytes.

    Returns:
        a buffer of our own; it never points into ``data``.

    Raises:
        RecordTooLargeError: more than ``limit`` bytes would come out.
        CodecError: the bytes are damaged.
        UnsupportedRecordFormatError: an unknown codec.
    """
    if codec == 1:
        return _gunzip(data, limit)
    if codec == 2:
        return _snappy(data, limit)
    if codec == 3:
        return _grow("lz4", data, _lz4_size(data), limit)
    if codec == 4:
        return _grow("zstd", data, _zstd_size(data), limit)
    raise UnsupportedRecordFormatError(f"unknown compression codec {codec}; a newer Kadence may read it")


def _too_large(codec: str, limit: int, size: int | None = None) -> RecordTooLargeError:
    said = "" if size is None else f"{size} bytes, "
    return RecordTooLargeError(
        f"a {codec} batch would decompress to {said}more than {limit} bytes (max.batch.bytes)"
    )


def _gunzip(data: memoryview, limit: int) -> bytes:
    """All members of the stream, one after the other; mostly there is one.

    zlib copies what it is given beyond the end of a member, so later members are fed in steps. Otherwise a stream of
    empty members, 20 bytes each, would be copied once per member.
    """
    parts: list[bytes] = []
    size = at = 0
    chunk = len(data)
    while True:
        stream = zlib.decompressobj(31)
        while not stream.eof:
            given = data[at : at + chunk]
            if not given:
                raise CodecError("gzip: the stream is cut off")
            try:
                part = stream.decompress(given, limit - size + 1)
            except zlib.error as error:
                raise CodecError(f"gzip: {error}") from error
            at += len(given)
            size += len(part)
            if size > limit:
                raise _too_large("gzip", limit)
            if part:
                parts.append(part)
            chunk *= 2
        at -= len(stream.unused_data)
        if at == len(data):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        chunk = _MEMBER


def _snappy_size(block: memoryview) -> int:
    cramjam = _library()
    try:
        return int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CodecError(str(error)) from error


def _snappy(data: memoryview, limit: int) -> Buffer:
    """Raw snappy, or the xerial framing of Java clients: a head, then blocks with their lengths."""
    cramjam = _library()
    if bytes(data[: len(_XERIAL)]) == _XERIAL:
        blocks = _xerial_blocks(data)
    else:
        blocks = [data]
    sizes = [_snappy_size(block) for block in blocks]
    size = sum(sizes)
    if size > limit:
        raise _too_large("snappy", limit, size)
    out = scratch(size)
    view = memoryview(out)
    pos = 0
    for block, length in zip(blocks, sizes, strict=True):
        if length == 0:
            continue
        try:
            wrote = cramjam.snappy.decompress_raw_into(block, view[pos : pos + length])
        except cramjam.DecompressionError as error:
            raise CodecError(str(error)) from error
        if wrote != length:
            raise CodecError("snappy: a block is shorter than it says")
        pos += length
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    pos, end = len(_XERIAL_HEAD), len(data)
    if end < pos:
        raise CodecError("snappy: the head of the framing is cut off")
    while pos < end:
        if end - pos < 4:
            raise CodecError("snappy: a block's length is cut off")
        (length,) = _INT.unpack_from(data, pos)
        pos += 4
        if length < 0 or length > end - pos:
            raise CodecError("snappy: a block's length runs past the end")
        blocks.append(data[pos : pos + length])
        pos += length
    return blocks


def _lz4_size(data: memoryview) -> int | None:
    """Content size that an lz4 frame states, if it does."""
    if len(data) >= 14 and bytes(data[:4]) == b"\x04\x22\x4d\x18" and data[4] & 0x08:
        return int.from_bytes(data[6:14], "little")
    return None


def _zstd_size(data: memoryview) -> int | None:
    """Content size that a zstd frame states, if it does (RFC 8878, section 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    width = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(data) < start + width:
        return None
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size


_ratio = {"lz4": 4.0, "zstd": 6.0}
"""The size that the last frames without a stated size needed: the first estimate for the next.

A race here costs one retry.
"""


def _grow(codec: str, data: memoryview, stated: int | None, limit: int) -> Buffer:
    """Decompress into buffers of growing size, up to ``limit``.

    A failure may mean a buffer that is too small or bytes that are damaged, and the library distinguishes them only by
    the text of its error. So each failure grows the buffer, and the text decides only at the bound: damaged bytes are
    rare, and calling a good batch damaged because a text has changed would be worse.
    """
    cramjam = _library()
    into = cramjam.lz4.decompress_into if codec == "lz4" else cramjam.zstd.decompress_into
    if stated is not None and stated > limit:
        raise _too_large(codec, limit, stated)
    # A stated size may be wrong: take memory for a plausible size first, and the rest on demand.
    size = stated if stated is not None else int(len(data) * _ratio[codec]) + _SMALLEST_GUESS
    size = min(max(size, 1), limit)
    while True:
        out = scratch(size)
        try:
            wrote = int(into(data, out))
        except cramjam.DecompressionError as error:
            if size < limit:
                size = min(size * 4, limit)
                continue
            if "whole buffer" in str(error):
                raise _too_large(codec, limit) from error
            raise CodecError(f"{codec}: {error}") from error
        if stated is None and data:
            _ratio[codec] = max(wrote * 1.1 / len(data), _ratio[codec] * 0.95, 1.0)
        return out if wrote == size else memoryview(out)[:wrote]
