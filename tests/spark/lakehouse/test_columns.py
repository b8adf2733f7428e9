from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.types import StructType

from kadence.errors import ConfigError
from kadence.spark.lakehouse.columns import Columns, arrow_schema, fit


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
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("a", pa.int64())])),
        (pa.list_(pa.int64()), pa.list_(pa.field("item", pa.int64(), nullable=False))),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string())),
    ],
)
def test_types_that_do_not_fit(rows: pa.DataType, table: pa.DataType) -> None:
    with pytest.raises(ConfigError, match=r"column x is .* in the rows and .* in the table: cast it"):
        fit(pa.schema([("x", rows)]), pa.schema([("x", table)]), may_add=True)


@pytest.mark.parametrize("may_add", [False, True])
def test_a_name_in_another_case_is_no_new_column(may_add: bool) -> None:
    """Spark reads no table that has both."""
    rows, table = pa.schema([("City", pa.string())]), pa.schema([("city", pa.string())])
    with pytest.raises(ConfigError, match="column City of the rows is city in the table: rename it"):
        fit(rows, table, may_add=may_add)
