"""JSON without a schema as a typed column: what is found in the values, and what becomes of values that do not fit."""

from __future__ import annotations

import json
import random
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from kadence.columns.isolation import Decoded
from kadence.reading import json_values
from kadence.reading.json_values import JsonColumns


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


def test_a_field_that_comes_late_and_one_that_was_null_so_far() -> None:
    columns = JsonColumns()
    early = decoded(*[b'{"a": null, "b": [], "c": {}}'] * 300, columns=columns).column
    assert early.type == pa.struct([("a", pa.null()), ("b", pa.list_(pa.null())), ("c", pa.struct([]))])
    made = decoded(
        *[b'{"a": null, "b": [], "c": {}}'] * 300,
        b'{"a": "x", "b": [true], "c": {"d": 1}, "e": 2}',
        b'{"a": true, "b": [1]}',
        columns=columns,
    )
    assert made.column.to_pylist()[299:] == [
        {"a": None, "b": [], "c": {"d": None}, "e": None},
        {"a": "x", "b": ["true"], "c": {"d": 1}, "e": 2},
        {"a": "true", "b": ["1"], "c": None, "e": None},
    ]


def test_numbers_of_a_field_that_became_a_text_are_as_they_were_written() -> None:
    columns = JsonColumns()
    decoded(b'{"a": 1.5}', b'{"a": "NA"}', columns=columns)
    texts = [b"2.50", b"-0", b"1e3", b"true", b'"x"', b"null"]
    made = decoded(*[b'{"a": %s}' % text for text in texts], columns=columns)
    assert [row["a"] for row in made.column.to_pylist()] == ["2.50", "-0", "1e3", "true", "x", None]


def test_the_last_of_fields_of_one_name_counts() -> None:
    assert decoded(b'{"a": 0}', b'{"a": 1, "a": 2}').column.to_pylist() == [{"a": 0}, {"a": 2}]


def test_names_that_only_pythons_json_reads() -> None:
    assert decoded(b'{"\\u0061": 1}', b'{"a\\"b": 2}').column.to_pylist() == [
        {"a": 1, 'a"b': None},
        {"a": None, 'a"b': 2},
    ]


@pytest.mark.parametrize(("levels", "is_good"), [(100, True), (101, False)])
def test_values_that_are_nested(levels: int, is_good: bool) -> None:
    made = decoded(b"1", b"[" * levels + b"]" * levels, b'{"a": "%s"}' % (b"[" * 1000))
    assert made.bad == ({} if is_good else {1: "nested too deeply"})


def test_most_values_are_other_than_the_first_ones() -> None:
    """Some of those are read alone, and all others as fast as if they had come first."""
    values = [b'{"a": 1}'] * 100 + [b'{"a": 1.5, "b": {"c": "x"}}'] * 1_000 + [b"{"]
    made = decoded(*values)
    assert made.column.type == pa.struct([("a", pa.float64()), ("b", pa.struct([("c", pa.string())]))])
    assert made.column.to_pylist()[99:101] == [{"a": 1.0, "b": None}, {"a": 1.5, "b": {"c": "x"}}]
    assert list(made.bad) == [1_100]


def by_chance(luck: random.Random, depth: int = 0) -> Any:
    """A value as programs write them, and now and then one that they do not."""
    kinds = ["text", "number", "whole", "bool", "null"] + ["list", "object"] * (depth < 3)
    match luck.choice(kinds):
        case "text":
            return luck.choice(["", "a", "ä", "\n", '"', "2026-01-01", "x" * 20])
        case "number":
            return luck.randrange(-2000, 2000) / 8
        case "whole":
            return luck.choice([0, -1, 7, 2**40, 2**63])
        case "bool":
            return luck.random() < 0.5
        case "null":
            return None
        case "list":
            return [by_chance(luck, depth + 1) for _ in range(luck.randrange(3))]
        case _:
            return {
                luck.choice(["a", "b", "c", "long name"]): by_chance(luck, depth + 1)
                for _ in range(luck.randrange(4))
            }


@pytest.mark.parametrize("seed", range(50))
def test_the_compiled_reader_and_pythons_make_the_same_columns(seed: int) -> None:
    """Two columns of each, one after the other. What is no text in a text may be written otherwise: 1.0 and 1."""
    luck = random.Random(seed)
    usual = [{name: by_chance(luck) for name in "abc"} for _ in range(2)]
    batches = [
        [
            luck.choice([*map(json.dumps, [*usual, usual[0], {"a": by_chance(luck)}, by_chance(luck)]), "{"])
            for _ in range(300)
        ]
        for _ in range(2)
    ]
    ours, others = JsonColumns(), JsonColumns()
    made = [decoded(*map(str.encode, batch), columns=ours) for batch in batches]
    with mock.patch.object(json_values, "rows_reader", return_value=None):
        expected = [decoded(*map(str.encode, batch), columns=others) for batch in batches]
    assert [each.bad for each in made] == [each.bad for each in expected]
    fitted, alone = (
        pa.concat_arrays([columns.fit(pa.chunked_array([each.column])).combine_chunks() for each in found])
        for columns, found in ((ours, made), (others, expected))
    )
    assert sorted_fields(fitted.type) == sorted_fields(alone.type)
    assert fitted.is_null().equals(alone.is_null())
    assert [numbers_read(each) for each in fitted.to_pylist()] == [
        numbers_read(each) for each in alone.to_pylist()
    ]


def sorted_fields(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: sorted_fields(field.type) for field in kind}
    return [sorted_fields(kind.value_type)] if pa.types.is_list(kind) else kind


def numbers_read(value: Any) -> Any:
    """Texts that are JSON as what they say."""
    match value:
        case dict():
            return {name: numbers_read(item) for name, item in value.items()}
        case list():
            return [numbers_read(item) for item in value]
        case str():
            try:
                return numbers_read(json.loads(value))
            except ValueError:
                return value
        case _:
            return value
