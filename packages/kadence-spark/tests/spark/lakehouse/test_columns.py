from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.types import StructType

from kadence.errors import ConfigError
from kadence_spark.lakehouse.columns import Columns, arrow_schema, fit


def test_types_that_no_table_has() -> None:
    with pytest.raises(
        ConfigError, match="column x has the type array<variant>, which cannot be written to delta"
    ):
        arrow_schema(StructType().add("x", t.ArrayType(t.VariantType())), "delta")
    if hasattr(t, "TimeType"):
        with pytest.raises(ConfigError, match="the type time"):
            arrow_schema(StructType().add("x", t.TimeType(6)), "delta")
    with pytest.raises(ConfigError, match="interval day"):
        arrow_schema(StructType().add("x", StructType().add("y", t.DayTimeIntervalType(0, 0))), "iceberg")


def test_two_columns_of_one_name() -> None:
    with pytest.raises(ConfigError, match="more than one column 'id'"):
        arrow_schema(StructType().add("id", "long").add("ID", "long"), "delta")


@pytest.mark.parametrize(
    "holder", [lambda kind: kind, t.ArrayType, lambda kind: t.MapType(t.StringType(), kind)]
)
def test_structs_that_no_table_has(holder: Any) -> None:
    """Spark reads none with two names that differ in case; Parquet has none without fields."""
    two = StructType().add("b", StructType().add("id", "long").add("ID", "long"))
    with pytest.raises(ConfigError, match=r"more than one column 'x\.b\.id'"):
        arrow_schema(StructType().add("x", holder(two)), "iceberg")
    with pytest.raises(ConfigError, match=r"column x has the type .*struct<>.*, which cannot be written"):
        arrow_schema(StructType().add("x", holder(StructType())), "delta")


def test_instants_lose_the_zone_of_the_session() -> None:
    """Also inside structs and lists."""
    inner = pa.struct([("t", pa.timestamp("us", "America/New_York"))])
    rows = pa.schema([("at", pa.timestamp("us", "America/New_York")), ("s", inner), ("l", pa.list_(inner))])
    utc = pa.struct([("t", pa.timestamp("us", "UTC"))])
    table = pa.schema(
        [("l", pa.list_(utc)), ("at", pa.timestamp("us", "UTC")), ("s", utc), ("n", pa.int32())]
    )
    batch = pa.RecordBatch.from_pylist([{"at": 5, "s": {"t": 5}, "l": [{"t": 5}]}], schema=rows)
    made = Columns(table).align(batch)
    assert made.schema == table
    assert made.column("at").cast(pa.int64()).to_pylist() == [5]
    assert made.column("n").to_pylist() == [None]


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        (pa.int64(), pa.int32()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string())),
    ],
)
def test_types_that_do_not_fit(rows: pa.DataType, table: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column x\S* is .* in the rows and .* in the table: cast it"):
        fit(pa.schema([("x", rows)]), pa.schema([("x", table)]), may_add=True)


@pytest.mark.parametrize("may_add", [False, True])
def test_a_name_in_another_case_is_no_new_column(may_add: bool) -> None:
    """Spark reads no table that has both."""
    rows, table = pa.schema([("City", pa.string())]), pa.schema([("city", pa.string())])
    with pytest.raises(ConfigError, match="column City of the rows is city in the table: rename it"):
        fit(rows, table, may_add=may_add)


STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])
MORE = pa.struct([("c", pa.bool_()), ("b", pa.string()), ("a", pa.int64())])
BOTH = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
HOLDERS = {
    "itself": lambda kind: kind,
    "a list": pa.list_,
    "a large list": pa.large_list,
    "a map": lambda kind: pa.map_(pa.string(), kind),
    "a struct": lambda kind: pa.struct([("s", kind)]),
    "a list of lists": lambda kind: pa.list_(pa.list_(kind)),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_fields_that_come_go_and_move(holder: str) -> None:
    """The rows have one field more, in another order; then they lack it."""
    hold = HOLDERS[holder]
    rows, table = pa.schema([("x", hold(MORE))]), pa.schema([("x", hold(STRUCT))])
    [changed] = fit(rows, table, may_add=True)
    assert changed.type == hold(BOTH)
    with pytest.raises(
        ConfigError, match=r"the table has no column x.*\.c: leave it out .* mergeSchema=true"
    ):
        fit(rows, table, may_add=False)
    assert fit(table, pa.schema([changed]), may_add=False) == []
    for given in (rows, table):
        value = {"a": 1, "b": "x"} | ({"c": True} if given is rows else {})
        held: dict[str, Any] = {
            "itself": value,
            "a list": [value, None],
            "a large list": [value, None],
            "a map": [("k", value), ("l", None)],
            "a struct": {"s": value},
            "a list of lists": [[value], None],
        }
        whole = pa.RecordBatch.from_pylist(
            [{"x": None}, {"x": held[holder]}, {"x": held[holder]}], schema=given
        )
        for batch in (whole, whole.slice(1), whole.slice(2)):
            made = Columns(pa.schema([changed])).align(batch)
            made.validate(full=True)
            assert made.schema.field("x").type == changed.type
            filled = str({"a": 1, "b": "x", "c": True if given is rows else None})
            assert str(made.to_pylist()[-1]).count(filled) == 1
            assert made.num_rows == batch.num_rows


def test_types_that_grow() -> None:
    for small, large in (
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2)),
    ):
        rows, table = pa.schema([("x", pa.list_(large))]), pa.schema([("x", pa.list_(small))])
        assert [item.type for item in fit(rows, table, may_add=True, may_widen=True)] == [pa.list_(large)]
        with pytest.raises(ConfigError, match="cast it"):
            fit(rows, table, may_add=True)
        # A stream of before goes on with a table that another writer has widened.
        assert fit(table, rows, may_add=False) == []
        batch = pa.RecordBatch.from_pylist([{"x": [1, None]}], schema=table)
        assert Columns(rows).align(batch).to_pylist() == [{"x": [1, None]}]


def test_a_nested_field_that_must_not_be_null_is_refused() -> None:
    table = pa.schema([("x", pa.struct([pa.field("a", pa.int64(), nullable=False)]))])
    with pytest.raises(ConfigError, match=r"field x\.a of the table must not be null"):
        fit(pa.schema([("x", pa.struct([("a", pa.int64())]))]), table, may_add=True)
    elements = pa.schema([("x", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    with pytest.raises(ConfigError, match="values in column x of the table must not be null"):
        fit(pa.schema([("x", pa.list_(pa.int64()))]), elements, may_add=True)
    for same in (table, elements):
        assert fit(same, same, may_add=False) == []


def test_rows_that_lack_a_struct_whose_fields_must_not_be_null() -> None:
    """It is null; Parquet's writer wants no null in the fields below."""
    kinds = [
        pa.int64(),
        pa.string(),
        pa.bool_(),
        pa.decimal128(9, 2),
        pa.timestamp("us", "UTC"),
        pa.list_(pa.int64()),
        pa.large_list(pa.string()),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([pa.field("b", pa.binary(), nullable=False), ("n", pa.int64())]),
    ]
    inner = pa.struct([pa.field(f"f{place}", kind, nullable=False) for place, kind in enumerate(kinds)])
    table = pa.schema([("id", pa.int64()), ("x", inner)])
    made = Columns(table).align(pa.RecordBatch.from_pydict({"id": [1, 2]}))
    made.validate(full=True)
    assert made.to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": None}]
    assert not any(
        child.null_count for child in (made.column("x").field(place) for place in range(len(kinds)))
    )
