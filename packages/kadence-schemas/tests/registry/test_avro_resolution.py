"""What data of one Avro schema is when it is read as another: by the underlying types, then the reader's logical types.

Each expected value is what Avro for Java gives for the same bytes and schemas with its logical conversions on, as
``tests/spark/decode/test_avro_java.py`` checks. Columns and records have one answer.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence.errors import ConfigError
from kadence_schemas.avro_schemas import EXACT, Resolution, parsed, with_default_values
from kadence_schemas.columns import avro
from kadence_schemas.columns.avro import AvroFormat
from kadence_schemas.columns.avro_types import arrow_of
from kadence_schemas.schemas import ResolvedSchema

MILLIS, MICROS = (
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
)
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
THEN = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
THEN_MS = 1_700_000_000_123
EPOCH = date(1970, 1, 1)


def decimal(precision: Any, scale: Any = None, kind: Any = "bytes") -> dict[str, Any]:
    made = {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": "decimal"}
    return (
        made
        | ({} if precision is None else {"precision": precision})
        | ({} if scale is None else {"scale": scale})
    )


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def record(kind: Any, *more: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "v", "type": kind}, *more]}


def resolved(schema: Any) -> ResolvedSchema:
    return ResolvedSchema("AVRO", json.dumps(schema))


def plain(schema: Any) -> Any:
    """Without logical types: what is written is said as numbers and bytes."""
    if isinstance(schema, dict):
        return {
            name: plain(item)
            for name, item in schema.items()
            if name not in ("logicalType", "precision", "scale", "default")
        }
    return [plain(each) for each in schema] if isinstance(schema, list) else schema


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, plain(schema), value)
    return out.getvalue()


def as_record(writer: Any, reader: Any, data: bytes) -> Any:
    ours = None if reader is None else parsed(resolved(reader))
    return Resolution(parsed(resolved(writer), is_writer=True), ours).one(io.BytesIO(data))


def as_columns(writer: Any, reader: Any, data: bytes) -> Any:
    theirs = avro.parsed(resolved(writer), is_writer=True)
    ours = None if reader is None else avro.parsed(resolved(reader))
    made = AvroFormat(theirs, ours, arrow_of(theirs if ours is None else ours))
    # Alone, and as one of many, which another library may decode.
    for times in (1, 100):
        decoded = made.decode(pa.array([data] * times, pa.binary()))
        assert not decoded.bad
        found = decoded.column.to_pylist()
        assert found == found[:1] * times
    return found[0]


def shortly(each: Any) -> str:
    return re.sub(r"[\"' {}]|type:|logicalType:", "", str(each))[:40]


BOTH = [as_record, as_columns]
Read = Callable[[Any, Any, bytes], Any]


FIELDS: list[tuple[Any, Any, Any, Any]] = [
    # Nothing is there that does not fit.
    ({"type": "array", "items": "string"}, [], {"type": "array", "items": "int"}, []),
    ({"type": "array", "items": fixed(1, "F")}, [], ["null", {"type": "array", "items": fixed(2, "G")}], []),
    # A field gains a logical type.
    ("long", THEN_MS, MILLIS, THEN),
    ("long", THEN_MS * 1_000, MICROS, THEN),
    ("long", THEN_MS, LOCAL, THEN.replace(tzinfo=None)),
    ("int", 5, MILLIS, datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)),
    ("int", 3, DATE, date(1970, 1, 4)),
    ("bytes", b"\x01\x00", decimal(6, 2), Decimal("2.56")),
    ("string", "\x01\x00", decimal(6, 2), Decimal("2.56")),
    (fixed(2), b"\x01\x00", decimal(4, 2, fixed(2)), Decimal("2.56")),
    (["null", "long"], THEN_MS, ["null", MILLIS], THEN),
    (["null", "long"], None, ["null", MILLIS], None),
    ("long", THEN_MS, ["null", MILLIS], THEN),
    (["long", "null"], THEN_MS, ["null", MILLIS], THEN),
    # It loses one.
    (MILLIS, THEN_MS, "long", THEN_MS),
    (MICROS, 5, "long", 5),
    (LOCAL, 5, "long", 5),
    (DATE, 5, "int", 5),
    (DATE, 5, "long", 5),
    (DATE, 5, "double", 5.0),
    (decimal(6, 2), b"\x01\x00", "bytes", b"\x01\x00"),
    (decimal(4, 2, fixed(2)), b"\x01\x00", fixed(2), b"\x01\x00"),
    (["null", MILLIS], THEN_MS, ["null", "long"], THEN_MS),
    (["null", decimal(6, 2)], b"\x01\x00", ["null", "bytes"], b"\x01\x00"),
    # It has another one: the number counts, and its unit is the reader's.
    (MILLIS, 5, MICROS, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
    (DATE, 5, MILLIS, datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)),
    (decimal(6, 2), b"\x01\x00", decimal(6, 3), Decimal("0.256")),
    (decimal(6, 2), b"\x01\x00", decimal(4, 0), Decimal(256)),
    # It stands on what it cannot stand on, and is none.
    ({"type": "int", "logicalType": "timestamp-millis"}, 1_700_000_000, None, 1_700_000_000),
    ({"type": "long", "logicalType": "date"}, 5, None, 5),
    ({"type": "string", "logicalType": "date"}, "2024-01-01", None, "2024-01-01"),
    ({"type": "string", "logicalType": "timestamp-millis"}, "x", None, "x"),
    (decimal(9, 2, "long"), 5, None, 5),
    (decimal(9, 2, "double"), 2.5, None, 2.5),
    (decimal(9, 2, "string"), "2.5", None, "2.5"),
    (decimal(None, 2), b"\x05", None, b"\x05"),
    (decimal(2, 4), b"\x05", None, b"\x05"),
    (decimal("9", 2), b"\x05", None, b"\x05"),
    (decimal(9, -1), b"\x05", None, b"\x05"),
    (decimal(0), b"\x05", None, b"\x05"),
    (decimal(9, 2, fixed(2)), b"\x00\x05", None, b"\x00\x05"),
    # Unions of one type, and a record of another name, also inside.
    (["string"], "a", None, "a"),
    (["int"], 5, None, 5),
    (["float"], 0.5, None, 0.5),
    (["null"], None, None, None),
    ([MILLIS], THEN_MS, None, THEN),
    ([record("int", name="Inner")], {"v": 5}, None, {"v": 5}),
    (record("int", name="topLevelRecord"), {"v": 5}, record("long", name="Inner"), {"v": 5}),
    (record(DATE, name="a.One"), {"v": 5}, record(DATE, name="b.Other"), {"v": date(1970, 1, 6)}),
    # A decimal with more digits than its precision is not rounded.
    (decimal(64, 2), (123_456).to_bytes(3, "big"), None, Decimal("1234.56")),
    (decimal(64, 2), (10**60).to_bytes(26, "big"), None, Decimal(10**60).scaleb(-2)),
]


@pytest.mark.parametrize("read", BOTH)
@pytest.mark.parametrize(("writer", "value", "reader", "java"), FIELDS, ids=shortly)
def test_a_field(read: Read, writer: Any, value: Any, reader: Any, java: Any) -> None:
    ours = None if reader is None else record(reader)
    found = read(record(writer), ours, written(record(writer), {"v": value}))["v"]
    assert found == java
    assert type(found) is type(java)


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (MILLIS, THEN_MS, THEN),
    (MICROS, 5, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
    (LOCAL, THEN_MS, THEN.replace(tzinfo=None)),
    (DATE, 5, date(1970, 1, 6)),
    (record(MILLIS, name="I"), {"v": THEN_MS}, {"v": THEN}),
    (
        record("int", {"name": "more", "type": DATE, "default": 1}, name="I"),
        {"v": 1},
        {"v": 1, "more": date(1970, 1, 2)},
    ),
    ("bytes", "\u00ff", b"\xff"),
    (fixed(2), "\u0001\u00fe", b"\x01\xfe"),
    (decimal(4, 2), "\u0001", Decimal("0.01")),
    (decimal(4, 2, fixed(2)), "\u0000\u0001", Decimal("0.01")),
    ({"type": "array", "items": decimal(4, 2)}, ["\u0001"], [Decimal("0.01")]),
    ({"type": "array", "items": MILLIS}, [THEN_MS], [THEN]),
    (["null", MILLIS], None, None),
    ([MILLIS, "null"], THEN_MS, THEN),
    (["bytes", "null"], "\u00ff", b"\xff"),
    ("double", 1, 1.0),
    ("string", "é", "é"),
]


@pytest.mark.parametrize("read", BOTH)
@pytest.mark.parametrize(("kind", "default", "java"), DEFAULTS, ids=shortly)
def test_a_default_that_fills_in_a_field(read: Read, kind: Any, default: Any, java: Any) -> None:
    reader = record("int", {"name": "more", "type": kind, "default": default})
    found = read(record("int"), reader, written(record("int"), {"v": 5}))
    assert found == {"v": 5, "more": java}
    assert type(found["more"]) is type(java)


def test_times_of_day_and_uuids_are_pythons_in_records_and_plain_in_columns() -> None:
    """Arrow's and Spark's types for these came late; docs/schemas.md names both."""
    kinds: list[tuple[Any, Any, Any]] = [
        ({"type": "int", "logicalType": "time-millis"}, 5, time(0, 0, 0, 5_000)),
        ({"type": "long", "logicalType": "time-micros"}, 5, time(0, 0, 0, 5)),
        ({"type": "string", "logicalType": "uuid"}, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
    ]
    for kind, value, as_python in kinds:
        data = written(record(kind), {"v": value})
        assert as_record(record(kind), None, data) == {"v": as_python}
        assert as_columns(record(kind), None, data) == {"v": value}
        assert as_record(record(plain(kind)["type"]), record(kind), data) == {"v": as_python}


@pytest.mark.parametrize("micros", [9_223_371_331_200_000_000, -(2**62), 253_402_300_800_000_000])
def test_times_beyond_pythons_years_are_read_into_columns(micros: int) -> None:
    """PostgreSQL's infinity, as JDBC has it."""
    schema = record(MICROS)
    made = AvroFormat(avro.parsed(resolved(schema)), None, arrow_of(avro.parsed(resolved(schema))))
    for times in (1, 100):
        decoded = made.decode(pa.array([written(schema, {"v": micros})] * times, pa.binary()))
        assert not decoded.bad
        assert decoded.column.field("v").cast(pa.int64()).to_pylist() == [micros] * times
    with pytest.raises(OverflowError):
        as_record(schema, None, written(schema, {"v": micros}))


