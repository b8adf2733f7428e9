"""JSON without a schema as a typed column: what is found in the values, and what becomes of values that do not fit."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kadence.reading.json_values import JsonColumns
from kadence.registry.columns.isolation import Decoded


def decoded(*values: bytes | None, columns: JsonColumns | None = None) -> Decoded:
    return (columns or JsonColumns()).decode(pa.array(values, pa.binary()))


def test_fields_of_all_values_and_nulls() -> None:
    made = decoded(b'{"a": 1}', None, b'{"b": {"c": [1, 2.5]}}', b"null", b'{\n "a": null}')
    assert not made.bad
    inner = pa.struct([("c", pa.list_(pa.float64()))])
    assert made.column.type == pa.struct([("a", pa.int64()), ("b", inner)])
    assert made.column.to_pylist() == [
        {"a": 1, "b": None},
        None,
        {"a": None, "b": {"c": [1.0, 2.5]}},
        None,
        {"a": None, "b": None},
    ]


def test_documents_that_are_no_objects() -> None:
    assert decoded(b"1", b"2.5").column.to_pylist() == [1.0, 2.5]
    assert decoded(b'"a"', b'"\\u00e4"').column.to_pylist() == ["a", "ä"]
    assert decoded(b"[1]", b"[]").column.to_pylist() == [[1], []]
    assert decoded(b"true").column.type == pa.bool_()


@pytest.mark.parametrize("order", [1, -1])
def test_texts_that_look_like_times_stay_texts(order: int) -> None:
    texts = ["2026-01-01T00:00:00Z", "never"]
    columns = JsonColumns()
    for text in texts[::order]:
        made = decoded(json.dumps({"at": text, "in": [text]}).encode(), columns=columns)
        assert made.column.to_pylist() == [{"at": text, "in": [text]}]


def test_bad_values_are_null_and_named_and_their_neighbours_are_not() -> None:
    values = [
        b'{"a": 1}',
        b"{",
        b"",
        b'{"a": "\xff"}',
        b'{"a": 2} {"a": 3}',
        b'1, "w": 2',
        b'1}\n{"v": 2',
        b'"\\ud800"',
        b"[" * 200_000 + b"]" * 200_000,
        b"nul",
        b'{"a": 4}',
    ]
    made = decoded(*values)
    assert made.column.to_pylist() == [{"a": 1}, *[None] * 9, {"a": 4}]
    assert sorted(made.bad) == list(range(1, 10))
    assert made.bad[1].startswith("not JSON: ")
    assert made.bad[3] == "not UTF-8: byte 7"
    assert made.bad[8] == "nested too deeply"


def test_types_that_do_not_go_together_become_texts() -> None:
    made = decoded(b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": [1, null]}}', b'{"a": true}')
    assert not made.bad
    assert [row["a"] for row in made.column.to_pylist()] == ["1", "x", '{"b":[1,null]}', "true"]
    assert [row["a"] for row in decoded(b'{"a": [1]}', b'{"a": 2}').column.to_pylist()] == ["[1]", "2"]


def test_later_columns_have_the_fields_of_earlier_ones_and_earlier_ones_can_be_fitted() -> None:
    columns = JsonColumns()
    documents = [{"a": 1}, {"a": 1.5}, {"b": [{}]}, {"b": [{"c": "x"}]}, {"a": "y"}, {"a": {"n": 1}}]
    made = [
        pa.chunked_array([decoded(json.dumps(each).encode(), columns=columns).column]) for each in documents
    ]
    assert [each.type.field("a").type for each in made] == [
        pa.int64(),
        *[pa.float64()] * 3,
        *[pa.string()] * 2,
    ]
    fitted = [columns.fit(each) for each in made]
    assert {each.type for each in fitted} == {
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    }
    rows = [row for each in fitted for row in each.to_pylist()]
    assert [row["a"] for row in rows] == ["1", "1.5", None, None, "y", '{"n":1}']
    assert [row["b"] for row in rows] == [None, None, [{"c": None}], [{"c": "x"}], None, None]


def test_large_numbers() -> None:
    made = decoded(b'{"a": 12345678901234567890}', b'{"a": "x"}', b'{"a": 1}')
    assert made.column.to_pylist()[0] == {"a": "12345678901234567890"}
    assert decoded(b"12345678901234567890", b"1").column.to_pylist() == [12345678901234567890.0, 1.0]
    assert decoded(b"1e400", b"1" * 400).column.to_pylist() == [float("inf"), float("inf")]


def test_no_values() -> None:
    columns = JsonColumns()
    assert decoded(columns=columns).column.type == pa.null()
    decoded(b'{"a": 1}', columns=columns)
    assert decoded(columns=columns).column.type == pa.struct([("a", pa.int64())])
    assert decoded(None, columns=columns).column.to_pylist() == [None]
