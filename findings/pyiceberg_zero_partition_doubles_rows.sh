#!/usr/bin/env bash
# PyIceberg 0.12.0: an append of 0.0 and -0.0 to a table that is partitioned by them stores each row twice.
#
# Guess: an append of two rows adds two rows, whether 0.0 and -0.0 make one partition or two. NaN is a partition like
#       another.
# Seen: the library finds two partitions, and picks the rows of each by `=`, which is true for both: two rows in, four rows
#       out, in one commit without an error. By the same way NaN matches no row: an append with one fails with
#       ZeroDivisionError. overwrite() does the same.
# Who meets it: whoever partitions by a rounded measure, whose values near zero round to -0.0 and to 0.0. Add 0.0 to the
#       column first, which makes each zero positive, or partition by an integer or a text.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   [0.25, 1.5] rounded is [0.0, 2.0]: 2 row(s) appended, 2 row(s) in the table
#   [-0.25, 0.25] rounded is [-0.0, 0.0]: 2 row(s) appended, 4 row(s) in the table
#   [-0.25, 0.25] rounded, plus 0.0, is [0.0, 0.0]: 2 row(s) appended, 2 row(s) in the table
#   [nan] rounded is [nan]: ZeroDivisionError
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2

cat >append.py <<'PY'
import math
import sys
import warnings

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

warnings.simplefilter("ignore")
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + sys.argv[1])
catalog.create_namespace("n")
SCHEMA = pa.schema([("measured", pa.float64()), ("rounded", pa.float64())])


def append(name, measured, plus=None):
    """How many rows the table has after an append to it."""
    table = catalog.create_table(f"n.{name}", schema=SCHEMA)
    with table.update_spec() as spec:
        spec.add_field("rounded", IdentityTransform(), "part")
    rounded = pc.round(pa.array(measured))
    if plus is not None:
        rounded = pc.add(rounded, plus)
    said = f"{measured} rounded{'' if plus is None else f', plus {plus},'} is {rounded.to_pylist()}"
    try:
        table.append(pa.table({"measured": measured, "rounded": rounded}, schema=SCHEMA))
    except ZeroDivisionError:
        print(f"{said}: ZeroDivisionError")
        return None
    rows = table.scan().to_arrow().num_rows
    print(f"{said}: {len(measured)} row(s) appended, {rows} row(s) in the table")
    return rows


seen = [
    append("plain", [0.25, 1.5]),
    append("zeros", [-0.25, 0.25]),
    append("positive", [-0.25, 0.25], plus=0.0),
    append("nan", [math.nan]),
]
sys.exit(0 if seen == [2, 4, 2, None] else 3)
PY
status=0
venv/bin/python append.py "$work" || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
