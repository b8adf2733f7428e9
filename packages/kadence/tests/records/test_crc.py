"""The checksum: known answers, both kernels, any alignment."""

from __future__ import annotations

import random

import crc32c as package
import pytest

from kadence._native.records import crc32c

VECTORS = {
    b"": 0,
    b"a": 0xC1D04330,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
}


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
def test_known_answers(data: bytes, expected: int) -> None:
    assert crc32c(data) == crc32c(data, portable=True) == expected


def test_kernels_agree_on_every_length_and_alignment() -> None:
    noise = random.Random(7).randbytes(40_000)
    sizes = [*range(100), 255, 256, 767, 768, 769, 1000, 4096, 12_287, 12_288, 12_289, 13_060, 39_990]
    for size in sizes:
        for start in (0, 1, 3, 7):
            piece = memoryview(noise)[start : start + size]
            assert crc32c(piece) == crc32c(piece, portable=True), (size, start)
    assert crc32c(noise[:12_800]) == package.crc32c(noise[:12_800])


def test_goes_on_from_what_came_before() -> None:
    noise = random.Random(8).randbytes(5000)
    for cut in (0, 1, 777, 4096, 5000):
        assert crc32c(noise[cut:], crc32c(noise[:cut])) == package.crc32c(noise)


def test_every_kind_of_buffer() -> None:
    assert crc32c(bytearray(b"123456789")) == crc32c(memoryview(b"123456789")) == 0xE3069283
    with pytest.raises(BufferError):
        crc32c(memoryview(b"1x2x3x")[::2])
