#!/usr/bin/env bash
# deltalake 1.6.6: a filter on a decimal column does not find a file whose decimals are all below 0.00001.
#
# Guess: a table finds by a filter what it has without one.
# Seen: the smallest and largest value of a file are JSON numbers in the log, and the library writes those with an exponent,
#       1e-6. Where it makes a PyArrow data set of the table, it reads them as null in a decimal, and the condition for
#       the file, `price >= null`, holds for no filter. Its own SQL finds the row.
# Who meets it: whoever filters prices of tokens, fees or rates by to_pyarrow_table(filters=), to_pandas(filters=) or
#       to_pyarrow_dataset(). One larger value per file hides it. Read all and filter then, or use QueryBuilder.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   0.00001: smallest in the log 0.00001, found by to_pyarrow_table 1, by SQL 1
#   0.000001: smallest in the log 1e-6, found by to_pyarrow_table 0, by SQL 1
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >filter.py <<'PY'
import re
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake


def found(text):
    """The rows with a price, found by both ways, in a table that has one."""
    write_deltalake(f"t{text}", pa.table({"price": pa.array([Decimal(text)], pa.decimal128(12, 8))}))
    table = DeltaTable(f"t{text}")
    log = next(Path(f"t{text}", "_delta_log").glob("*.json")).read_text()
    (smallest,) = re.findall(r'minValues[\\":{]+price[\\":]+([^}]+)', log)
    sql = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE price = CAST('{text}' AS DECIMAL(12, 8))")
    rows = (
        table.to_pyarrow_table(filters=[("price", "=", Decimal(text))]).num_rows,
        pa.table(sql.read_all()).num_rows,
    )
    print(f"{text}: smallest in the log {smallest}, found by to_pyarrow_table {rows[0]}, by SQL {rows[1]}")
    return rows


sys.exit(0 if [found("0.00001"), found("0.000001")] == [(1, 1), (0, 1)] else 3)
PY
status=0
venv/bin/python filter.py || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
