"""JSON by a schema: the types that callers name, and what becomes of values that have others."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kadence.columns.isolation import Decoded
from kadence.reading import json_schema
from kadence.reading.json_schema import SchemaColumns, type_of


def decoded(schema: Any, *values: bytes | None) -> Decoded:
    return SchemaColumns(type_of(schema)).decode(pa.array(values, pa.binary()))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"a": float, "b": int}, pa.struct([("a", pa.float64()), ("b", pa.int64())])),
        ({"a": "double", "b": "int32"}, pa.struct([("a", pa.float64()), ("b", pa.int32())])),
        ({"a": "float64", "b": "text"}, pa.struct([("a", pa.float64()), ("b", pa.string())])),
        ({"c": "boolean", "d": bool}, pa.struct([("c", pa.bool_()), ("d", pa.bool_())])),
        ({"at": datetime, "on": date}, pa.struct([("at", pa.timestamp("us", tz="UTC")), ("on", pa.date32())])),
        ({"at": "timestamp[ms, tz=Europe/Oslo]"}, pa.struct([("at", pa.timestamp("ms", tz="Europe/Oslo"))])),
        ({"from": {"city": str}}, pa.struct([("from", pa.struct([("city", pa.string())]))])),
        ({"tags": [str]}, pa.struct([("tags", pa.list_(pa.string()))])),
        (pa.schema([pa.field("a", pa.float64(), nullable=False)]), pa.struct([("a", pa.float64())])),
        (pa.struct([("a", pa.decimal128(10, 2))]), pa.struct([("a", pa.decimal128(10, 2))])),
        (pa.float64(), pa.float64()),
        # As it was found in values.
        (pa.struct([("a", pa.null())]), pa.struct([("a", pa.string())])),
        ([int], pa.list_(pa.int64())),
        # As a table of Polars has it.
        (pa.schema([("a", pa.large_string())]), pa.struct([("a", pa.large_string())])),
    ],
)  # fmt: skip
def test_types_as_callers_name_them(given: Any, kind: pa.DataType) -> None:
    assert type_of(given) == kind


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"a": "doubble"}, "schema of a is a schema of pyarrow, or the types"),
        ("dep_delay double", "schema is a schema of pyarrow"),
        ({"a": {"b": 7}}, r"schema of a\.b is"),
        ({"a": [int, str]}, "schema of a is"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "field 'a' is named twice"),
        ({"a": pa.binary()}, "schema of a.*not read as binary"),
        ({"a": pa.uint8()}, "not read as uint8"),
        ({"a": pa.map_(pa.string(), pa.string())}, "not read as map"),
    ],
)
def test_what_is_no_type_of_json(given: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        type_of(given)


def test_an_odd_field_is_null_and_named_and_the_others_of_its_record_stay() -> None:
    made = decoded(
        {"delay": "double", "tail": str, "from": {"gate": int}},
        b'{"delay": 2, "tail": "N1", "from": {"gate": 4}, "more": [1]}',
        b'{"delay": "NA", "tail": "N2", "from": {"gate": 4.0}}',
        b'{"delay": "NA", "tail": "N3", "from": {"gate": "x"}}',
        b'{"tail": 5}',
        b"null",
        None,
        b"{",
        b"[]",
    )
    assert made.column.to_pylist() == [
        {"delay": 2.0, "tail": "N1", "from": {"gate": 4}},
        {"delay": None, "tail": "N2", "from": {"gate": 4}},
        {"delay": None, "tail": "N3", "from": {"gate": None}},
        {"delay": None, "tail": "5", "from": None},
        None,
        None,
        None,
        None,
    ]
    assert sorted(made.bad) == [1, 2, 6, 7]
    assert made.bad[1] == "field delay: a text where double is expected"
    assert made.bad[2] == "field delay: a text where double is expected, and 1 more"
    assert made.bad[6].startswith("not JSON")
    assert made.bad[7] == "the document: a list where an object is expected"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int8", "127", 127),
        ("int8", "128", None),
        ("int64", "1.5", None),
        ("int64", "true", None),
        ("int64", "1e400", None),
        ("double", "true", None),
        ("double", '"Infinity"', float("inf")),
        ("double", '"1.5"', None),
        ("double", "1" + "0" * 400, float("inf")),
        ("bool", "true", True),
        ("bool", "1", None),
        ("string", "1.5", "1.5"),
        ("string", '{"b": [1]}', '{"b":[1]}'),
        ("date32", '"2026-11-22"', date(2026, 11, 22)),
        ("date32", '"soon"', None),
        ("date32", "20260101", None),
        (
            pa.timestamp("us", tz="UTC"),
            '"2026-11-22T10:30:00+01:00"',
            datetime(2026, 11, 22, 9, 30, tzinfo=UTC),
        ),
        (pa.timestamp("ms", tz="UTC"), '"2026-11-22T10:30:00Z"', datetime(2026, 11, 22, 10, 30, tzinfo=UTC)),
        (pa.timestamp("us", tz="UTC"), '"2026-11-22T10:30:00"', None),
        (pa.timestamp("us"), '"2026-11-22T10:30:00"', datetime(2026, 11, 22, 10, 30)),  # noqa: DTZ001
        (pa.decimal128(5, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(5, 2), "12345.1", None),
        ([int], "[1, null, 3]", [1, None, 3]),
        ([int], '[1, "x"]', [1, None]),
        ([int], "1", None),
    ],
)
@pytest.mark.parametrize("compiled", [True, False])
def test_values_by_their_types(
    kind: Any, text: str, value: Any, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled reader makes the same of what it takes as the one behind it."""
    if not compiled:
        monkeypatch.setattr(json_schema, "rows_reader", lambda kind: None)
    made = decoded({"a": kind}, b'{"a": %s}' % text.encode())
    assert made.column.to_pylist() == [{"a": value}]
    is_odd = value is None or (isinstance(value, list) and "x" in text)
    assert bool(made.bad) == is_odd


def test_odd_records_alone_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def document(data: bytes) -> Any:
        read.append(data)
        return json.loads(data)

    monkeypatch.setattr(json_schema, "document_of", document)
    good, odd = b'{"delay": 1.5, "tail": "N1"}', b'{"delay": "NA", "tail": "N1"}'
    made = decoded({"delay": float, "tail": str}, *[odd if n % 50 == 0 else good for n in range(5_000)])
    assert len(made.bad) == len(read) == 100


def test_the_compiled_reader_and_the_one_behind_it_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rnd = random.Random(5)
    plain = [0, -7, 2.5, 1e300, "x", "", "NA", True, None, [], [1], {}, {"b": 1}, 2**63, "2026-01-01"]
    documents = [
        json.dumps({name: rnd.choice(plain) for name in rnd.sample("abcdef", rnd.randrange(7))}).encode()
        for _ in range(2_000)
    ]
    schema = {"a": int, "b": float, "c": str, "d": bool, "e": {"b": int}, "f": [float]}
    both = decoded(schema, *documents)
    monkeypatch.setattr(json_schema, "rows_reader", lambda kind: None)
    alone = decoded(schema, *documents)
    assert both.column.equals(alone.column)
    assert both.bad == alone.bad
    assert 0 < len(both.bad) < len(documents)
