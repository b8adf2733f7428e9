#!/usr/bin/env bash
# PyIceberg 0.12.0: an append that conflicts with another writer's is repeated by the library itself.
#
# Guess: of two writers that opened one table and append to it, the second gets CommitFailedException and decides itself
#        whether its rows are still wanted; so a writer sees a conflict before its rows are in the table.
# Seen: append() makes the commit again on the table as it is now, up to four times (the table's property
#       commit.retry.num-retries). It looks at nothing but its own snapshot: two processes that write the same batch,
#       one of them taken for dead, both succeed. With the property 0 the second one gets CommitFailedException.
# Who meets it: whoever writes "exactly once" by a number in the table's properties, read before the append.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   by itself: both appends of batch 7 were accepted, 2 rows; the property says 7
#   with commit.retry.num-retries=0: CommitFailedException, 1 row
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' || exit 2

cat >race.py <<'PY'
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

ROWS = pa.table({"id": [1]})
catalog = load_catalog("c", type="sql", uri="sqlite:///catalogue.db", warehouse="file://" + sys.argv[1])
catalog.create_namespace("shop")


def race(name, properties):
    """Two writers of one batch that both see that it is not there; whether the second one is refused, and the rows."""
    catalog.create_table(name, ROWS.schema, properties=properties)
    writers = [catalog.load_table(name) for _ in range(2)]
    assert all("last-batch" not in writer.properties for writer in writers)
    refused = False
    for writer in writers:
        try:
            with writer.transaction() as change:
                change.set_properties({"last-batch": "7"})
                change.append(ROWS)
        except CommitFailedException:
            refused = True
    table = catalog.load_table(name)
    return refused, table.scan().to_arrow().num_rows, table.properties["last-batch"]


refused, rows, last = race("shop.usual", {})
if refused or rows != 2:
    print(f"changed: refused {refused}, {rows} row(s)", file=sys.stderr)
    sys.exit(1)
print(f"by itself: both appends of batch 7 were accepted, {rows} rows; the property says {last}")
refused, rows, last = race("shop.never", {"commit.retry.num-retries": "0"})
if not refused or rows != 1:
    print(f"changed: with commit.retry.num-retries=0 refused {refused}, {rows} row(s)", file=sys.stderr)
    sys.exit(1)
print(f"with commit.retry.num-retries=0: CommitFailedException, {rows} row")
PY
status=0
venv/bin/python -W ignore race.py "$work/warehouse" 2>errors || status=$?
grep -v "retrying (" errors >&2 || true
grep -q "^changed" errors && exit 1
[ "$status" = 0 ] || exit 2
