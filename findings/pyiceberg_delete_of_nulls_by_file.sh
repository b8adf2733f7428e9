#!/usr/bin/env bash
# PyIceberg 0.12.0: whether delete("x != 2") deletes the rows without an x depends on the files that they are in.
#
# Guess: the rows of a table decide, not its files; and a delete takes what a scan with the same filter finds. The scan
#       does not find the null, as in SQL.
# Seen: where the null shares a file with a 2, the file is rewritten and the null stays. Where no row of its file is 2,
#       the library drops the whole file, and the null with it. `not (x = 2)` does the same. The scan finds the null in
#       neither table.
# Who meets it: whoever cleans a table by "all but this one": rows that the scan before the delete did not show are lost,
#       and after a compaction the same delete would have kept them. Add `and x is not null`.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   one file [None, 1, 2]: the scan finds [1], the delete leaves [2, None]
#   two files [None, 1] and [2]: the scan finds [1], the delete leaves [2]
#   two files, and x is not null: the scan finds [1], the delete leaves [2, None]
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2

cat >delete.py <<'PY'
import sys
import warnings

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

warnings.simplefilter("ignore")
catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + sys.argv[1])
catalog.create_namespace("n")
SCHEMA = pa.schema([("x", pa.int64())])


def values(scan):
    return sorted(scan.to_arrow()["x"].to_pylist(), key=lambda value: (value is None, value))


def found_and_left(name, files, query):
    table = catalog.create_table(f"n.{name}", schema=SCHEMA)
    for file in files:
        table.append(pa.table({"x": file}, schema=SCHEMA))
    found = values(table.scan(row_filter=query))
    table.delete(query)
    return found, values(table.scan())


stories = (
    ("one file [None, 1, 2]", "one", [[None, 1, 2]], "x != 2", [2, None]),
    ("two files [None, 1] and [2]", "two", [[None, 1], [2]], "x != 2", [2]),
    ("two files, and x is not null", "three", [[None, 1], [2]], "x != 2 and x is not null", [2, None]),
)
seen = []
for said, name, files, query, expected in stories:
    found, left = found_and_left(name, files, query)
    print(f"{said}: the scan finds {found}, the delete leaves {left}")
    seen.append(found == [1] and left == expected)
sys.exit(0 if all(seen) else 3)
PY
status=0
venv/bin/python delete.py "$work" || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