def test_a_time_of_milliseconds_that_microseconds_cannot_hold_is_bad() -> None:
    made = AvroFormat(
        avro.parsed(resolved(record(MILLIS))), None, arrow_of(avro.parsed(resolved(record(MILLIS))))
    )
    decoded = made.decode(pa.array([written(record(MILLIS), {"v": 2**62})], pa.binary()))
    assert "does not fit" in decoded.bad[0]


def test_a_decimal_beyond_arrows_digits_is_told_by_its_field() -> None:
    with pytest.raises(ConfigError, match="field v is a decimal of 77 digits; a column has at most 76"):
        arrow_of(avro.parsed(resolved(record(decimal(77, 2)))))
    assert arrow_of(avro.parsed(resolved(record(decimal(76, 2))))).field("v").type == pa.decimal256(76, 2)


@pytest.mark.parametrize("read", BOTH)
@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("long", 0.0, 5),
        ("string", None, "a"),
        ("int", "0", 5),
        ("boolean", "false", True),
        ({"type": "array", "items": "int"}, None, [1]),
    ],
)
def test_an_invalid_default_of_the_writer_plays_no_part(
    read: Read, kind: Any, default: Any, value: Any
) -> None:
    """Old registries took such schemas; Java checks the defaults of new ones alone."""
    writer = record(kind)
    writer["fields"][0]["default"] = default
    data = written(record(kind), {"v": value})
    assert read(writer, None, data) == {"v": value}
    assert read(writer, record(kind), data) == {"v": value}
    with pytest.raises(ConfigError, match="not an Avro schema"):
        parsed(resolved(writer))


