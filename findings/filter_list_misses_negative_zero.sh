#!/usr/bin/env bash
# PyArrow 26.0.1, PyIceberg 0.12.0, deltalake 1.6.6: `x = 0.0` finds -0.0 and `x in (0.0, 1.0, 2.0, 3.0)` does not.
#
# Guess: `x in (a, b)` is short for `x = a or x = b`.
# Seen: `=` compares as IEEE 754 says, by which 0.0 and -0.0 are equal. A list is searched by hash, and -0.0 has another
#       one. PyArrow does that for each list, PyIceberg from two values, deltalake's SQL and its delete from four: below
#       that they make comparisons of the list. `not in` finds -0.0 where `<>` does not, and a delete with a list leaves
#       the row and says nothing. ClickHouse in chdb 4.4.0 does the same for each list. DuckDB and Polars 2.1.0 find both.
# Who meets it: whoever stores rounded or negated numbers, such as round(-0.2) or 0 * -1.5, and filters, counts or deletes
#       some of them by a list. Which rows are found depends on the tool and on the length of the list. Add 0.0 to the
#       column before it is stored: that makes 0.0 of -0.0.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen (the column has 0.0, -0.0 and 5.0):
#   = 0: DuckDB 0.0 -0.0, PyArrow 0.0 -0.0, PyIceberg 0.0 -0.0, deltalake 0.0 -0.0
#   in 0, 1: DuckDB 0.0 -0.0, PyArrow 0.0, PyIceberg 0.0, deltalake 0.0 -0.0
#   in 0, 1, 2, 3: DuckDB 0.0 -0.0, PyArrow 0.0, PyIceberg 0.0, deltalake 0.0
#   after a delete of 0, 1, 2, 3: PyIceberg -0.0 5.0, deltalake -0.0 5.0
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check \
    pyarrow==26.0.1 'pyiceberg[sql-sqlite]==0.12.0' deltalake==1.6.6 duckdb==2.0.1 || exit 2

cat >zero.py <<'PY'
import sys
import warnings

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

warnings.simplefilter("ignore")
ROWS = pa.table({"x": [0.0, -0.0, 5.0]})
pq.write_table(ROWS, "x.parquet")
write_deltalake("delta", ROWS)
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + sys.argv[1])
catalog.create_namespace("n")
iceberg = catalog.create_table("n.t", schema=ROWS.schema)
iceberg.append(ROWS)


def show(said, **found):
    print(f"{said}:", ", ".join(f"{tool} {' '.join(map(str, numbers))}" for tool, numbers in found.items()), flush=True)


def condition(numbers):
    return f"x in ({', '.join(map(str, numbers))})" if len(numbers) > 1 else f"x = {numbers[0]}"


def find(said, numbers):
    query = condition(numbers)
    by_arrow = pc.field("x").isin(numbers) if len(numbers) > 1 else pc.field("x") == numbers[0]
    sql = QueryBuilder().register("t", DeltaTable("delta")).execute(f"SELECT x FROM t WHERE {query}")
    show(
        said,
        DuckDB=[x for (x,) in duckdb.sql(f"SELECT x FROM 'x.parquet' WHERE {query}").fetchall()],
        PyArrow=pq.read_table("x.parquet", filters=by_arrow)["x"].to_pylist(),
        PyIceberg=iceberg.scan(row_filter=query).to_arrow()["x"].to_pylist(),
        deltalake=pa.table(sql)["x"].to_pylist(),
    )


find("= 0", [0.0])
find("in 0, 1", [0.0, 1.0])
find("in 0, 1, 2, 3", [0.0, 1.0, 2.0, 3.0])
iceberg.delete(condition([0.0, 1.0, 2.0, 3.0]))
delta = DeltaTable("delta")
delta.delete(condition([0.0, 1.0, 2.0, 3.0]))
show(
    "after a delete of 0, 1, 2, 3",
    PyIceberg=iceberg.scan().to_arrow()["x"].to_pylist(),
    deltalake=delta.to_pyarrow_table()["x"].to_pylist(),
)
PY
venv/bin/python zero.py "$work" | tee seen || exit 2
sed -n 's/^#   \(= 0\|in 0\|after\)/\1/p' "$here/filter_list_misses_negative_zero.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
