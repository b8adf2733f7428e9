#!/usr/bin/env bash
# deltalake 1.6.6: a write with an application's transaction is accepted twice, and with a number that goes back.
#
# Guess: CommitProperties(app_transactions=[Transaction("app", 7)]) makes a write idempotent, as txnAppId and txnVersion
#        of Delta's jar do: a version that the table has, or a lower one, is not written again.
# Seen: each write is accepted and its rows are there; transaction_version("app") goes down from 7 to 5. The library
#       records the number and compares nothing.
# Who meets it: whoever repeats a batch after a crash and trusts the number: the rows are there twice. Ask
#       transaction_version() first, and switch the library's own repetition off (max_commit_retries=0).
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   version 7: 1 row(s), the table says 7
#   version 7: 2 row(s), the table says 7
#   version 5: 3 row(s), the table says 5
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >write.py <<'PY'
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

for number, version in enumerate((7, 7, 5), 1):
    properties = CommitProperties(app_transactions=[Transaction("app", version)])
    try:
        write_deltalake("table", pa.table({"id": [number]}), mode="append", commit_properties=properties)
    except DeltaError as problem:
        print(f"changed: version {version} is refused: {problem}", file=sys.stderr)
        sys.exit(3)
    table = DeltaTable("table")
    rows, last = table.to_pyarrow_table().num_rows, table.transaction_version("app")
    print(f"version {version}: {rows} row(s), the table says {last}")
    if rows != number or last != version:
        print("changed", file=sys.stderr)
        sys.exit(3)
PY
status=0
venv/bin/python write.py || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