@pytest.mark.parametrize("read", BOTH)
def test_one_type_that_is_read_as_two(read: Read) -> None:
    """The writer's record stands in two fields, and the reader's schema has a type of its own for each."""
    inner = record("long", name="I")
    two = {"name": "other", "type": "I"}
    writer = {"type": "record", "name": "R", "fields": [{"name": "one", "type": inner}, two]}
    reader = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "one", "type": record(MILLIS, name="I")},
            {"name": "other", "type": {**record("long", name="x.I")}},
        ],
    }
    data = written(writer, {"one": {"v": THEN_MS}, "other": {"v": 5}})
    assert read(writer, reader, data) == {"one": {"v": THEN}, "other": {"v": 5}}


@pytest.mark.parametrize("read", BOTH)
def test_names_of_fields_that_changed(read: Read) -> None:
    reader = {"type": "record", "name": "R", "fields": [{"name": "at", "aliases": ["v"], "type": MILLIS}]}
    assert read(record("long"), reader, written(record("long"), {"v": THEN_MS})) == {"at": THEN}


@pytest.mark.parametrize("read", BOTH)
@pytest.mark.parametrize(
    ("names", "reader", "expected"),
    [
        (["cents"], [("amount", ["cents"])], {"amount": 1}),
        (["cents", "amount"], [("amount", ["cents"])], {"amount": 2}),
        (["amount", "cents"], [("amount", ["cents"])], {"amount": 1}),
        (["amount"], [("amount", ["cents"])], {"amount": 1}),
        # Of several aliases the first one counts.
        (["b", "a"], [("amount", ["a", "b"])], {"amount": 2}),
        # A field that has its own name in the data is no other one's.
        (["cents"], [("amount", ["cents"]), ("cents", [])], {"amount": 7, "cents": 1}),
    ],
)
def test_a_fields_own_name_goes_before_its_aliases(
    read: Read, names: list[str], reader: list[tuple[str, list[str]]], expected: dict[str, int]
) -> None:
    """Java refuses two fields that claim one name, and lets an alias take the field of another name.

    fastavro reads the one that comes first, or fails.
    """
    writer = of("R", *((name, "long") for name in names))
    ours = of("R", *((name, "long", {"aliases": aliases, "default": 7}) for name, aliases in reader))
    data = written(writer, {name: place for place, name in enumerate(names, 1)})
    assert read(writer, ours, data) == expected


