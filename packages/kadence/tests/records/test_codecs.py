"""The codecs: both ways, bombs, and bytes that lie about their size."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from typing import Any

import cramjam
import pytest

from kadence.errors import RecordTooLargeError, UnsupportedRecordFormatError
from kadence.records.codecs import CODECS, CodecError, compress, decompress

PLAIN = b"".join(b'{"id": %d, "name": "record %d"}' % (i, i * 7) for i in range(5000))
LIMIT = 1 << 20


def undo(codec: int, data: bytes, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, memoryview(data), limit))


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
@pytest.mark.parametrize("data", [b"", b"x", PLAIN, bytes(LIMIT)], ids=["empty", "one", "json", "zeros"])
def test_round_trip(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert undo(codec, packed) == data
    assert bytes(decompress(codec, memoryview(b"##" + packed)[2:], LIMIT)) == data


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_levels(codec: int) -> None:
    assert undo(codec, compress(codec, PLAIN, 3)) == PLAIN


def test_none_copies() -> None:
    assert compress(0, bytearray(b"abc")) == b"abc"


def test_unknown_codec() -> None:
    with pytest.raises(UnsupportedRecordFormatError, match="codec 5"):
        undo(5, b"")


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_exactly_at_the_bound_and_one_below(codec: int) -> None:
    packed = compress(codec, PLAIN)
    assert undo(codec, packed, len(PLAIN)) == PLAIN
    with pytest.raises(RecordTooLargeError, match=rf"{len(PLAIN) - 1} bytes \(max\.batch\.bytes\)"):
        undo(codec, packed, len(PLAIN) - 1)


DEFUSE = """
import resource, sys
import cramjam
from kadence.errors import RecordTooLargeError
from kadence.records.codecs import compress, decompress

codec = int(sys.argv[1])
if codec in (3, 4):
    # The streaming forms, which state no size.
    frame = cramjam.lz4.Compressor(level=1) if codec == 3 else cramjam.zstd.Compressor(level=3)
    for _ in range(256):
        frame.compress(bytes(1 << 20))
    packed = bytes(frame.finish())
else:
    packed = compress(codec, bytes(1 << 28))
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), -1))
try:
    decompress(codec, memoryview(packed), 1 << 20)
