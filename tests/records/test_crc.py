"""The checksum: known answers, both kernels, any alignment, and where it comes from without the extension."""

from __future__ import annotations

import builtins
import random
import sys
from types import ModuleType
from typing import Any

import pytest
from tests.records.conftest import COMPILED, load_half

from kadence.records import _implementation, batch

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
    compiled = load_half(COMPILED).records.crc32c
    assert compiled(data) == compiled(data, portable=True) == expected
    assert batch.by_table(data) == batch.crc32c(data) == expected


def test_kernels_agree_on_every_length_and_alignment() -> None:
    compiled = load_half(COMPILED).records.crc32c
    noise = random.Random(7).randbytes(40_000)
    sizes = [*range(100), 255, 256, 767, 768, 769, 1000, 4096, 12_287, 12_288, 12_289, 13_060, 39_990]
    for size in sizes:
        for start in (0, 1, 3, 7):
            piece = memoryview(noise)[start : start + size]
            assert compiled(piece) == compiled(piece, portable=True), (size, start)
    assert compiled(noise[:12_800]) == batch.by_table(noise[:12_800])


def test_goes_on_from_what_came_before() -> None:
    noise = random.Random(8).randbytes(5000)
    compiled = load_half(COMPILED).records.crc32c
    for cut in (0, 1, 777, 4096, 5000):
        for function in (compiled, batch.by_table, batch.crc32c):
            assert function(noise[cut:], function(noise[:cut])) == compiled(noise)


def test_every_kind_of_buffer() -> None:
    compiled = load_half(COMPILED).records.crc32c
    assert compiled(bytearray(b"123456789")) == compiled(memoryview(b"123456789")) == 0xE3069283
    with pytest.raises(BufferError):
        compiled(memoryview(b"1x2x3x")[::2])


def fake_google(implementation: str) -> ModuleType:
    module: Any = ModuleType("google_crc32c")
    module.implementation = implementation
    module.extend = lambda value, data: batch.by_table(data, value)
    assert isinstance(module, ModuleType)
    return module


def test_without_the_extension_packages_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_implementation, "crc32c", None)
    monkeypatch.setitem(sys.modules, "google_crc32c", fake_google("c"))
    name, function = batch._choose()
    assert (name, function(memoryview(b"123456789"))) == ("google-crc32c", 0xE3069283)
    monkeypatch.setitem(sys.modules, "google_crc32c", fake_google("python"))
    name, function = batch._choose()
    assert (name, function(memoryview(b"123456789"))) == ("crc32c", 0xE3069283)


def test_without_anything_the_table_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def no_packages(name: str, *args: Any) -> Any:
        if name in ("google_crc32c", "crc32c"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(_implementation, "crc32c", None)
    monkeypatch.setattr(builtins, "__import__", no_packages)
    monkeypatch.setattr(batch._once, "is_said", False)
    name, function = batch._choose()
    assert name == "python"
    assert function(b"123456789") == function(memoryview(b"123456789")) == 0xE3069283
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "kadence[plain]" in caplog.text
