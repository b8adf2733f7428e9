#!/usr/bin/env bash
# deltalake 1.6.6: bytes in a partition column come back as other bytes, and no filter finds them.
#
# Guess: a table gives back what was written to it; where it cannot, it refuses the write.
# Seen: the log has partition values as text, bytes as escapes such as \u0061. The library writes these escapes and does not
#       read them: b"a" comes back as the six bytes b"\u0061", from to_pyarrow_table() and from SQL. `WHERE p = X'61'` finds
#       nothing, a delete with it deletes nothing, and a merge that matches by p inserts the row a second time.
# Who meets it: whoever partitions a table by a hash, a UUID in bytes or the key of a Kafka record. Partition by its hex text.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   written b'a' b'\xff\x00'
#   to_pyarrow_table b'\\u0061' b'\\u00FF\\u0000'
#   SQL b'\\u0061' b'\\u00FF\\u0000'
#   WHERE p = X'61' finds 0, DELETE deletes 0, MERGE updates 0 and inserts 1
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >partition.py <<'PY'
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

rows = pa.table({"p": pa.array([b"a", b"\xff\x00"]), "v": [0, 1]})
write_deltalake("t", rows, partition_by=["p"])
table = DeltaTable("t")


def sql(text):
    return pa.table(QueryBuilder().register("t", table).execute(text).read_all())


def shows(what, found):
    print(what, *(row["p"] for row in sorted(found.to_pylist(), key=lambda row: row["v"])))


shows("written", rows)
shows("to_pyarrow_table", table.to_pyarrow_table())
shows("SQL", sql("SELECT p, v FROM t"))
found = sql("SELECT v FROM t WHERE p = X'61'").num_rows
deleted = table.delete("p = X'61'")["num_deleted_rows"]
merged = (
    table.merge(rows.slice(0, 1), "new.p = old.p", source_alias="new", target_alias="old")
    .when_matched_update_all()
    .when_not_matched_insert_all()
    .execute()
)
updated, inserted = merged["num_target_rows_updated"], merged["num_target_rows_inserted"]
print(f"WHERE p = X'61' finds {found}, DELETE deletes {deleted}, MERGE updates {updated} and inserts {inserted}")
PY
venv/bin/python partition.py 2>errors | tee seen || { tail -3 errors; exit 2; }
sed -n 's/^#   \([^ ]\)/\1/p' "$here/deltalake_binary_partition.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