except RecordTooLargeError as error:
    print("defused:", error)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="the address space is limited and measured as Linux has it"
)
@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_a_bomb_of_256_mib_takes_no_more_than_the_bound(codec: int) -> None:
    """The process may grow by 64 MiB; a library that inflated it all would end in a MemoryError or an abort."""
    done = subprocess.run(
        [sys.executable, "-c", DEFUSE, str(codec)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(f"defused: a {CODECS[codec]} batch"), done.stderr


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_a_bomb_in_many_frames(codec: int) -> None:
    """Concatenated frames are one stream for gzip, lz4 and zstd, and many blocks for snappy."""
    packed = compress(codec, bytes(1 << 19))
    many = packed * 8 if codec != 2 else packed + packed[16:] * 7
    assert len(undo(codec, many, 1 << 22)) == 1 << 22
    with pytest.raises(RecordTooLargeError):
        undo(codec, many, (1 << 22) - 1)


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_cut_off_at_every_byte(codec: int) -> None:
    packed = compress(codec, PLAIN[:3000])
    for cut in range(1, len(packed)):
        try:
            got = undo(codec, packed[:cut])
        except CodecError:
            continue
        assert PLAIN[:3000].startswith(got), cut


@pytest.mark.parametrize("codec", range(1, 5), ids=CODECS[1:])
def test_every_byte_changed(codec: int) -> None:
    packed = bytearray(compress(codec, PLAIN[:2000]))
    for at in range(len(packed)):
        packed[at] ^= 0x55
        try:
            undo(codec, bytes(packed))
        except (CodecError, RecordTooLargeError):
            pass
        packed[at] ^= 0x55


def test_gzip_of_several_members() -> None:
    assert undo(1, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    with pytest.raises(CodecError, match="gzip"):
        undo(1, gzip.compress(b"one") + b"junk")


@pytest.mark.parametrize(
    "sizes", [[0] * 2_000, [1, 100_000, 0, 3_000] * 5, [0, 1_000_000, 5]], ids=["empty", "mixed", "large"]
)
def test_the_work_for_gzip_members_grows_with_their_bytes(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """zlib copies what it was given beyond the end of a member: the whole rest for each is quadratic work."""
    dice = random.Random(1)
    parts = [dice.randbytes(size) for size in sizes]
    data = b"".join(gzip.compress(part) for part in parts)
    given = 0
    usual = zlib.decompressobj

    class Counting:
        def __init__(self, bits: int) -> None:
            self.of = usual(bits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.of, name)

        def decompress(self, data: memoryview, limit: int) -> bytes:
            nonlocal given
            given += len(data)
            return self.of.decompress(data, limit)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    assert bytes(undo(1, data)) == b"".join(parts)
    assert given < 10 * len(data)


@pytest.mark.parametrize(
    "tail", [b"\x1f", gzip.compress(b"two")[:-1], gzip.compress(b"two" * 1_000)[:-4]], ids=len
)
def test_a_gzip_member_that_is_cut_off_after_a_whole_one(tail: bytes) -> None:
    with pytest.raises(CodecError, match="gzip: the stream is cut off"):
        undo(1, gzip.compress(b"one") + tail)


def test_gzip_takes_zlib_streams_for_damage() -> None:
    with pytest.raises(CodecError):
        undo(1, zlib.compress(b"one"))


def test_snappy_raw_as_librdkafka_writes_it() -> None:
    assert undo(2, bytes(cramjam.snappy.compress_raw(PLAIN))) == PLAIN


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = compress(2, PLAIN)
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


@pytest.mark.parametrize("tail", [b"\0", struct.pack(">i", -1), struct.pack(">i", 5) + b"abc"])
def test_snappy_frames_that_lie(tail: bytes) -> None:
    with pytest.raises(CodecError, match="snappy"):
        undo(2, compress(2, b"abc") + tail)


def test_snappy_head_cut_off() -> None:
    with pytest.raises(CodecError, match="cut off"):
        undo(2, compress(2, b"abc")[:12])


def test_snappy_that_states_gigabytes_is_refused_before_memory_is_taken() -> None:
    huge = b"\xff\xff\xff\xff\x0f" + b"\0" * 10
    with pytest.raises(RecordTooLargeError, match="4294967295 bytes"):
        undo(2, huge)


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    packed = compress(3, PLAIN)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20


@pytest.mark.parametrize("stated", [0, 1, 2**20 + 1, 2**63, 2**64 - 1])
def test_zstd_that_lies_about_its_size(stated: int) -> None:
    """A frame of 5 raw bytes under a header that states another size."""
    frame = b"\x28\xb5\x2f\xfd" + b"\xe0" + stated.to_bytes(8, "little") + b"\x29\0\0hello"
    with pytest.raises((CodecError, RecordTooLargeError)):
        undo(4, frame)


def test_stated_sizes_are_read() -> None:
    from kadence.records.codecs import _lz4_size, _zstd_size

    for size in (0, 5, 255, 256, 300, 65535, 65536, 70_000, len(PLAIN)):
        packed = bytes(cramjam.zstd.compress((PLAIN * 2)[:size]))
        assert _zstd_size(memoryview(packed)) in (size, None)
    assert _zstd_size(memoryview(bytes(cramjam.zstd.compress(PLAIN)))) == len(PLAIN)
    assert _zstd_size(memoryview(b"")) is None
    assert _zstd_size(memoryview(b"\x28\xb5\x2f\xfd\xe0\x01")) is None
    assert _lz4_size(memoryview(compress(3, PLAIN))) is None
    assert _lz4_size(memoryview(b"\x04\x22\x4d\x18\x68\x40" + (77).to_bytes(8, "little"))) == 77