def test_a_types_own_name_goes_before_an_alias() -> None:
    """Java takes the alias, wherever it stands."""
    symbols = {"type": "enum", "symbols": ["A", "B"]}
    by_alias = {**symbols, "name": "Other", "aliases": ["Mine"], "symbols": ["B"], "default": "B"}
    for union in ([by_alias, {**symbols, "name": "Mine"}], [{**symbols, "name": "Mine"}, by_alias]):
        theirs = record({**symbols, "name": "Mine"})
        assert as_record(theirs, record(union), written(theirs, {"v": "A"})) == {"v": "A"}
    first = of("First", ("z", "int", FILLED), aliases=["Number"])
    found = as_record(record(NUMBER), record([first, NUMBER]), written(record(NUMBER), {"v": {"x": 5}}))
    assert found == {"v": {"x": 5}}


def test_a_record_inside_itself() -> None:
    tree = record(MILLIS, {"name": "next", "type": ["null", "R"]})
    value = {"v": 1, "next": {"v": 2, "next": None}}
    was = plain(tree)
    moment = datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)
    later = moment.replace(microsecond=2_000)
    assert as_record(was, tree, written(was, value)) == {"v": moment, "next": {"v": later, "next": None}}


def test_a_field_of_the_writer_in_no_namespace_inside_one() -> None:
    inner = {**record("long", name="I"), "namespace": ""}
    writer = {"type": "record", "name": "R", "namespace": "ns", "fields": [{"name": "one", "type": inner}]}
    assert as_record(writer, writer, written(writer, {"one": {"v": 5}})) == {"one": {"v": 5}}


