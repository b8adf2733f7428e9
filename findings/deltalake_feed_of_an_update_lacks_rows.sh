#!/usr/bin/env bash
# deltalake 1.6.6: the change data feed of an update lacks the rows that were or become equal to another row of their file.
#
# Guess: the feed has each updated row twice, as it was (update_preimage) and as it is (update_postimage), as Delta's
#       documentation of the feed says. Who applies the changes to a copy has the table again.
# Seen: update() compares the rewritten files before and after, and writes only what one of them has and the other has not.
#       If a row becomes equal to another one, the new row is not in the feed, and the copy has a row too few. Of x + 1 for
#       1, 2, 3 the feed has one row of each kind. update() counts all rows as updated, and merge() writes all of them. The
#       rows of other files are not compared, so a compaction changes what the next update writes.
# Who meets it: whoever feeds a copy, a sum or an audit by the change data feed of a table in which rows can be equal, such
#       as order lines, readings or records that were delivered twice, or whose update renumbers rows. A column with a
#       number that no update changes avoids it, and so does merge().
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen (the table has the rows [7, "new"] and [7, "done"], and the feed is that of `state = done where state = new`):
#   two files: updated 1, feed -[7, "new"] +[7, "done"], table 2 rows, copy 2 rows
#   one file: updated 1, feed -[7, "new"], table 2 rows, copy 1 rows
#   two files, compacted: updated 1, feed -[7, "new"], table 2 rows, copy 1 rows
#   one file, merge: updated 1, feed -[7, "new"] +[7, "done"], table 2 rows, copy 2 rows
#   x + 1 of 1, 2, 3: updated 3, feed -[1] +[4]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >feed.py <<'PY'
import json
from collections import Counter

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

SIGNS = {"insert": "+", "update_postimage": "+", "delete": "-", "update_preimage": "-"}
ROWS = [{"line": 7, "state": "new"}, {"line": 7, "state": "done"}]


def made(name, *files):
    for rows in files:
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(name, pa.Table.from_pylist(rows), mode="append", configuration=feed)
    return DeltaTable(name)


def contents(rows):
    return Counter(json.dumps(list(row.values())) for row in rows)


def changed(table, change):
    """What a change reports, its feed in words, and the rows of the table and of a copy that applies the feed."""
    copy = contents(table.to_pyarrow_table().to_pylist())
    done = change(table)
    version = table.version()
    feed = pa.table(table.load_cdf(starting_version=version, ending_version=version))
    columns = [field.name for field in table.schema().fields]
    words = []
    kinds = feed["_change_type"].to_pylist()
    for kind, row in zip(kinds, feed.select(columns).to_pylist(), strict=True):
        text = json.dumps(list(row.values()))
        words.append(SIGNS[kind] + text)
        copy[text] += 1 if SIGNS[kind] == "+" else -1
    # The removed row first, whatever the order of the feed's files.
    return done, " ".join(sorted(words, reverse=True)), table.to_pyarrow_table().num_rows, copy.total()


def update(table):
    return table.update(updates={"state": "'done'"}, predicate="state = 'new'")["num_updated_rows"]


def merge(table):
    source = pa.Table.from_pylist([{"line": 7, "state": "new"}])
    merger = table.merge(source, "t.line = s.line and t.state = s.state", source_alias="s", target_alias="t")
    return merger.when_matched_update(updates={"state": "'done'"}).execute()["num_target_rows_updated"]


def show(said, table, change):
    done, feed, rows, copied = changed(table, change)
    print(f"{said}: updated {done}, feed {feed}, table {rows} rows, copy {copied} rows")


show("two files", made("two", ROWS[:1], ROWS[1:]), update)
show("one file", made("one", ROWS), update)
compacted = made("compacted", ROWS[:1], ROWS[1:])
compacted.optimize.compact()
show("two files, compacted", compacted, update)
show("one file, merge", made("merged", ROWS), merge)
numbers = made("numbers", [{"x": 1}, {"x": 2}, {"x": 3}])
done, feed, _, _ = changed(numbers, lambda table: table.update(updates={"x": "x + 1"})["num_updated_rows"])
print(f"x + 1 of 1, 2, 3: updated {done}, feed {feed}")
PY
venv/bin/python feed.py | tee seen || exit 2
sed -n 's/^#   \(.*: updated .*\)/\1/p' "$here/deltalake_feed_of_an_update_lacks_rows.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
