#!/usr/bin/env bash
# deltalake 1.6.6: a write with a negative decimal in a partition column fails, and the table cannot be opened any more.
#
# Guess: -1.25 is a partition value like 1.25. And a write that fails leaves the table as it was.
# Seen: the write puts the minus sign before the fraction, "-1.-25", commits, and then fails to read its own log. From then
#       on nothing opens the table: neither a read, nor a write, nor restore(). Negative whole numbers (-5.00) come
#       back as they were. Only a version before that commit can still be read.
# Who meets it: whoever partitions by a rate, a balance or a time offset: all goes well until the first value below zero.
#       Partition by the number's text, or by an integer. The commit's file in _delta_log has to go by hand.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   1.25: written, logged as 1.25, 1 row(s)
#   -5.00: written, logged as -5.00, 2 row(s)
#   -1.25: Failed to parse value '-1.-25', logged as -1.-25, Failed to parse value '-1.-25'
#   restore: Failed to parse value '-1.-25'
#   version 1: 2 row(s)
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1 || exit 2

cat >write.py <<'PY'
import json
import re
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError


def said(call):
    """What a call gives, or the part of its error that names the value."""
    try:
        return call()
    except DeltaError as problem:
        found = re.search(r"Failed to parse value '[^']*'", str(problem))
        return found.group() if found else str(problem)


def write(value, number):
    data = pa.table({"rate": pa.array([Decimal(value)], pa.decimal128(10, 2)), "id": [number]})
    write_deltalake("table", data, mode="append", partition_by=["rate"])
    return "written"


def rows(version=None):
    return f"{DeltaTable('table', version=version).count()} row(s)"


def restore():
    DeltaTable("table").restore(1)
    return "restored"


def logged(version):
    actions = map(json.loads, Path(f"table/_delta_log/{version:020}.json").read_text().splitlines())
    return next(action["add"]["partitionValues"]["rate"] for action in actions if "add" in action)


PARSE = "Failed to parse value '-1.-25'"
seen = []
for version, value in enumerate(("1.25", "-5.00", "-1.25")):
    seen.append((said(lambda: write(value, version)), logged(version), said(rows)))
    print("{}: {}, logged as {}, {}".format(value, *seen[-1]))
seen.append(said(restore))
print(f"restore: {seen[-1]}")
seen.append(said(lambda: rows(1)))
print(f"version 1: {seen[-1]}")
expected = [
    ("written", "1.25", "1 row(s)"),
    ("written", "-5.00", "2 row(s)"),
    (PARSE, "-1.-25", PARSE),
    PARSE,
    "2 row(s)",
]
sys.exit(0 if seen == expected else 3)
PY
status=0
venv/bin/python write.py || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