def test_the_name_of_a_record_in_a_union() -> None:
    writer = record(["null", record("long", name="ns.I")])
    data = written(writer, {"v": {"v": 5}})
    known = parsed(resolved(writer), is_writer=True)
    found = Resolution(known, None, with_names=True).one(io.BytesIO(data))
    assert found == {"v": ("ns.I", {"v": 5})}


def of(name: str, *fields: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """A record of some fields: name, type, and what else is said of it."""
    made = [{"name": each, "type": kind, **(said[0] if said else {})} for each, kind, *said in fields]
    return {"type": "record", "name": name, "fields": made, **more}


NUMBER, TEXT = of("Number", ("x", "int")), of("Text", ("y", "string"))
FILLED = {"default": 3}
REFUSED = object()

UNIONS: list[tuple[str, Any, Any, Any, Any]] = [
    (
        "by its fields",
        [NUMBER, TEXT],
        ("Number", {"x": 5}),
        [of("P", ("y", "string")), of("Q", ("x", "long"))],
        {"x": 5},
    ),
    (
        "the first that fits",
        NUMBER,
        {"x": 5},
        ["null", of("P", ("x", "long")), of("Q", ("x", "int"))],
        {"x": 5},
    ),
    (
        "a default is a field",
        NUMBER,
        {"x": 5},
        [of("P", ("z", "int", FILLED)), of("Q", ("x", "int"))],
        {"z": 3},
    ),
    (
        "its name before its fields",
        NUMBER,
        {"x": 5},
        [of("P", ("x", "int")), of("Number", ("z", "int", FILLED))],
        {"z": 3},
    ),
    (
        "its alias before its fields",
        NUMBER,
        {"x": 5},
        [of("P", ("x", "int")), of("Q", ("z", "int", FILLED), aliases=["Number"])],
        {"z": 3},
    ),
    ("a text before bytes", ["null", "string"], "é", ["null", "bytes", "string"], "é"),
    ("bytes before a text", "bytes", b"a", ["string", "bytes"], b"a"),
    ("a text as bytes", "string", "é", ["null", "bytes"], "é".encode()),
    (
        "texts in a map",
        {"type": "map", "values": "string"},
        {"k": "a"},
        {"type": "map", "values": ["bytes", "string"]},
        {"k": "a"},
    ),
    ("none fits", NUMBER, {"x": 5}, ["null", of("P", ("z", "int"))], REFUSED),
    ("another type", NUMBER, {"x": 5}, ["null", of("P", ("x", "string"))], REFUSED),
    ("the name alone does not help", NUMBER, {"x": 5}, ["null", of("Number", ("z", "int"))], REFUSED),
    (
        "two of one short name",
        [of("X", ("x", "int"), namespace="a"), of("X", ("y", "string"), namespace="b")],
        ("b.X", {"y": "a"}),
        [
            of("X", ("x", "int", FILLED), namespace="a"),
            of("X", ("y", "string"), ("z", "int", FILLED), namespace="b"),
        ],
        {"y": "a", "z": 3},
    ),
    (
        "a short name that fits before another that does",
        of("X", ("x", "int"), namespace="a"),
        {"x": 5},
        [of("P", ("x", "int"), ("z", "int", FILLED)), of("X", ("x", "long"), namespace="b")],
        {"x": 5},
    ),
    (
        "inside of another one",
        of("Outer", ("inner", NUMBER)),
        {"inner": {"x": 5}},
        [
            of("P", ("inner", of("None", ("w", "int")))),
            of("Q", ("inner", of("Other", ("x", "int"), ("z", "int", FILLED)))),
        ],
        {"inner": {"x": 5, "z": 3}},
    ),
    (
        "a union of the writer may be anything",
        of("Outer", ("inner", ["null", NUMBER])),
        {"inner": {"x": 5}},
        [of("P", ("inner", "int")), of("Q", ("inner", ["null", of("Other", ("x", "int"))]))],
        REFUSED,
    ),
    (
        "inside of itself",
        of("Tree", ("next", ["null", "Tree"])),
        {"next": {"next": None}},
        ["null", of("Baum", ("next", ["null", "Baum"]))],
        {"next": {"next": None}},
    ),
    (
        "in an array",
        {"type": "array", "items": NUMBER},
        [{"x": 5}],
        {"type": "array", "items": ["null", TEXT, of("Q", ("x", "int"))]},
        [{"x": 5}],
    ),
]
"""What is said of it, the writer's field, a value as fastavro takes it, the reader's field, and what Java reads."""


def _order(namespace: str, field: str) -> Any:
    detail = of("Detail", (field, "int"), namespace=namespace)
    return of("Order", ("part", of("Part", ("detail", detail))), namespace=namespace)


DEEP: list[tuple[Any, Any, Any]] = [
    (
        of("Outer", ("middle", of("Middle", ("inner", NUMBER)))),
        {"middle": {"inner": {"x": 5}}},
        [
            of("P", ("middle", of("PMiddle", ("inner", TEXT)))),
            of("Q", ("middle", of("QMiddle", ("inner", of("Inner", ("x", "int")))))),
        ],
    ),
    (
        _order("shop", "x"),
        {"part": {"detail": {"x": 5}}},
        [_order("first", "x"), _order("second", "y")],
    ),
]
"""A writer's field, a value, and the reader's field, whose types differ two records below: Java takes a wrong one."""


@pytest.mark.parametrize(("writer", "value", "reader"), DEEP, ids=["other names", "one short name"])
def test_the_record_of_a_union_that_fits_to_its_last_field(writer: Any, value: Any, reader: Any) -> None:
    """As the specification of Avro says, unlike Java."""
    theirs = record(writer)
    for types in (reader, reader[::-1]):
        assert as_record(theirs, record(types), written(theirs, {"v": value})) == {"v": value}


@pytest.mark.parametrize(
    ("writer", "value", "reader", "java"), [each[1:] for each in UNIONS], ids=[each[0] for each in UNIONS]
)
def test_a_record_of_a_union(writer: Any, value: Any, reader: Any, java: Any) -> None:
    theirs, ours = record(writer), record(reader)
    data = written(theirs, {"v": value})
    if java is REFUSED:
        with pytest.raises(fastavro.read.SchemaResolutionError):
            as_record(theirs, ours, data)
    else:
        assert as_record(theirs, ours, data) == {"v": java}


def test_the_own_names_of_records_of_one_short_name() -> None:
    [(_, writer, value, reader, java)] = [each for each in UNIONS if each[0] == "two of one short name"]
    data = written(record(writer), {"v": value})
    known = parsed(resolved(record(writer)), is_writer=True)
    for ours in (None, parsed(resolved(record(reader)))):
        found = Resolution(known, ours, with_names=True).one(io.BytesIO(data))
        assert found == {"v": ("b.X", java if ours else value[1])}


@pytest.mark.parametrize(
    ("reader", "java"),
    [
        (["double", "int"], 5),
        (["double", "long"], 5),
        (["string", "double"], 5.0),
        (["null", "int", "double"], 5),
    ],
)
def test_the_type_of_a_union_that_an_int_is_read_as(reader: Any, java: Any) -> None:
    found = as_record(record("int"), record(reader), written(record("int"), {"v": 5}))["v"]
    assert (found, type(found)) == (java, type(java))


@pytest.mark.parametrize("kind", [decimal(4, 2), "bytes", fixed(1), decimal(2, 1, fixed(1)), MILLIS, DATE])
def test_a_default_is_written_for_a_field_that_a_value_lacks(kind: Any) -> None:
    default: Any = 1 if kind in (MILLIS, DATE) else "\u0001"
    schema = parsed(resolved(record("int", {"name": "more", "type": kind, "default": default})))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, with_default_values(schema, schema, EXACT), {"v": 5})
    assert out.getvalue() in (b"\x0a\x02\x01", b"\x0a\x01", b"\x0a\x02")


