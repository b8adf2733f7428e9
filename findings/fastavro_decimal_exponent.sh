#!/usr/bin/env bash
# fastavro 1.13.1: of two equal decimals one is refused as too large and the other is written, in a fixed as another number.
#
# Guess: whether a decimal fits the precision of its type depends on its value. 100000 and 1E+5 are equal in Python, and
#       both are refused where the precision is 4, as Avro for Java refuses them.
# Seen: the digits of the exponent are not counted. 1E+5 is written and read back as 1.000E+5, a number of six digits in a
#       type of four. Into a fixed of two bytes -4E+4 is written without an error, and read back as 25540.
# Who meets it: whoever writes the results of Decimal.normalize() or of a parser that gives exponents. confluent-kafka's
#       AvroSerializer writes by fastavro. Call quantize() with the scale of the type first.
# Takes ten seconds. Exits with 0 when it sees the behaviour, 1 when it has changed, 2 when it could not tell.
# Output seen:
#   bytes, precision 4: 100000 is refused
#   bytes, precision 4: 1E+5 -> 100000
#   fixed of 2, precision 4: -40000 is refused
#   fixed of 2, precision 4: -4E+4 -> 25540
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"${PYTHON:-python3}" -m venv venv
venv/bin/pip install -q --disable-pip-version-check fastavro==1.13.1 || exit 2
cat >write.py <<'PY'
import io
from decimal import Decimal

import fastavro

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0}
FIXED = {**BYTES, "type": "fixed", "name": "F", "size": 2}
for said, schema, value in (
    ("bytes", BYTES, "100000"),
    ("bytes", BYTES, "1E+5"),
    ("fixed of 2", FIXED, "-40000"),
    ("fixed of 2", FIXED, "-4E+4"),
):
    data = io.BytesIO()
    try:
        fastavro.schemaless_writer(data, schema, Decimal(value))
    except ValueError:
        print(f"{said}, precision 4: {value} is refused")
        continue
    data.seek(0)
    print(f"{said}, precision 4: {value} -> {int(fastavro.schemaless_reader(data, schema, None))}")
PY
venv/bin/python write.py | tee seen || exit 2
sed -n 's/^#   \(bytes\|fixed\)/\1/p' "$here/fastavro_decimal_exponent.sh" >expected
[ -s expected ] || exit 2
cmp -s seen expected || { echo changed; exit 1; }
