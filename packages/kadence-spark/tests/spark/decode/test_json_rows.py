"""The compiled JSON reader reads what it takes as the one behind it does, and it takes what records mostly are."""

from __future__ import annotations

import json
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.luck import examples
from tests.spark.decode.json_row import ROW, RULES, reader_of, without_rows

from kadence._native.json import Reader
from kadence.columns.json_rows import Column
from kadence_spark.decode.json_rows import rows_reader
from kadence_spark.decode.json_times import time_of, zone_of
from kadence_spark.decode.json_values import JsonFormat

OURS = reader_of(ROW)
OTHERS = without_rows(ROW)

_times = st.from_regex(
    r"\A(19|20|00|99)\d\d-[01]\d-[0-3]\d([T ][0-2]\d:[0-6]\d(:[0-6]\d(\.\d{1,9})?)?([zZ]|[+-][012]\d(:?[0-6]\d)?)?)?\Z"
)
_numbers = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats(allow_nan=False).map(repr),
    st.floats(width=32, allow_nan=False).map(repr),
    st.decimals(-1000, 1000, places=2).map(str),
    st.from_regex(r"\A-?[0-9]{1,21}(\.[0-9]{1,21})?([eE][+-]?[0-9]{1,3})?\Z"),
    st.sampled_from(
        ["-0", "0", "-", "01", "1.", ".5", "1e5", "NaN", "Inf", "127", "128", "-129", "9223372036854775808"]
    ),
)
_texts = st.one_of(
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=12).map(json.dumps),
    st.sampled_from(
        ['"\\ud800"', '"\\ud83d\\ude00"', '"\\/\\b\\f"', '"\\x"', '"\t"', '"\0"', '"\\u0000"', '"1.50"', '""']
    ),
)
_leaves = st.one_of(
    _numbers, _texts, _times.map(json.dumps), st.sampled_from(["null", "true", "false", "nul", "{}", "[]"])
)
_values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda members: "{" + ", ".join(f'"{name}": {item}' for name, item in members.items()) + "}"
        )
    ),
    max_leaves=6,
)
_members = st.tuples(st.sampled_from([item.name for item in ROW] + ["other", "\\u0069d"]), _values)
_documents = st.lists(_members, max_size=6).map(
    lambda members: ("{" + ",".join(f'"{name}":{value}' for name, value in members) + "}").encode(
        "utf-8", "replace"
    )
)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A document with one byte that is another one, or cut off."""
    document = bytearray(draw(_documents))
    at = draw(st.integers(0, len(document) - 1))
    if draw(st.booleans()):
        return bytes(document[:at])
    document[at] = draw(st.sampled_from(b'\0\n\x1f "\\{}[],:0e-\x80\xc3\xed\xf4\xff') | st.integers(0, 255))
    return bytes(document)


@examples(75)
@given(st.lists(_documents | _damaged(), min_size=1, max_size=20))
@example([b'{"f":1.00000017881393432617187500001}'])
@example([b'{"x":123456789012345678}', b'{"x":1e23}', b'{"x":0.1e-22}', b'{"x":4.9e-324}', b'{"x":-0}'])
@example(
    [b'{"at":"2024-02-30T00:00:00Z"}', b'{"at":"1900-02-29"}', b'{"at":253402300799}', b'{"at":253402300800}']
)
@example([b'{"inner":{"b":[{"c":"d"},null,{"c":1},{"c":[]}]}}', b'{"tags":["a"'])
@example([b'{"tags":["' + b"\xed\xa0\x80" + b'"]}', b'{"other":"\xc0\x80"}', b'{"other":"\xf4\x90\x80\x80"}'])
def test_what_it_takes_it_reads_as_the_others_do(documents: list[bytes]) -> None:
    found = OURS.read(pa.array(documents, pa.binary()))
    assert found is not None
    column, refused = found
    column.validate(full=True)
    assert column.type == ROW
    assert refused == [row for row in range(len(column)) if not column[row].is_valid]
    for row, document in enumerate(documents):
        if row not in refused:
            expected = OTHERS.decode(pa.array([document], pa.binary()))
            assert not expected.bad, (document, expected.bad)
            assert repr(column[row].as_py()) == repr(expected.column[0].as_py()), document


@pytest.mark.parametrize(
    "document",
    [
        b"{}",
        b' \n{ "id" : 1 , "x" : 2.5e3 }\t',
        '{"näme":"Ä😀","other":{"a":[1,"]}",{}]}}'.encode(),
        b'{"n\xc3\xa4me":"\\ud83d\\ude00 \\u00e4\\n\\"\\\\"}',
        b'{"n\xc3\xa4me":510,"tags":[true,null,7],"id":null}',
        b'{"x":0.30000000000000004,"f":0.1,"price":-12345678.1}',
        b'{"x":1.7976931348623157e308,"id":-9223372036854775808,"tiny":-128}',
        b'{"at":"2024-01-02T03:04:05.123456+02:00","local":"2024-01-02 03:04:05","day":"2024-02-29","ok":true}',
        b'{"at":"2024-01-02T03:04:05","tiny":-0,"x":-0}',
        b'{"at":"2024-01-02 03:04:05.1234567Z"}',
        b'{"at":1704164645,"inner":{"b":[{"c":"d"},null,{}],"a":1}}',
    ],
)
def test_it_takes_what_records_mostly_are(document: bytes) -> None:
    found = OURS.read(pa.array([document], pa.binary()))
    assert found is not None
    assert found[1] == []


def test_rows_that_it_refuses_are_read_by_the_others_and_keep_their_places() -> None:
    documents = [b'{"id":%d}' % row for row in range(500)]
    documents[7] = b'{"id":1.5}'
    documents[100] = b'{"id":7,"id":100}'
    documents[101] = b'{"at":"2024-01-02","n\xc3\xa4me":5.10}'
    documents[499] = b"no JSON"
    values = pa.array([None, *documents], pa.binary()).slice(1)
    decoded = JsonFormat(ROW, RULES).decode(values)
    expected = OTHERS.decode(values)
    assert decoded.column.equals(expected.column)
    assert decoded.bad == expected.bad
    assert list(decoded.bad) == [7, 499]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int32(),
        pa.struct([("a", pa.map_(pa.string(), pa.int32()))]),
        pa.struct([("a", pa.binary())]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.struct([('a"b', pa.int8())]),
        pa.struct([("a", pa.list_(pa.struct([("b\\", pa.int8())])))]),
    ],
)
def test_types_that_are_left_to_the_others(kind: pa.DataType) -> None:
    assert rows_reader(kind, None) is None


def test_a_name_that_begins_another_one() -> None:
    kind = pa.struct([("a", pa.int8()), ("ab", pa.int8()), ("", pa.int8())])
    found = reader_of(kind).read(pa.array([b'{"":1,"abc":9,"ab":2,"a":3}', b'{"ab":4}'], pa.binary()))
    assert found is not None
    assert found[0].to_pylist() == [{"a": 3, "ab": 2, "": 1}, {"a": None, "ab": 4, "": None}]


def test_each_day_of_a_cycle_of_leap_years() -> None:
    kind = pa.struct([pa.field("at", pa.date32())])
    days = range(date(1, 1, 1).toordinal(), date(401, 3, 1).toordinal())
    ours = rows_reader(kind, None)
    assert ours is not None
    found = ours.read(pa.array([b'{"at":"%s"}' % str(date.fromordinal(day)).encode() for day in days]))
    assert found is not None
    made, refused = found
    epoch = date(1970, 1, 1).toordinal()
    assert refused == []
    assert made.field(0).cast(pa.int32()).to_pylist() == [day - epoch for day in days]


def test_long_names_that_differ_in_one_letter() -> None:
    """Names are compared eight bytes at a time."""
    names = [
        f"{'n' * before}{letter}{'n' * after}"
        for before, after in ((9, 1), (3, 12), (8, 14))
        for letter in "abn"
    ]
    kind = pa.struct([pa.field(name, pa.int32()) for name in names])
    ours = rows_reader(kind, None)
    assert ours is not None
    document = {name: number for number, name in enumerate(names)}
    found = ours.read(pa.array([json.dumps(dict(reversed(document.items()))).encode()]))
    assert found is not None
    assert (found[0].to_pylist(), found[1]) == ([document], [])


def test_its_memory_is_used_again_and_nothing_of_the_batch_before_is_left() -> None:
    shared = reader_of(ROW)
    luck = random.Random(1)
    kept: list[tuple[pa.Array, list[Any]]] = []
    for count in (300, 1, 0, 40, 300):
        rows = [
            {"id": luck.randrange(99), "näme": "x" * luck.randrange(20), "tags": ["t"] * luck.randrange(4)}
            for _ in range(count)
        ]
        found = shared.read(
            pa.array([json.dumps(row, ensure_ascii=False).encode() for row in rows], pa.binary())
        )
        assert found is not None
        kept.append((found[0], rows))
    for column, rows in kept:
        assert [{name: row[name] for name in ("id", "näme", "tags")} for row in column.to_pylist()] == rows


def test_two_threads_with_one_format() -> None:
    """A reader that is at work leaves the second batch to the others."""
    form = JsonFormat(ROW, RULES)
    batches = [
        pa.array([b'{"id":%d,"n\xc3\xa4me":"x"}' % (row * number) for row in range(3_000)])
        for number in range(8)
    ]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(form.decode, batches * 4))
    for place, decoded in enumerate(found):
        assert decoded.bad == {}
        assert decoded.column.field("id").to_pylist() == [row * (place % 8) for row in range(3_000)]


@pytest.mark.parametrize("ends", [(0, 2, 99), (-1, 0, 2), (0, 9, 2), (0, -1, 2), (0, 2**31 - 1, 2)], ids=str)
def test_offsets_that_go_back_or_lead_outside_are_refused(ends: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="offsets go back, or lead outside of its data"):
        OURS._reader.read(struct.pack("iii", *ends), b"{}", 0, 2)


def test_a_buffer_of_offsets_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        OURS._reader.read(b"\0" * 8, b"", 0, 2)


@pytest.mark.parametrize(
    "name",
    [
        "America/New_York",
        "Europe/Dublin",
        "Africa/Casablanca",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Etc/UTC",
    ],
)
def test_times_without_a_zone_are_the_sessions(name: str) -> None:
    """Each quarter of an hour around all changes of some years, in gaps and overlaps, too."""
    zone = zone_of(name)
    kind = pa.struct([("at", pa.timestamp("us", "UTC"))])
    found = rows_reader(kind, zone)
    assert found is not None
    hours = range(17_167 * 24, 17_167 * 24 + 3 * 365 * 24, 7)
    near = [hour * 3600 + 900 * part for hour in hours for part in range(4)]
    texts = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in near]
    texts += ["1969-12-31T23:59:59", "2050-12-30T00:00:00", "2051-01-01T00:00:00", "1883-11-18T12:00:00"]
    rows = found.read(pa.array([f'{{"at":"{text}"}}'.encode() for text in texts]))
    assert rows is not None
    column, refused = rows
    taken = column.field("at").cast(pa.int64()).to_pylist()
    assert all(row in refused or taken[row] == time_of(text, zone) for row, text in enumerate(texts))
    assert set(refused) <= set(range(len(near), len(texts)))


def test_without_a_zone_it_takes_no_time_that_names_none() -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC"))])
    found = rows_reader(kind, None)
    assert found is not None
    rows = found.read(pa.array([b'{"at":"2024-01-02T03:04:05"}', b'{"at":"2024-01-02T03:04:05Z"}']))
    assert rows is not None
    assert rows[1] == [0]


def test_a_zone_whose_parts_do_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="one more than"):
        Reader(Column(b"", 9, children=(Column(b"a", 1, 8),)), b"", b"\0" * 4, keeps_all=False)
