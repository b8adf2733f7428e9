#!/usr/bin/env bash
# deltalake 1.6.6: an empty text in a partition column is null for one way of reading the table and empty for the other.
#
# Guess: all ways of the library to read a table give the same rows. If an empty text cannot be told from null in a partition
#       column, as Delta's protocol says, then in none of them.
# Seen: of "" and null to_pyarrow_table() makes two nulls. SQL has "" and null, and so have update, delete and merge. Which
#       rows a filter finds depends on the way, too: partitions=[("p", "=", "")] finds the row that was null, filters= finds
#       none, and `WHERE p = ''` the row that was empty.
# Who meets it: whoever partitions by a text that may be empty, such as a country or a tenant, and reads with pandas or
#       PyArrow what is changed by SQL or merge: rows that are counted as null are not the rows that `p IS NULL` deletes.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   written '' 'a' None
#   to_pyarrow_table None 'a' None
#   SQL '' 'a' None
#   p is empty: row 2 by partitions=, no row by filters=, row 0 by SQL
#   p is null: rows 0 2 by filters=, row 2 by SQL
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >partition.py <<'PY'
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

rows = pa.table({"p": ["", "a", None], "v": [0, 1, 2]})
write_deltalake("t", rows, partition_by=["p"])
table = DeltaTable("t")


def sql(text):
    return pa.table(QueryBuilder().register("t", table).execute(text).read_all())


def in_order(found):
    return sorted(found.to_pylist(), key=lambda row: row["v"])


def shows(what, found):
    print(what, *(repr(row["p"]) for row in in_order(found)))


def places(found, by):
    numbers = [str(row["v"]) for row in in_order(found)]
    return f"{'rows' if len(numbers) > 1 else 'row'} {' '.join(numbers)} by {by}" if numbers else f"no row by {by}"


shows("written", rows)
shows("to_pyarrow_table", table.to_pyarrow_table())
shows("SQL", sql("SELECT p, v FROM t"))
print(
    "p is empty:",
    ", ".join(
        (
            places(table.to_pyarrow_table(partitions=[("p", "=", "")]), "partitions="),
            places(table.to_pyarrow_table(filters=[("p", "=", "")]), "filters="),
            places(sql("SELECT v FROM t WHERE p = ''"), "SQL"),
        )
    ),
)
print(
    "p is null:",
    ", ".join(
        (
            places(table.to_pyarrow_table(filters=pc.field("p").is_null()), "filters="),
            places(sql("SELECT v FROM t WHERE p IS NULL"), "SQL"),
        )
    ),
)
PY
venv/bin/python -W ignore partition.py 2>errors | tee seen || { tail -3 errors; exit 2; }
sed -n 's/^#   \([^ ]\)/\1/p' "$here/deltalake_empty_partition_text.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