_KINDS = st.sampled_from(
    ["null", "boolean", "int", "long", "float", "double", "string", "bytes", "R", "none", 5]
)
_LOGICAL = st.sampled_from([*EXACT, "duration", "timestamp-nanos", 7, None])
_NUMBER = st.sampled_from([0, 1, 9, 40, 77, -1, "9", None, 2.5])


@st.composite
def _odd_types(draw: st.DrawFn, depth: int = 2) -> Any:
    inner = _odd_types(depth - 1) if depth else _KINDS
    return draw(
        st.one_of(
            _KINDS,
            st.lists(inner, max_size=3),
            st.fixed_dictionaries(
                {"type": _KINDS, "logicalType": _LOGICAL, "precision": _NUMBER, "scale": _NUMBER}
            ),
            st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
            st.fixed_dictionaries({"type": st.just("map"), "values": inner}),
            st.fixed_dictionaries(
                {"type": st.just("fixed"), "name": st.sampled_from("FGH"), "size": _NUMBER}
            ),
            st.fixed_dictionaries({"type": inner}),
        )
    )


_DEFAULT = st.sampled_from([None, 1, 2.5, "a", "\u0100", [], {}, {"v": 1}, True, [1], 2**80])


@examples(75)
@given(_odd_types(), _odd_types(), _DEFAULT, st.binary(max_size=12))
def test_odd_schemas_are_refused_in_our_own_words(mine: Any, theirs: Any, default: Any, data: bytes) -> None:
    """Whatever a registry has: a ConfigError of the schema, or a bad record."""
    writer = record(mine)
    reader = record(theirs, {"name": "more", "type": mine, "default": default})
    for known in (avro.parsed, parsed):
        try:
            made = known(resolved(writer), is_writer=True)
            ours = known(resolved(reader))
            for each in (None, ours):
                AvroFormat(made, each, arrow_of(made if each is None else each)).decode(
                    pa.array([data], pa.binary())
                )
                Resolution(made, each)
        except ConfigError:
            continue


