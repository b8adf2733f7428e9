#!/usr/bin/env bash
# PyArrow 26.0.1, DuckDB 2.0.1, deltalake 1.6.6: a filter of a Parquet file does not find each NaN.
#
# Guess: `isnan(x)` and `x <> 1` give the same rows from a file as from memory. Parquet's statistics leave NaN out, and the
#       format says that a reader must not judge NaN by them.
# Seen: PyArrow loses the NaN of [1, NaN] for both filters, deltalake's SQL for the second: smallest and largest number are
#       both 1, so they skip the rows. DuckDB, whose own files have no such statistics, loses it for both, and finds
#       no NaN by isnan() as soon as the file of another writer has any number. Without statistics all three find it, and
#       Polars 2.1.0 always does. PyIceberg 0.12 reads by PyArrow and loses the same rows.
# Who meets it: whoever looks for broken measurements, such as a sensor that sends a constant and then NaN. The count
#       depends on how the rows came into files. Read with the statistics off, or filter in memory.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen (rows by isnan(x), rows by x <> 1):
#   [1, NaN]: PyArrow (0, 0), DuckDB (0, 0), Polars (1, 1), deltalake (1, 0)
#   [1, 5, NaN]: PyArrow (1, 2), DuckDB (0, 2), Polars (1, 2), deltalake (1, 2)
#   [1, NaN] without statistics: PyArrow (1, 1), DuckDB (1, 1), Polars (1, 1)
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check \
    pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 deltalake==1.6.6 || exit 2

cat >find.py <<'PY'
import math
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

CONDITIONS = ("isnan(x)", "x <> 1")


def by_pyarrow(file):
    filters = (pc.is_nan(pc.field("x")), pc.field("x") != 1)
    return tuple(ds.dataset(file).to_table(filter=each).num_rows for each in filters)


def by_duckdb(file):
    return tuple(len(duckdb.sql(f"FROM '{file}' WHERE {each}").fetchall()) for each in CONDITIONS)


def by_polars(file):
    filters = (pl.col("x").is_nan(), pl.col("x") != 1)
    return tuple(pl.scan_parquet(file).filter(each).collect().height for each in filters)


def by_deltalake(name, table):
    write_deltalake(name, table)
    query = QueryBuilder().register("t", DeltaTable(name))
    return tuple(pa.table(query.execute(f"SELECT x FROM t WHERE {each}")).num_rows for each in CONDITIONS)


def found(name, numbers, **settings):
    table = pa.table({"x": numbers})
    pq.write_table(table, name, **settings)
    rows = {"PyArrow": by_pyarrow(name), "DuckDB": by_duckdb(name), "Polars": by_polars(name)}
    if not settings:
        rows["deltalake"] = by_deltalake(f"{name}.delta", table)
    return rows


def say(said, rows):
    print(f"{said}: {', '.join(f'{reader} {counts}' for reader, counts in rows.items())}")


constant = found("constant.parquet", [1.0, math.nan])
say("[1, NaN]", constant)
two = found("two.parquet", [1.0, 5.0, math.nan])
say("[1, 5, NaN]", two)
without = found("without.parquet", [1.0, math.nan], write_statistics=False)
say("[1, NaN] without statistics", without)
expected = (
    {"PyArrow": (0, 0), "DuckDB": (0, 0), "Polars": (1, 1), "deltalake": (1, 0)},
    {"PyArrow": (1, 2), "DuckDB": (0, 2), "Polars": (1, 2), "deltalake": (1, 2)},
    {"PyArrow": (1, 1), "DuckDB": (1, 1), "Polars": (1, 1)},
)
sys.exit(0 if (constant, two, without) == expected else 3)
PY
status=0
venv/bin/python find.py || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
