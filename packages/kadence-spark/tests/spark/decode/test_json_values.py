"""JSON by the rules of from_json; rows never shift, and a bad record never touches its neighbours."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.luck import examples

from kadence_spark.decode.json_shapes import STRICT, Rules
from kadence_spark.decode.json_values import JsonFormat

ROW = pa.struct(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("inner", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
    ]
)
RULES = Rules(UTC)
FORMAT = JsonFormat(ROW, RULES)
GOOD = b'{"id":7}'


def decode(
    *values: bytes | None, kind: pa.DataType = ROW, rules: Rules = RULES
) -> tuple[list[Any], dict[int, str]]:
    decoded = JsonFormat(kind, rules).decode(pa.array(values, pa.binary()))
    assert decoded.column.type == kind
    return decoded.column.to_pylist(), decoded.bad


def one(document: bytes, name: str) -> Any:
    (row,), bad = decode(document)
    assert not bad
    return row[name]


_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6))
_anything = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_texts = st.text(max_size=8)
_documents = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "small": st.integers(-128, 127),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**40), 2**40),
        "name": _texts,
        "ok": st.booleans(),
        "tags": st.lists(_texts | st.none(), max_size=3),
        "inner": st.none()
        | st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.just([{"c": "d"}, None])}),
        "unknown": _anything,
    },
)
_good = (
    st.builds(
        lambda document, indent, ascii_only: json.dumps(document, indent=indent, ensure_ascii=ascii_only),
        _documents,
        st.sampled_from([None, 0, 2]),
        st.booleans(),
    )
    .filter(lambda text: "\\ud" not in text.lower())
    .map(lambda text: text.encode("utf-8", "replace"))
)
_nasty = st.sampled_from(
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"7",
        b'{"id":1}{"id":2}',
        b'{"id":1}\n{"id":2}',
        b'{"id":1},{"id":2}',
        b'{"id":1',
        b'{"inner":{"a":1}',
        b'{"tags":["}',
        b'{"name":"}',
        b'{"id":1}}',
        b"}{",
        b"{}\0",
        b'{"id":1}{"id":2}\0}',
        b'{"name":"\xff"}',
        b'{"name":"\\ud800"}',
        b'{"id":1,"id":2}',
        b'{"x":Inf}',
        b'{"x":NaN}',
        b'{"x":1e999}',
        b'{"id":1.0}',
        b'{"name":5}',
        b'{"at":"yesterday"}',
        b'\xef\xbb\xbf{"id":1}',
        b' {"id":1}\n',
        b'{"unknown":' + b"[" * 2000 + b"]" * 2000 + b"}",
        None,
    ]
)


@examples(20)
@given(
    st.lists(
        _good | _nasty | st.builds(lambda text, at: text[: at % len(text)], _good, st.integers(0)),
        max_size=40,
    )
)
@example([b'{"id":1}{"id":2}', b""])
@example([b'{"inner":{"a":1}', b'{"id":1}}', b"{}"])
def test_each_row_is_what_its_record_is_alone(values: list[bytes | None]) -> None:
    """Good ones fill the batch up, so that the compiled reader works on part of it."""
    padded = [*values, *[GOOD] * 20]
    random.Random(len(values)).shuffle(padded)
    decoded = FORMAT.decode(pa.array(padded, pa.binary()))
    assert len(decoded.column) == len(padded)
    alone = {value: FORMAT.decode(pa.array([value], pa.binary())) for value in set(padded)}
    for row, value in enumerate(padded):
        assert repr(decoded.column[row].as_py()) == repr(alone[value].column[0].as_py())
        assert (row in decoded.bad) == (0 in alone[value].bad)


@examples(25)
@given(st.lists(_good, min_size=1, max_size=30))
def test_good_documents_are_what_python_reads(values: list[bytes]) -> None:
    rows, bad = decode(*values)
    assert not bad
    for value, row in zip(values, rows, strict=True):
        document = json.loads(value)
        for name in ("id", "small", "x", "name", "ok", "tags", "inner"):
            assert row[name] == document.get(name)


@examples(25)
@given(st.lists(_documents, min_size=1, max_size=10))
def test_both_decoders_agree_on_what_the_fast_one_takes(documents: list[dict[str, Any]]) -> None:
    values = pa.array([json.dumps(document).encode() for document in documents], pa.binary())
    careful = FORMAT._careful(values)
    fast = FORMAT.decode(values)
    assert fast.column.equals(careful.column)
    assert fast.bad == careful.bad


@pytest.mark.parametrize(
    ("document", "name", "expected"),
    [
        (b'{"name":5.10}', "name", "5.1"),
        (b'{"name":1e7}', "name", "1.0E7"),
        (b'{"name":{"a":[1,"x",null,true]}}', "name", '{"a":[1,"x",null,true]}'),
        (b'{"name":false}', "name", "false"),
        (b'{"price":1.5}', "price", Decimal("1.50")),
        (b'{"price":"12345678.125"}', "price", Decimal("12345678.13")),
        (b'{"at":"2024-01-02T03:04:05Z"}', "at", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (
            b'{"at":"2024-01-02T03:04:05.123456789+02:00"}',
            "at",
            datetime(2024, 1, 2, 1, 4, 5, 123456, tzinfo=UTC),
        ),
        (b'{"at":"2024-01-02 03:04:05"}', "at", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (b'{"at":"2024-01-02"}', "at", datetime(2024, 1, 2, tzinfo=UTC)),
        (b'{"at":1704164645}', "at", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (b'{"day":"2024-01-02"}', "day", date(2024, 1, 2)),
        (b'{"day":"2024-01-02T23:00:00Z"}', "day", date(2024, 1, 2)),
        (b'{"id":1,"id":2}', "id", 2),
        (b'{"id":9223372036854775807}', "id", 2**63 - 1),
        (b'{\n  "id":\n  3\n}\n', "id", 3),
        (b'{"tags":["a",null,7]}', "tags", ["a", None, "7"]),
        (b'{"x":"Infinity"}', "x", float("inf")),
        (b'{"inner":{"b":[{"c":"d"},null,{}]}}', "inner", {"a": None, "b": [{"c": "d"}, None, {"c": None}]}),
    ],
)
def test_what_a_field_becomes(document: bytes, name: str, expected: object) -> None:
    assert one(document, name) == expected


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{", "not JSON: it ends too early, near character 1"),
        (b'{"id":tru}', "not JSON: an unknown word, near character 9"),
        (b"[1]", "the document: a list where struct<"),
        (b"null", "the document is null"),
        (b'{"id":"5"}', "field id: a text where int64 is expected"),
        (b'{"id":""}', "field id: an empty text where int64 is expected"),
        (b'{"id":1.5}', "field id: a number where int64 is expected"),
        (b'{"small":256}', "field small: a number out of the range of int8"),
        (b'{"id":9223372036854775808}', "field id: a number out of the range of int64"),
        (b'{"inner":{"a":true}}', "field inner.a: true where int32 is expected"),
        (b'{"tags":{}}', "field tags: an object where list<"),
        (b'{"at":"yesterday"}', "field at: a text that is no time"),
        (b'{"price":123456789}', "field price: more digits than decimal(10, 2) has"),
    ],
)
def test_a_bad_record_has_nulls_and_says_why(document: bytes, reason: str) -> None:
    rows, bad = decode(GOOD, document, GOOD)
    assert rows[1] is not None
    assert rows[1]["id"] is None
    assert rows[0] == rows[2]
    assert rows[0]["id"] == 7
    assert list(bad) == [1]
    assert bad[1].startswith(reason)


def test_what_is_good_of_a_bad_record_is_kept() -> None:
    rows, bad = decode(b'{"id":1,"x":"two","name":"kept","inner":{"a":"one","b":[{"c":"kept"}]}}')
    assert rows[0]["id"] == 1
    assert rows[0]["x"] is None
    assert rows[0]["name"] == "kept"
    assert rows[0]["inner"] == {"a": None, "b": [{"c": "kept"}]}
    assert bad == {0: "field x: a text where double is expected"}


def test_nothing_is_null_and_no_error() -> None:
    assert decode(None, b"", b" \n") == ([None, None, None], {})


def test_a_time_without_zone_is_refused_where_the_zone_is_not_known() -> None:
    rows, bad = decode(
        b'{"at":"2024-01-02T03:04:05","id":1}', b'{"at":"2024-01-02T03:04:05Z"}', rules=Rules(None)
    )
    assert [row["at"] for row in rows] == [None, datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)]
    assert rows[0]["id"] == 1
    assert bad == {
        0: "field at: a time without a time zone, and the session's zone is not known here; the option timeZone says it"
    }


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b'{"id":1} {"id":2}',
        b'{"id":1}x',
        b"{'id':1}",
        b'{"x":NaN}',
        b'{"x":"NaN"}',
        b'{"name":"\xff"}',
        b'{"id":1,"at":"2024-01-02T03:04:05"}',
        b'{"id":1,"small":200}',
        b'{"id":1,"name":"kept","x":"bad"}',
    ],
)
def test_strict_json_is_good_or_bad_as_a_whole(document: bytes) -> None:
    rows, bad = decode(b'{"id":1,"at":"2024-01-02T03:04:05Z"} ', document, GOOD, rules=STRICT)
    assert list(bad) == [1]
    assert [row and row["id"] for row in rows] == [1, None, 7]


def test_documents_that_are_no_objects() -> None:
    assert decode(b"5", None, b'"x"', kind=pa.int32())[0] == [5, None, None]
    rows, bad = decode(b'{"a":1,"b":null}', b"[]", kind=pa.map_(pa.string(), pa.int64()))
    assert rows == [[("a", 1), ("b", None)], None]
    assert list(bad) == [1]
    assert decode(b"[1,2]", b"[]", kind=pa.list_(pa.field("element", pa.int32())))[0] == [[1, 2], []]


def test_bytes_are_base64() -> None:
    kind = pa.struct([("b", pa.binary())])
    assert decode(b'{"b":"aGk="}', b'{"b":"?"}', kind=kind)[0] == [{"b": b"hi"}, {"b": None}]
