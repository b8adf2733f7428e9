"""Primitives to bytes, and back through the reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.wire import Reader, WireError, Writer


def written(method: str, *arguments: Any) -> bytes:
    w = Writer()
    getattr(w, method)(*arguments)
    return w.getvalue()


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
def test_varints_read_back(value: int) -> None:
    r = Reader(written("uvarint", value))
    assert r.uvarint() == value
    r.finish()


@pytest.mark.parametrize("form", ["string", "compact_string", "nullable_string", "compact_nullable_string"])
@given(value=st.text(max_size=300))
def test_strings_read_back(form: str, value: str) -> None:
    assert getattr(Reader(written(form, value)), form)() == value


@pytest.mark.parametrize("form", ["bytes", "compact_bytes", "nullable_bytes", "compact_nullable_bytes"])
@given(value=st.binary(max_size=300))
def test_bytes_read_back(form: str, value: bytes) -> None:
    for buffer in (value, bytearray(value), memoryview(value)):
        assert getattr(Reader(written(form, buffer)), form)() == value


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("nullable_string", b"\xff\xff"),
        ("compact_nullable_string", b"\x00"),
        ("nullable_bytes", b"\xff\xff\xff\xff"),
        ("compact_nullable_bytes", b"\x00"),
    ],
)
def test_null(method: str, data: bytes) -> None:
    assert written(method, None) == data


def test_counts_and_numbers() -> None:
    assert written("count", -1) == b"\xff\xff\xff\xff"
    assert written("compact_count", -1) == b"\x00"
    assert written("compact_count", 127) == b"\x80\x01"
    assert written("int32s", [1, -1]) == b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff\xff\xff"
    assert written("compact_int32s", [-2]) == b"\x02\xff\xff\xff\xfe"


def test_tags_are_written_in_ascending_order() -> None:
    assert written("tags", {2: b"b", 1: b"", 300: b"c"}) == b"\x03\x01\x00\x02\x01b\xac\x02\x01c"
    assert written("tags", {}) == b"\x00"


@pytest.mark.parametrize(
    ("method", "value", "complaint"),
    [
        ("string", "x" * 32768, "a string of 32768 bytes; Kafka's limit is 32767"),
        ("compact_string", "ü" * 16384, "a string of 32768 bytes"),
        ("string", "\ud800", "no UTF-8 form"),
        ("uuid", bytes(15), "a uuid of 15 bytes"),
    ],
)
def test_refuses_what_has_no_form(method: str, value: Any, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        written(method, value)


def test_repr_is_its_size() -> None:
    w = Writer()
    w.put(b"abc")
    w.uvarint(300)
    assert repr(w) == "<Writer of 5 bytes>"


def test_a_frame_hands_long_buffers_on_as_they_are() -> None:
    long, longer = bytes(20_000), memoryview(b"x" * 30_000)
    w = Writer()
    for part in (b"head", long, b"between", b"them", longer, b"end"):
        w.put(part)
    pieces = w.frame()
    assert b"".join(pieces) == len(w.getvalue()).to_bytes(4, "big") + w.getvalue()
    assert [len(piece) for piece in pieces] == [4 + 4, 20_000, 7 + 4, 30_000, 3]
    assert pieces[1] is long
    assert pieces[3] is longer


def test_a_short_frame_is_one_piece() -> None:
    w = Writer()
    w.put(b"some")
    w.put(b"thing")
    assert w.frame() == [b"\0\0\0\x09something"]