def _of(namespace: str, **more: Any) -> dict[str, Any]:
    return {"name": "T", "namespace": namespace, **more}


@pytest.mark.parametrize("evolved", [False, True])
@pytest.mark.parametrize(
    ("types", "data", "value"),
    [
        (
            [decimal(18, scale, _of(space, type="fixed", size=8)) for space, scale in (("a", 2), ("b", 4))],
            b"\2" + (12_345).to_bytes(8, "big"),
            Decimal("1.2345"),
        ),
        (
            [
                _of("a", type="enum", symbols=["UNKNOWN", "B"], default="UNKNOWN"),
                _of("b", type="enum", symbols=["PAID", "OPEN"]),
            ],
            b"\2\0",
            "PAID",
        ),
        ([_of("a", type="fixed", size=2), _of("b", type="fixed", size=4)], b"\2abcd", b"abcd"),
    ],
    ids=["decimals", "enums", "sizes"],
)
def test_types_of_a_union_with_one_short_name_are_told_apart_by_their_full_names(
    types: list[Any], data: bytes, value: object, *, evolved: bool
) -> None:
    more = {"name": "more", "type": "int", "default": 1}
    writer, reader = record(types), record(types, more)
    read = Resolution(parsed(resolved(writer), is_writer=True), parsed(resolved(reader)) if evolved else None)
    assert read.one(io.BytesIO(data))["v"] == value


def test_a_record_of_a_union_is_the_last_of_its_short_name_that_fits() -> None:
    """As Avro for Java chooses where no full name is the writer's."""
    number = {"name": "i", "type": "int"}
    named = [
        _of(space, type="record", fields=[number, {"name": "which", "type": "string", "default": space}])
        for space in ("a", "b")
    ]
    writer = record(_of("c", type="record", fields=[number]))
    read = Resolution(parsed(resolved(writer), is_writer=True), parsed(resolved(record(named))))
    assert read.one(io.BytesIO(b"\n"))["v"] == {"i": 5, "which": "b"}


def test_a_schema_that_says_that_it_is_parsed_already_is_parsed() -> None:
    """fastavro believes it, and looks up names that lead to each other without end."""
    named = {"x": "y", "y": "x"}
    schema = {**record("x"), "__fastavro_parsed": True, "__named_schemas": named}
    with pytest.raises(ConfigError):
        parsed(resolved(schema), is_writer=True)
