#!/usr/bin/env bash
# fastavro 1.13.1: a reader's alias wins over the field's own name.
#
# Guess: an alias helps where the writer has no field of the reader's name. Where it has, the name decides; or the
#       two claims are an error, as in Avro 1.12.1 for Java (AvroRuntimeException: Duplicate field).
# Seen: where the writer has the alias's field first, its value is given, and the field of the reader's own name is dropped.
#       Where it has the own name first, the read ends with a KeyError of that name.
# Who meets it: a field is renamed in three steps: `cents`, then both `cents` and `amount` for a while, then `amount` with
#       the alias `cents`. Records of the middle step, and only these, come out with the old field's value.
# Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   cents 125: amount 125
#   cents 125, amount 999: amount 125
#   amount 999, cents 125: amount missing
#   amount 999: amount 999
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check fastavro==1.13.1 || exit 2

cat >read.py <<'PY'
import io
import sys

import fastavro


def record(*fields):
    return {"type": "record", "name": "Payment", "fields": [{"type": "long", **field} for field in fields]}


CENTS, AMOUNT = {"name": "cents"}, {"name": "amount"}
READER = record({"name": "amount", "aliases": ["cents"]})
VALUES = {"cents": 125, "amount": 999}
seen = []
for fields in ((CENTS,), (CENTS, AMOUNT), (AMOUNT, CENTS), (AMOUNT,)):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, record(*fields), VALUES)
    data.seek(0)
    try:
        seen.append(fastavro.schemaless_reader(data, record(*fields), READER)["amount"])
    except KeyError:
        seen.append("missing")
    written = ", ".join("{} {}".format(field["name"], VALUES[field["name"]]) for field in fields)
    print(f"{written}: amount {seen[-1]}")
sys.exit(0 if seen == [125, 125, "missing", 999] else 3)
PY
status=0
venv/bin/python read.py || status=$?
case $status in
    0) ;;
    3) exit 1 ;;
    *) exit 2 ;;
esac
