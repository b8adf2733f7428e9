"""Primitives from bytes: every form, both ends of every range, and every way to be cut short or lied to."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.wire import ZERO_UUID, Reader, WireError, Writer
from kadence.wire.reader import BoundedReader


@pytest.mark.parametrize(
    ("method", "data", "value"),
    [
        ("bool", b"\x00", False),
        ("bool", b"\x02", True),
        ("int8", b"\x80", -128),
        ("int16", b"\x7f\xff", 32767),
        ("uint16", b"\xff\xff", 65535),
        ("int32", b"\x80\x00\x00\x00", -(2**31)),
        ("uint32", b"\xff\xff\xff\xff", 2**32 - 1),
        ("int64", b"\x80" + bytes(7), -(2**63)),
        ("float64", b"\x3f\xf8" + bytes(6), 1.5),
        ("uuid", bytes(16), ZERO_UUID),
        ("uvarint", b"\x7f", 127),
        ("uvarint", b"\x80\x01", 128),
        ("uvarint", b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        ("string", b"\x00\x02\xc3\xbc", "ü"),
        ("compact_string", b"\x03\xc3\xbc", "ü"),
        ("nullable_string", b"\xff\xff", None),
        ("nullable_string", b"\x00\x00", ""),
        ("compact_nullable_string", b"\x00", None),
        ("compact_nullable_string", b"\x01", ""),
        ("bytes", b"\x00\x00\x00\x01\xff", b"\xff"),
        ("compact_bytes", b"\x02\xff", b"\xff"),
        ("nullable_bytes", b"\xff\xff\xff\xff", None),
        ("nullable_bytes", bytes(4), b""),
        ("compact_nullable_bytes", b"\x00", None),
        ("compact_nullable_bytes", b"\x01", b""),
        ("records", b"\xff\xff\xff\xff", None),
        ("records", b"\x00\x00\x00\x01\xff", b"\xff"),
        ("compact_records", b"\x00", None),
        ("compact_records", b"\x02\xff", b"\xff"),
        ("count", b"\x00\x00\x00\x00", 0),
        ("nullable_count", b"\xff\xff\xff\xff", -1),
        ("compact_count", b"\x01", 0),
        ("compact_nullable_count", b"\x00", -1),
    ],
)
def test_reads_the_value_and_nothing_more(method: str, data: bytes, value: Any) -> None:
    r = Reader(b"junk" + data + b"rest", 4)
    assert getattr(r, method)() == value
    assert r.pos == 4 + len(data)
    assert r.remaining == 4
    for size in range(len(data)):
        with pytest.raises(WireError):
            getattr(Reader(data[:size]), method)()


@pytest.mark.parametrize(
    ("method", "data", "complaint"),
    [
        ("string", b"\xff\xff", "null string"),
        ("compact_string", b"\x00", "null string"),
        ("bytes", b"\xff\xff\xff\xff", "null bytes"),
        ("compact_bytes", b"\x00", "null bytes"),
        ("count", b"\xff\xff\xff\xff", "null array"),
        ("compact_count", b"\x00", "null array"),
        ("string", b"\xff\xfe", "negative length -2"),
        ("nullable_string", b"\x80\x00", "negative length"),
        ("nullable_bytes", b"\x80\x00\x00\x00", "negative length"),
        ("records", b"\x80\x00\x00\x00", "negative length"),
        ("nullable_count", b"\x80\x00\x00\x00", "negative length"),
        ("string", b"\x00\x01\xff", "not UTF-8"),
        ("string", b"\x00\x03\xed\xa0\x80", "not UTF-8"),
        ("string", b"\x00\x05abc", "a string of 5 bytes wanted"),
        ("compact_string", b"\x81\x80\x02" + b"x" * 32768, "a string of 32768 bytes"),
        ("bytes", b"\x7f\xff\xff\xffabc", "2147483647 bytes wanted"),
        ("records", b"\x7f\xff\xff\xffabc", "2147483647 bytes of records wanted"),
        ("count", b"\x7f\xff\xff\xffabc", "an array of 2147483647 elements in 3 bytes"),
        ("compact_count", b"\xff\xff\xff\xff\x0fabc", "an array of 4294967294 elements in 3 bytes"),
        ("uvarint", b"\xff\xff\xff\xff\xff\x01", "more than five bytes"),
        ("uvarint", b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
        ("uvarint", b"\x80", "truncated: a varint wanted at byte 0 of 1"),
        ("uuid", bytes(15), "truncated: 16 bytes wanted at byte 0 of 15"),
    ],
)
def test_says_what_is_wrong(method: str, data: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        getattr(Reader(data), method)()


@pytest.mark.parametrize("reader", [Reader, lambda data: BoundedReader(data, most=10_000_000)])
@pytest.mark.parametrize(
    "form", ["count", "nullable_count", "compact_count", "compact_nullable_count", "int32s"]
)
def test_an_array_has_as_many_elements_as_kafka_lets_it_have(form: str, reader: Any) -> None:
    """However many bytes there are: each element of an answer may cost much more memory than it has bytes."""

    def length(count: int) -> bytes:
        w = Writer()
        w.compact_count(count) if "compact" in form else w.count(count)
        return w.getvalue()

    room = bytes(4_000_004)
    most = getattr(reader(length(1_000_000) + room), form)()
    assert (len(most) if form == "int32s" else most) == 1_000_000
    with pytest.raises(WireError, match=r"an array of 1000001 elements at byte [34]: 1000000 is the most"):
        getattr(reader(length(1_000_001) + room), form)()


@pytest.mark.parametrize("method", ["tag_count", "unknown_tags"])
def test_a_struct_has_as_many_tagged_fields_as_kafka_lets_it_have(method: str) -> None:
    def tags(count: int) -> bytes:
        w = Writer()
        w.uvarint(count)
        for tag in range(count):
            w.uvarint(tag)
            w.uvarint(0)
        return w.getvalue()

    found = getattr(Reader(tags(10_000)), method)()
    assert (len(found) if method == "unknown_tags" else found) == 10_000
    with pytest.raises(WireError, match="10001 tagged fields at byte 0: 10000 is the most"):
        getattr(Reader(tags(10_001)), method)()


def test_runs_of_fields_come_in_one_step() -> None:
    layout = Struct(">hiq")
    r = Reader(layout.pack(-1, 2, -3) + b"\x09")
    assert r.unpack(layout) == (-1, 2, -3)
    assert repr(r) == "<Reader at 14 of 15>"
    with pytest.raises(WireError, match="14 bytes wanted at byte 14 of 15"):
        r.unpack(layout)
    with pytest.raises(WireError, match="1 bytes after the end of the message at byte 14"):
        r.finish()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 200])
@pytest.mark.parametrize("form", ["int32s", "compact_int32s", "nullable_int32s", "compact_nullable_int32s"])
def test_arrays_of_int32_come_in_one_step(form: str, count: int) -> None:
    values = [(-1) ** i * i for i in range(count)]
    w = Writer()
    getattr(w, form)(values)
    r = Reader(w.getvalue() + b"x")
    assert getattr(r, form)() == values
    assert r.remaining == 1
    for size in range(len(w.getvalue())):
        with pytest.raises(WireError):
            getattr(Reader(w.getvalue()[:size]), form)()


@pytest.mark.parametrize(
    ("form", "data"), [("nullable_int32s", b"\xff\xff\xff\xff"), ("compact_nullable_int32s", b"\0")]
)
def test_null_arrays_of_int32(form: str, data: bytes) -> None:
    w = Writer()
    getattr(w, form)(None)
    assert w.getvalue() == data
    assert getattr(Reader(data), form)() is None
    with pytest.raises(WireError, match="null array"):
        getattr(Reader(data), form.replace("nullable_", ""))()


def test_tagged_fields() -> None:
    w = Writer()
    w.tags({3: b"abc", 1: b"", 200: b"x" * 200})
    r = Reader(w.getvalue())
    assert r.unknown_tags() == {1: b"", 3: b"abc", 200: b"x" * 200}
    r.finish()
    assert Reader(b"\x00").unknown_tags() == {}


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05abcd", b"\xff\xff\xff\xff\x0f\x00\x00"]
)
def test_tagged_fields_cut_short(data: bytes) -> None:
    with pytest.raises(WireError):
        Reader(data).unknown_tags()


Read = Callable[[Reader], object]
READS: list[Read] = [
    Reader.bool,
    Reader.int16,
    Reader.int64,
    Reader.uuid,
    Reader.uvarint,
    Reader.string,
    Reader.compact_string,
    Reader.nullable_string,
    Reader.compact_nullable_string,
    Reader.bytes,
    Reader.compact_nullable_bytes,
    Reader.records,
    Reader.compact_records,
    Reader.count,
    Reader.compact_int32s,
    Reader.nullable_int32s,
    Reader.compact_nullable_count,
    Reader.unknown_tags,
]


@given(st.binary(max_size=64), st.lists(st.sampled_from(READS), max_size=20))
def test_any_reads_of_any_bytes_end_well_or_raise_wire_errors(data: bytes, reads: list[Read]) -> None:
    r = Reader(data)
    for read in reads:
        try:
            read(r)
        except WireError:
            return
        assert 0 <= r.pos <= len(data)
