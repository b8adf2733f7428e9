#!/usr/bin/env bash
# PyIceberg 0.12.0: an append makes an empty list of a null one if its elements are structs, and an empty map of a null one.
#
# Guess: a null comes back as a null, whatever is in the lists.
# Seen: for the file the library makes lists and maps of structs anew, from offsets and values, without the nulls. The file
#       itself has the empty list. Lists and maps of plain values keep their nulls. Reading does the same: nulls in the
#       files of other writers are empty lists, too.
# Who meets it: whoever tells "not known" from "none", such as the items of an order. There is no sign of it. A column
#       beside the list, such as its length, keeps the difference.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   list of longs: appended [None, [], [1]], in the file [None, [], [1]]
#   list of structs: appended [None, [], [{'a': 1}]], in the file [[], [], [{'a': 1}]]
#   map to structs: appended [None, [], [('k', {'a': 1})]], in the file [[], [], [('k', {'a': 1})]]
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 || exit 2

cat >append.py <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse="file://" + sys.argv[1])
catalog.create_namespace("n")
STRUCT = pa.struct([("a", pa.int64())])


def kept(number, what, kind, values):
    """Whether the values are in the table's file as they were appended."""
    table = catalog.create_table(f"n.t{number}", schema=pa.schema([("x", kind)]))
    table.append(pa.table({"x": pa.array(values, kind)}))
    (task,) = table.scan().plan_files()
    found = pq.read_table(task.file.file_path.removeprefix("file://"))["x"].to_pylist()
    print(f"{what}: appended {values}, in the file {found}")
    return found == values


seen = [
    kept(0, "list of longs", pa.list_(pa.int64()), [None, [], [1]]),
    kept(1, "list of structs", pa.list_(STRUCT), [None, [], [{"a": 1}]]),
    kept(2, "map to structs", pa.map_(pa.string(), STRUCT), [None, [], [("k", {"a": 1})]]),
]
sys.exit(0 if seen == [True, False, False] else 3)
PY
status=0
venv/bin/python append.py "$work" || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
